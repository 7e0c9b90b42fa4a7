"""The axioms of Biswas and Enea taken literally: a level holds if some order of all transactions fulfils them.

Transactions are tuples of (session, status, mops), mops are ("r" or "w", key, value); None is the initial value.
"""

from itertools import permutations

LEVELS = ("none", "read-committed", "read-atomic", "causal")


def strongest(transactions):
    """The strongest level of a small history whose writes are unique, by trying every order."""
    reads = external_reads(transactions)
    if reads is None:
        return "none"
    committed = [t for t, (_, status, _) in enumerate(transactions) if status == "ok"]
    committed += [t for t, (_, s, _) in enumerate(transactions) if s == "info" and any(w == t for _, _, _, w in reads)]
    committed.sort()
    so = {
        (a, b)
        for a in committed
        for b in committed
        if a < b and transactions[a][0] == transactions[b][0] and transactions[a][1] == "ok"
    }
    writes = {t: {mop[1] for mop in transactions[t][2] if mop[0] == "w"} for t in committed}
    wr = {(writer, reader) for reader, _, _, writer in reads if writer is not None}
    best = "none"
    for level in LEVELS[1:]:
        constraints = demanded(level, committed, reads, so, wr, writes)
        if not any(fulfils(order, constraints | so | wr) for order in permutations(committed)):
            return best
        best = level
    return best


def external_reads(transactions):
    """(reader, place, key, writer or None) of reads of others' writes; None if some read is wrong in itself."""
    final, every = {}, {}
    for t, (_, status, mops) in enumerate(transactions):
        for f, key, value in mops:
            if f == "w":
                every[key, value] = (t, status)
                final[t, key] = value
    found = []
    for t, (_, status, mops) in enumerate(transactions):
        own = {}
        for place, (f, key, value) in enumerate(mops):
            if f == "w":
                own[key] = value
            elif status == "ok":
                if key in own:
                    if own[key] != value:
                        return None
                elif value is None:
                    found.append((t, place, key, None))
                else:
                    writer, fate = every.get((key, value), (None, "fail"))
                    if fate == "fail" or writer == t or final[writer, key] != value:
                        return None
                    found.append((t, place, key, writer))
    return found


def demanded(level, committed, reads, so, wr, writes):
    """Pairs (t2, t1) that the level's axiom puts in this order; t1 None is the initial state, before everything."""
    reach = closure(so | wr, committed)
    pairs = set()
    for t3, place, key, t1 in reads:
        for t2 in committed:
            if t2 in (t1, t3) or key not in writes[t2]:
                continue
            if level == "read-committed":
                visible = any(r == t3 and w == t2 and p < place for r, p, _, w in reads)
            elif level == "read-atomic":
                visible = (t2, t3) in so | wr
            else:
                visible = (t2, t3) in reach
            if visible:
                pairs.add((t2, t1))
    return pairs


def closure(pairs, nodes):
    reach = set(pairs)
    for middle in nodes:
        for a in nodes:
            for b in nodes:
                if (a, middle) in reach and (middle, b) in reach:
                    reach.add((a, b))
    return reach


def fulfils(order, pairs):
    place = {t: i for i, t in enumerate(order)}
    return all(t1 is not None and t2 != t1 and place[t2] < place[t1] for t2, t1 in pairs)

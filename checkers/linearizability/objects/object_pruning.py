"""Which orders the search for objects need not try: what changes nothing for the verdict, and what can't end well.

Each rule leaves out only extensions of a configuration that some other one makes up for (it can do whatever they can)
or that no continuation completes; the argument stands with the rule. Events of the past are behind `event`, the
completion that the search works on; what the history says of later ones comes from `ObjectOps`. A rule for one kind of
object is handed that kind's columns, and is not there for other kinds, which have none.
"""

from __future__ import annotations

import numpy as np

from checkers.columns.codes import NEVER
from checkers.compiled import lean_inline
from checkers.linearizability.configurations import has_bit, lowest, unset_bit
from checkers.linearizability.objects.object_columns import ENQUEUE, FIFO, GET, IS_EMPTY, ITEM, MEMBERS, PUT, UNSEEN, R
from checkers.linearizability.objects.object_steps import hides, lacks, makes, needs
from checkers.linearizability.objects.word_store import symbol


@lean_inline
def is_free(sets, ops, row, window, event):
    """Whether adding an element, that nobody removes, costs nothing now: every read that is still to come shows it.

    Only reads that lack the element could tell, and all of these are linearized; so any order that continues from here
    stays right when the add is moved to this place.
    """
    if sets is None:
        return False
    element = ops.value[row]
    if sets.last_lacking[element] > event:
        return False
    for slot in range(window.top[0]):
        other = window.row[slot]
        owed = other >= 0 and ops.kind[other] == MEMBERS and has_bit(window.owed, 0, slot)
        if owed and lacks(sets, other, element):
            return False
    return True


@lean_inline
def _begins(strings, node, other):
    """Whether the string of a node begins that of another node of its object."""
    return strings.rank[node] <= strings.rank[other] <= strings.last[node]


@lean_inline
def is_awaited(strings, ops, target, node, window, owed, place):
    """Whether a string begins what the next get may return; `owed` has in row `place` what is owed. If it does not, it
    is as good as UNSEEN.

    Some get that is owed, or begins later, is the first to complete. So the next get to take effect does so before that
    completion, has begun by then, and is owed or begins later itself: there are few. A string that begins none of
    theirs has to be replaced by a put before that get, for appends leave its beginning; and until then puts and appends
    are possible whatever the string is, and nobody sees it. That goes for all strings that begin with this one too.
    """
    if strings is None:
        return True
    last = window.row[target]
    until = strings.next_get[last]
    if node == UNSEEN or until < ops.complete[last]:  # a plain search knows nothing of later gets
        return node != UNSEEN
    for word in range(owed.shape[1]):
        left = owed[place, word]
        while left != 0:
            row, left = window.row[64 * word + lowest(left)], left & (left - np.uint64(1))
            if ops.kind[row] == GET:
                if _begins(strings, node, ops.value[row]):
                    return True
                until = min(until, ops.complete[row])
    for get in range(strings.next_first[last], strings.next_last[last]):
        if strings.get_begin[get] < until and _begins(strings, node, strings.get_node[get]):
            return True
    return False


@lean_inline
def is_lost(strings, ops, target, state, window):
    """Whether a string that nobody ever sees is still to be seen before anything can replace it by what is.

    Only a put leads out of UNSEEN, for appending to what begins no read string gives no such string either. Say a get
    that is owed, or begins later, completes before the next put begins. Then the last put before the next get to take
    effect is open now and may still take effect, and its string, to which there are only appends, is awaited.
    """
    if strings is None:
        return False
    if state != UNSEEN:
        return False
    begun = strings.next_put[window.row[target]]
    seen = strings.next_get[window.row[target]] < begun
    for word in range(window.owed.shape[1]):
        left = window.owed[0, word]
        while left != 0:
            row, left = window.row[64 * word + lowest(left)], left & (left - np.uint64(1))
            seen |= ops.kind[row] == GET and ops.complete[row] < begun
    if not seen:
        return False
    for slot in range(window.top[0]):
        row = window.row[slot]
        if row < 0 or ops.kind[row] != PUT or not has_bit(window.available, 0, slot):
            continue
        if is_awaited(strings, ops, target, ops.value[row], window, window.owed, 0):
            return False
    return True


@lean_inline
def is_wasted(strings, state):
    """Whether an operation that leads to this state, and is not the target, can as well come later, or never: it leaves
    a string that nobody sees.

    In what follows some put comes before the next get, or there is none. An operation that need not be done is left
    out: up to that put nobody sees the string, and then it is the same. One that must is moved behind the target, which
    completes first; or, if the put is the target or comes before it, to right before the put, which hides it
    (`forgive`). So the same order begins with what the configuration is extended by otherwise.
    """
    if strings is None:
        return False
    return state == UNSEEN


@lean_inline
def blocked(configs, place, slot, window):
    """Whether an equal operation that completes earlier has to go first.

    In any order that uses the later one first the two can change places: they do the same, both are open now, and the
    one that completes first keeps to its time where the other did. That fails where the first need not be done any more
    and the other must: then the first may have been done, unseen, when the other had not begun.
    """
    owed = has_bit(configs.owed, place, slot)
    for word in range(window.owed.shape[1]):
        rivals = configs.available[place, word] & window.rivals[slot, word]
        if (rivals & configs.owed[place, word] if owed else rivals) != 0:
            return True
    return False


@lean_inline
def owes_empty(queues, ops, place, window, configs):
    """Whether a queue or bag is still to be seen empty by an open operation."""
    if queues is None:
        return False
    for slot in range(window.top[0]):
        row = window.row[slot]
        if row >= 0 and ops.kind[row] == IS_EMPTY and has_bit(configs.owed, place, slot):
            return True
    return False


@lean_inline
def is_premature(queues, ops, row, place, window, configs, event):
    """Whether something must be enqueued before this, because it is dequeued before this can be.

    Say e is to be enqueued, and a pending enqueue of f returns by dequeues that all complete (`out_by`) before any
    dequeue of e begins (`first_out`). Then f has to leave first, so it has to go in first: whatever puts e in front is
    stuck. The same with a look that finds nothing: e could not be out by then. `last_before` says this of enqueues and
    looks that have not begun. With elements that repeat `out_by` is when all known dequeues of f are over, if these are
    as many as its enqueues, and `first_out` when the first of e begins; so each f leaves by `out_by`, and no e before
    `first_out`. Dequeues of unknown outcome may take what is not claimed: they count in `first_out` of elements that
    known dequeues do not exhaust. An enqueue of unknown outcome counts among its element's, so an exhausted one took
    effect.
    """
    if queues is None:
        return False
    if ops.model != FIFO or ops.kind[row] != ENQUEUE:
        return False
    element = ops.value[row]
    if queues.last_before[element] > event:
        return True
    for slot in range(window.top[0]):
        other = window.row[slot]
        if other < 0:
            continue
        last = ops.complete[other] if ops.kind[other] == IS_EMPTY else queues.out_by[ops.value[other]]
        pending = ops.kind[other] == ENQUEUE and has_bit(configs.available, place, slot)
        pending |= ops.kind[other] == IS_EMPTY and has_bit(configs.owed, place, slot)
        if pending and last < queues.first_out[element]:
            return True
    return False


@lean_inline
def _is_kept(search, row, register, old, place, event):
    """Whether a register's value is still needed by others and nothing can bring it back.

    Something owed, or something definite that has yet to begin (`last_needed`), finds this value; no open operation
    that may still take effect leaves it, and none that begins later (`last_written`). So once replaced, what needs it
    is stuck.
    """
    ops, window, configs = search.ops, search.window, search.visited
    if old == 0 or ops.rows.last_written[old] > event:
        return False
    needed = ops.rows.last_needed[old] > event
    for slot in range(window.top[0]):
        other = window.row[slot]
        if other < 0 or other == row:
            continue
        if has_bit(configs.available, place, slot) and makes(ops.rows, other, register) == old:
            return False
        needed |= has_bit(configs.owed, place, slot) and needs(ops.rows, other, register) == old
    return needed


@lean_inline
def _is_too_early(search, row, register, new, place):
    """Whether another value, that only an open transaction writes, has to be there before this one is last needed.

    The other is first needed, or its transaction completes, before a definite operation that needs the new value
    begins; its transaction, still pending, would replace the new value, which nothing else writes (`first_needed` is
    NEVER where several do). So what needs the new value last is stuck.
    """
    ops, window, configs = search.ops, search.window, search.visited
    if ops.rows.first_needed[new] == NEVER:
        return False
    for slot in range(window.top[0]):
        other = window.row[slot]
        if other < 0 or other == row or not has_bit(configs.available, place, slot):
            continue
        made = makes(ops.rows, other, register)
        if made < 0 or made == new:
            continue
        last = ops.rows.first_needed[made]
        if has_bit(configs.owed, place, slot):
            last = min(last, ops.complete[other])
        if last < ops.rows.last_needed[new]:
            return True
    return False


@lean_inline
def is_fatal(rows, search, row, place, event):
    """Whether a transaction, put next in a configuration of `visited`, replaces what is still needed, or writes what
    will be replaced before it is."""
    if rows is None:
        return False
    for item in range(rows.first[row], rows.last[row], ITEM):
        register, new = rows.items[item], rows.items[item + 2]
        # Only what the transaction leaves there counts, not what it overwrites itself.
        if rows.items[item + 1] == R or makes(rows, row, register) != new:
            continue
        old = symbol(search.store, search.visited.state[place], register)
        if old != new and _is_kept(search, row, register, old, place, event):
            return True
        if _is_too_early(search, row, register, new, place):
            return True
    return False


@lean_inline
def forgive(ops, row, window):
    """What would have been unseen just before this operation need not be done any more; it may still be. Returns
    whether there was any.

    An open operation that `row` hides changes no answer when it takes effect right before it. Whether it did so there
    or takes effect later is left open: it is owed no more but available until it completes, which stands for both.
    """
    forgiven = False
    for slot in range(window.top[0]):
        other = window.row[slot]
        if other >= 0 and other != row and has_bit(window.owed, 0, slot) and hides(ops, row, other):
            unset_bit(window.owed, 0, slot)
            forgiven = True
    return forgiven

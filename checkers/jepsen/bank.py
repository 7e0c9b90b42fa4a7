"""The model `bank`: transfers move money, so every read of all accounts shows the same total (`jepsen.tests.bank`).

A read is a map of accounts to balances. The total is a setting, else what most reads show (the first of these on a
tie); accounts are checked if they are a setting; negative balances are anomalies unless allowed. As in Jepsen a read
counts once, under the first that applies of unexpected-key, nil-balance, wrong-total, negative-value; where accounts
are set, a read that lacks one of them is a missing-account. A read that shows
no account has the total 0, but does not say what the total is. Where reads are on independent keys, each key is a bank
of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from checkers.columns.batches import COLUMNS, ClientMops, Operations, read_mops, read_operations
from checkers.columns.codes import OK, Ints, unsupported
from checkers.engines.api import Engine
from checkers.engines.flows import BatchFlow, run_batches
from checkers.explain.conclude import conclude, who
from checkers.explain.speaker import Speaker, listed
from checkers.findings import NO_KEY, Finding, Findings, earliest, merged
from checkers.jepsen.cells import exact, is_foreign, json_able, large_integers, summable
from checkers.options import CheckOptions, bool_setting, int_setting, names_setting
from checkers.source import Source
from checkers.verdict import Verdict
from harness.history.columns import FOREIGN_BASE

CLASSES: Final = ("unexpected-key", "nil-balance", "wrong-total", "negative-value", "missing-account")

_FS: Final = ("read", "r")
_MOST_TOTALS: Final = 256
"""Totals of a bank of which the reads are counted, those that most show. That hides nothing: where all reads show one
total there is only one, and where they don't, those that show another than the chosen one are told."""


Totals: TypeAlias = dict[int, tuple[int, int]]
"""How many reads show a total, and the first that does."""


@dataclass(frozen=True, slots=True)
class _BankReads:
    """The successful reads of a batch: the `bank` and `total` of each (64-bit or object), its mops, which read each of
    these belongs to and its account."""

    operations: Operations
    which: Ints
    bank: Ints
    total: Any
    mops: ClientMops
    of: Ints
    account: Ints
    balance: Any
    problems: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads batches: `large` integers by their ids, how many foreign values there are, whether there are many banks."""

    large: Mapping[int, int]
    dictionary_size: int
    independent: bool

    def __call__(self, batch: pa.RecordBatch) -> _BankReads:
        return _reads(batch, self.large, self.dictionary_size, self.independent)


def _reads(batch: pa.RecordBatch, large: Mapping[int, int], dictionary_size: int, independent: bool) -> _BankReads:
    operations = read_operations(batch)
    chosen = operations.named(_FS) & (operations.outcome == OK)
    mops = read_mops(batch, operations, chosen, {"r": 0, "read": 0})
    which = np.flatnonzero(chosen)
    of = np.searchsorted(which, mops.of)
    balance = summable(exact(mops.value, large))
    unknown = (mops.kind != 0) | mops.listed
    unknown |= is_foreign(mops.value, dictionary_size) & ~np.isin(mops.value, list(large) or [0])
    unfit = operations.unfit[which]
    if independent:  # The key of a read stands in its accounts: of one that has none nobody knows the bank.
        unfit = unfit | (np.bincount(of, minlength=len(which)) == 0)
    wrong = np.concatenate((operations.invoke[mops.of[unknown]], operations.invoke[which[unfit]]))
    problems = unsupported(wrong, "this read is no map of accounts to integers")
    total = np.zeros(len(which), balance.dtype)
    if not problems:
        np.add.at(total, of, balance)
    bank = np.zeros(len(which), np.int64)
    if independent:
        bank[of] = mops.address[1]
    account = mops.address[2 if independent else 1]
    return _BankReads(operations, which, bank, total, mops, of, account, balance, problems)


@dataclass(frozen=True, slots=True)
class TotalsKernel:
    """Which totals a batch shows of each bank, how often, and which read showed each first."""

    read: _Reader

    def __call__(self, batch: pa.RecordBatch) -> dict[int, Totals]:
        reads = self.read(batch)
        invoke = reads.operations.invoke[reads.which]
        showing = np.unique(reads.of)
        order = showing[np.argsort(reads.bank[showing], kind="stable")]
        cuts = np.flatnonzero(np.diff(reads.bank[order])) + 1
        mine = np.split(order, cuts) if len(order) else []
        return {int(reads.bank[rows[0]]): _totals(reads.total[rows], invoke[rows]) for rows in mine}


def _totals(total: Any, invoke: Ints) -> Totals:
    totals, first, counts = np.unique(total, return_index=True, return_counts=True)
    order = np.lexsort((first, -counts))[:_MOST_TOTALS].tolist()
    return {int(totals[i]): (int(counts[i]), int(invoke[first[i]])) for i in order}


@dataclass(frozen=True, slots=True)
class BankKernel:
    """Judges the reads of a batch against the known total of each bank, or of all (`total`)."""

    read: _Reader
    total: int | None
    totals: Mapping[int, int]
    accounts: Mapping[int, str] | None
    negative_allowed: bool
    explain: int

    def __call__(self, batch: pa.RecordBatch) -> Findings:
        reads = self.read(batch)
        if reads.problems:
            return Findings(unsupported=reads.problems)
        blame = self._blame(reads)
        counts = {name: int((blame == code).sum()) for code, name in enumerate(CLASSES)}
        shown = [np.flatnonzero(blame == code)[: self.explain] for code in range(len(CLASSES))]
        kept = [self._finding(reads, name, int(i)) for name, rows in zip(CLASSES, shown, strict=True) for i in rows]
        others = ~reads.operations.named((*_FS, "transfer"))
        figures = {"reads": len(reads.which), "errors": sum(counts.values()), "others": int(others.sum())}
        figures["empty_reads"] = len(reads.which) - len(np.unique(reads.of))
        lowest = {"total": int(min(reads.total))} if len(reads.total) else {}
        highest = {"total": int(max(reads.total))} if len(reads.total) else {}
        return Findings(
            len(reads.operations.row),
            counts=counts,
            kept=earliest(kept, self.explain),
            figures=figures,
            lowest=lowest,
            highest=highest,
        )

    def _blame(self, reads: _BankReads) -> Any:
        """The class of what is wrong with each read, or the number of classes."""
        count = len(reads.which)
        blame = np.full(count, len(CLASSES))
        if self.accounts is not None:
            blame[self._named(reads) < len(set(self.accounts.values()))] = 4
        if not self.negative_allowed:
            blame[_any(reads.of, (reads.balance < 0).astype(np.bool_), count)] = 3
        blame[(reads.total != self._expected(reads)).astype(np.bool_)] = 2
        blame[_any(reads.of, reads.mops.nil, count)] = 1
        if self.accounts is not None:
            unknown = ~np.isin(reads.account, list(self.accounts))
            blame[_any(reads.of, unknown, count)] = 0
        return blame

    def _named(self, reads: _BankReads) -> Ints:
        """How many of the accounts that are set each read shows."""
        accounts: Mapping[int, str] = self.accounts or {}
        names = {name: number for number, name in enumerate(sorted(set(accounts.values())))}
        ids = np.array(sorted(accounts), np.int64)
        number = np.array([names[accounts[id]] for id in ids.tolist()], np.int64)
        known = np.isin(reads.account, ids)
        place = np.searchsorted(ids, reads.account[known])
        shown = np.unique(reads.of[known] * len(names) + number[place]) // max(1, len(names))
        return np.bincount(shown, minlength=len(reads.which))

    def _expected(self, reads: _BankReads) -> Any:
        """The total that each read should show."""
        if self.total is not None:
            return self.total
        banks, which = np.unique(reads.bank, return_inverse=True)
        expected = [self.totals.get(bank, 0) for bank in banks.tolist()]
        return np.array(expected, np.int64 if all(map(_is_plain, expected)) else object)[which]

    def _finding(self, reads: _BankReads, name: str, read: int) -> Finding:
        mine = np.flatnonzero(reads.of == read)
        bad = {
            "unexpected-key": ~np.isin(reads.account[mine], list(self.accounts or ())),
            "nil-balance": reads.mops.nil[mine],
            "wrong-total": np.zeros(len(mine), np.bool_),
            "negative-value": (reads.balance[mine] < 0).astype(np.bool_),
            "missing-account": np.zeros(len(mine), np.bool_),
        }[name]
        balances = [
            (int(reads.account[i]), None if reads.mops.nil[i] else json_able(int(reads.balance[i])))
            for i in mine[bad][:8]
        ]
        expected = int(self._expected(reads)[read]) if self.total is None else self.total
        facts: dict[str, Any] = {
            "total": json_able(int(reads.total[read])),
            "expected": json_able(expected),
            "accounts": balances,
        }
        facts["more"] = int(bad.sum()) - len(balances)
        if name == "missing-account":
            names: Mapping[int, str] = self.accounts or {}
            shown = {names[account] for account in reads.account[mine].tolist() if account in names}
            facts["missing"] = sorted(set(names.values()) - shown)
        index = int(reads.operations.invoke[reads.which[read]])
        return Finding(name, index, NO_KEY, (index,), facts)


def _is_plain(total: int) -> bool:
    return -(2**63) <= total < 2**63


def _any(of: Ints, flags: Any, count: int) -> Any:
    found = np.zeros(count, np.bool_)
    found[of[flags]] = True
    return found


def _account_ids(source: Source, names: tuple[str, ...]) -> dict[int, str] | None:
    """The names of accounts by the ids that the history may have for them: some for each."""
    if not names:
        return None
    shown = {text: FOREIGN_BASE - 1 - place for place, text in enumerate(source.dictionary)}
    nowhere = len(source.dictionary)
    ids: dict[int, str] = {}
    for place, name in enumerate(names):
        if name.removeprefix("-").isdecimal():
            ids[int(name)] = name
        ids.setdefault(shown.get(name, FOREIGN_BASE - 1 - nowhere - place), name)
    return ids


def _together(tallies: list[dict[int, Totals]]) -> dict[int, Totals]:
    """Several tallies as one."""
    every: dict[int, Totals] = {}
    for tally in tallies:
        for bank, totals in tally.items():
            mine = every.setdefault(bank, {})
            for total, (count, index) in totals.items():
                before, first = mine.get(total, (0, index))
                mine[total] = before + count, min(first, index)
    return {bank: _most_shown(totals) for bank, totals in every.items()}


def _most_shown(totals: Totals) -> Totals:
    kept = sorted(totals, key=lambda total: (-totals[total][0], totals[total][1]))[:_MOST_TOTALS]
    return {total: totals[total] for total in kept}


def _chosen_totals(totals: dict[int, Totals]) -> dict[int, tuple[int, int]]:
    """The total that most reads of each bank show (the first on a tie), and how many do."""
    return {bank: _chosen_total(totals[bank]) for bank in sorted(totals)}


def _chosen_total(totals: Totals) -> tuple[int, int]:
    total = min(totals, key=lambda candidate: (-totals[candidate][0], totals[candidate][1]))
    return total, totals[total][0]


def judge_bank(source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    """Every successful read shows the same total, no unset balance, and none below zero unless allowed."""
    read = _Reader(large_integers(source), len(source.dictionary), source.independent)
    total = int_setting(options, "total")
    tallies: dict[int, Totals] = {}
    if total is None:
        tallies = run_batches(engine, source, BatchFlow(COLUMNS, TotalsKernel(read), _together))
    totals = _chosen_totals(tallies)
    details: dict[str, Any] = {"total_from": "setting"}
    if total is None:
        details = {"total_from": "majority", "reads_with_total": sum(count for _, count in totals.values())}
    accounts = _account_ids(source, names_setting(options, "accounts"))
    negative = bool_setting(options, "negative-balances")
    known = {bank: chosen for bank, (chosen, _) in totals.items()}
    kernel = BankKernel(read, total, known, accounts, negative, options.explain)
    part = run_batches(engine, source, BatchFlow(COLUMNS, kernel, partial(merged, explain=options.explain)))
    shown = {total} if total is not None else set(known.values())
    details["total"] = json_able(shown.pop()) if len(shown) == 1 else None
    if part.lowest:
        details |= {"lowest_total": json_able(part.lowest["total"]), "highest_total": json_able(part.highest["total"])}
    twice = total is not None or any(sum(count for count, _ in mine.values()) > 1 for mine in tallies.values())
    return conclude("bank", source, engine, part, _SENTENCES, _doubts(part, twice), details)


def _doubts(part: Findings, compared: bool) -> tuple[str, ...]:
    """Why reads of which none is wrong tell nothing of the total; `compared` says whether a read could be wrong."""
    if part.figures.get("reads", 0) == part.figures.get("empty_reads", 0):
        return ("No read of accounts succeeded, so nothing was checked.",)
    if not compared:
        return ("No bank was read twice, and no total is set that a read could be compared with.",)
    return ()


def _accounts(speaker: Speaker, finding: Finding) -> str:
    names = [
        f"{speaker.source.shown(account)} with {'nil' if balance is None else balance}"
        for account, balance in finding.facts["accounts"]
    ]
    return listed(names, finding.facts["more"])


def _wrong_total(speaker: Speaker, finding: Finding) -> str:
    facts = finding.facts
    first = who(speaker, finding.ops[0], f"read balances that sum to {facts['total']}, not to {facts['expected']},")
    return f"{first}: transfers only move money, so every snapshot of all accounts has the same total."


def _negative(speaker: Speaker, finding: Finding) -> str:
    first = who(speaker, finding.ops[0], f"read a balance below zero (account {_accounts(speaker, finding)})")
    return f"{first}: no transfer may take more than an account holds."


def _nil(speaker: Speaker, finding: Finding) -> str:
    first = who(speaker, finding.ops[0], f"read an account without a balance ({_accounts(speaker, finding)})")
    return f"{first}: every account was given a balance at the start."


def _unexpected(speaker: Speaker, finding: Finding) -> str:
    first = who(speaker, finding.ops[0], f"read an account that does not exist ({_accounts(speaker, finding)})")
    return f"{first}: it is none of the accounts that the bank was set up with."


def _missing(speaker: Speaker, finding: Finding) -> str:
    accounts = finding.facts["missing"]
    names = listed(accounts[:8], len(accounts[8:]))
    first = who(speaker, finding.ops[0], f"read the accounts without {names}")
    return f"{first}: every read is of all the accounts that the bank was set up with."


_SENTENCES: Final = {
    "missing-account": _missing,
    "unexpected-key": _unexpected,
    "nil-balance": _nil,
    "wrong-total": _wrong_total,
    "negative-value": _negative,
}

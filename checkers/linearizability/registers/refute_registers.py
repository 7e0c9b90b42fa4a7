"""The models `register` and `cas-register`: linearizability of integer cells (which begin unset, or `-o initial`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from checkers.columns.codes import (
    CAS,
    FAILED_CAS,
    FAILED_WRITE,
    READ,
    UNSUPPORTED,
    WRITE,
    Ints,
    RegisterColumns,
    history_value,
    unsupported,
)
from checkers.columns.instances import make_instances
from checkers.columns.projection import KeyedOps, Projection
from checkers.engines.api import Engine
from checkers.explain.speaker import Narrow, about_key
from checkers.findings import Finding, Findings, Key, merged, refuse_unsupported
from checkers.linearizability.driver import INVALID, UNDECIDED, Budget, SearchAnswers
from checkers.linearizability.registers.prepared_registers import prepare
from checkers.linearizability.registers.register_search import explain_stuck, search_prepared
from checkers.linearizability.registers.register_sentences import explain_all
from checkers.linearizability.registers.register_zones import NO_REGISTER, ZONE_ANOMALIES, judge_zones, zone_findings
from checkers.linearizability.registers.split_registers import RegisterSplit
from checkers.linearizability.registers.stale_reads import judge_stale
from checkers.options import CheckOptions, initial_setting
from checkers.source import Source
from checkers.verdict import Anomaly, Validity, Verdict

NONLINEARIZABLE: Final = "nonlinearizable"

_SHOWN: Final = 16
"""Open operations and possible values that are reported of a stuck search at most."""


def projection(failed_cas_observed: bool, initial: int | None = None) -> Projection:
    """What a register history is made of; failed compare-and-sets are reads of another value if so asked."""
    return Projection(
        kinds={"r": READ, "w": WRITE, "cas": CAS},
        only_ok=frozenset({"r"}),
        failed={"w": FAILED_WRITE, "cas": FAILED_WRITE},
        mismatched={"cas": FAILED_CAS} if failed_cas_observed else {},
        initial=initial,
    )


@dataclass(frozen=True, slots=True)
class RegisterKernel:
    """Judges many keys at once: by zones, and where these do not apply by stale reads and, if asked, by search.

    `initial` is what the projection lets registers begin as."""

    explain: int
    budget: Budget
    search: bool = True
    initial: int | None = None

    def __call__(self, keyed: KeyedOps) -> Findings:
        """Findings over all the keys; nothing is judged if there are operations that the model does not know."""
        columns = keyed.columns
        unknown = columns.invoke[columns.kind == UNSUPPORTED]
        if len(unknown):
            return Findings(ops=len(columns.kind), unsupported=unsupported(unknown, NO_REGISTER))
        out = make_instances(len(ZONE_ANOMALIES), self.explain)
        answers = judge_zones(columns, out)
        judged = Findings(len(columns.kind), len(answers))
        zones = merged((judged, zone_findings(keyed, out)), self.explain)
        left = np.flatnonzero(answers == UNDECIDED)
        return self._with_searched(zones, _part(keyed, left)) if len(left) else zones

    def split(self, addresses: tuple[Key, ...], width: int) -> RegisterSplit:
        """How keys are judged that one task does not take, in ranges of `width` events."""
        return RegisterSplit(addresses, width, self.explain)

    def _with_searched(self, zones: Findings, keyed: KeyedOps) -> Findings:
        """The findings of zones, and those over the keys that zones do not decide: first by their stale reads."""
        prepared, searched = prepare(keyed.columns), len(keyed.addresses)
        out = make_instances(len(ZONE_ANOMALIES), self.explain)
        refuted = judge_stale(prepared, out)
        stale = zone_findings(keyed, out)
        if not self.search:
            return merged((zones, stale, Findings(undecided=int((~refuted).sum()))), self.explain)
        if refuted.any():
            keyed = _part(keyed, np.flatnonzero(~refuted))
            prepared = prepare(keyed.columns)
        found = search_prepared(prepared, self.budget)
        wrong = int((found.answers == INVALID).sum())
        undecided = int((found.answers == UNDECIDED).sum())
        kept = self._stuck_findings(keyed.addresses, keyed.columns, found)
        reasons = (found.why,) if found.why and undecided else ()
        counts = {NONLINEARIZABLE: wrong} if wrong else {}
        stuck = Findings(counts=counts, kept=kept, undecided=undecided, reasons=reasons, searched=searched)
        return merged((zones, stale, stuck), self.explain)

    def _stuck_findings(self, addresses: Ints, columns: RegisterColumns, found: SearchAnswers) -> tuple[Finding, ...]:
        refuted = np.flatnonzero(found.answers == INVALID)
        order = columns.invoke[found.stuck[refuted]] if len(refuted) else refuted
        first = refuted[np.argsort(order)[: self.explain]]
        return tuple(self._stuck_finding(addresses, columns, int(key), int(found.stuck[key])) for key in first)

    def _stuck_finding(self, addresses: Ints, columns: RegisterColumns, key: int, row: int) -> Finding:
        one = columns.select(np.array([key]))
        begin = int(columns.offsets[key])
        stuck = explain_stuck(one, self.budget)
        ops: tuple[int, ...] = (int(columns.invoke[row]),)
        facts: dict[str, Any] = {}
        if stuck is not None:
            ops += tuple(int(one.invoke[r]) for r in stuck.open_rows[:_SHOWN])
            values = [history_value(value, self.initial) for value in stuck.values]
            facts = {
                "values": values[:_SHOWN],
                "value_count": len(values),
                "open_count": len(stuck.open_rows),
                "configurations": stuck.configurations,
                "placed": int((one.complete < columns.complete[begin + stuck.row]).sum()),
            }
        return Finding(NONLINEARIZABLE, ops[0], Key.of(addresses[key]), ops, facts)


def _part(keyed: KeyedOps, keys: Ints) -> KeyedOps:
    return KeyedOps(keyed.addresses[keys], keyed.columns.select(keys))


def judge_register(model: str, source: Source, engine: Engine, options: CheckOptions) -> Verdict:
    """Linearizability of every key, by zones where values are unique, else by search (`docs/checking.md`)."""
    wanted, kernel = as_asked(source, options)
    found = engine.judge_keys(source, wanted, kernel, options.explain)
    return concluded(model, replace(source, initial=kernel.initial), engine, found)


def as_asked(source: Source, options: CheckOptions) -> tuple[Projection, RegisterKernel]:
    """What the user asks for: what registers are made of, and how they are judged."""
    observed = (options.failed_cas or source.failed_cas) == "observed"
    initial = initial_setting(options)
    budget = Budget(options.time_limit_s, options.memory_mib << 20)
    return projection(observed, initial), RegisterKernel(options.explain, budget, initial=initial)


def concluded(model: str, source: Source, engine: Engine, found: Findings, narrowed: Narrow = about_key) -> Verdict:
    """The verdict of a model whose objects are registers."""
    refuse_unsupported(found, source.path, model)
    return decided_verdict(model, engine, found, explain_all(source, found.kept, narrowed), "keys")


def decided_verdict(
    model: str, engine: Engine, found: Findings, explained: dict[str, tuple[Anomaly, ...]], what: str
) -> Verdict:
    """The verdict of a model that searches where it must; `what` it judges, in the plural, may be left undecided."""
    valid: Validity = not found.counts if found.counts or not found.undecided else "unknown"
    reason = None
    if valid == "unknown":
        reason = f"{found.undecided} of {found.keys} {what} could not be decided: {'; '.join(found.reasons)}."
    details = {what: found.keys, f"{what}_searched": found.searched, f"{what}_undecided": found.undecided}
    return Verdict(valid, model, explained, found.counts, found.ops, engine=engine.name, reason=reason, details=details)

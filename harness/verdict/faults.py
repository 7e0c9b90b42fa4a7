"""The faults of a run, read from its nemesis operations: requested, observed, healed, recovered (`runs.md`).

Convention for a nemesis operation's `value`: `{"fault": KIND, "instance": N, "variant": …, "step": "begin" | "step" |
"end"}` (an `end` with a null instance ends the one in effect, if any: its completion has the number). A completion adds
`targets`, `observed` (whether the effect, or at the end the recovery, was seen from inside the nodes), `observed_ns`
((ns since the run's start) and `evidence`; that of an `end` the `spans` in which probes saw the fault, and `blame`
(`harness` or `database`) if it was not seen to be gone. `roles` are those for which nodes were hit (`node`, `role`,
`group`, `term`, and whether it was `held` then). `late` is a list of ends that were not seen while other faults were in
effect, and are told now: `fault`, `instance`, `observed`, `observed_ns`, `evidence` and maybe `blame`. `idle` is true
where nobody was as the variant asks, so that nothing was done: such an instance is *skipped*, neither observed nor
healed nor recovered, and of it no time in effect is asked.
Operations with other values are not faults.

A script of faults says with every step whether it is its `core`: the state that it waits for was reached, and what it
did there was seen in effect. Only that makes the instance observed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, TypeGuard

import msgspec

from harness.history.ops import Op
from harness.ports.api import node_of

NO_VICTIM = "it found no victim"
"""Why a fault was skipped of which no better reason is told."""

FOREVER_NS = 2**63 - 1
"""Until when a fault lasts that never ended."""


class RoleHit(msgspec.Struct, frozen=True):
    """A node that was hit for its role in a group and term, and whether it was seen to have it at that moment."""

    node: str
    role: str
    group: str
    term: int
    held: bool


class Fault(msgspec.Struct, frozen=True):
    """One instance of a fault; times in ns since the run's start, None for what never happened (or was not seen).

    `begun_ns` is when it was done, as far as we could tell ourselves; None where nobody could be hit. `spans` are
    those in which probes, which went on for as long as it was to last, saw it in effect; None where nobody probed on.
    `blame` says whose failure it is that it was not seen to be gone (`harness` or `database`), and `left` is the
    evidence of that. `ended` is the evidence of an end that was seen, which tells what happened meanwhile as well.
    `cores` says how often a script reached its core; None for a fault that is no script. `roles` are those for which
    nodes were hit, with whether they were held. `skipped` says why nobody was hit, of an instance that found no victim.
    """

    kind: str
    instance: int
    variant: str | None
    targets: tuple[str, ...]
    requested_ns: int
    observed_ns: int | None = None
    healed_ns: int | None = None
    recovered_ns: int | None = None
    evidence: Any = None
    cores: int | None = None
    begun_ns: int | None = None
    spans: tuple[tuple[int, int], ...] | None = None
    blame: str | None = None
    left: Any = None
    ended: Any = None
    roles: tuple[RoleHit, ...] = ()
    skipped: str | None = None

    @property
    def asked_s(self) -> float:
        """Seconds for which it was to be in effect; 0 for one that was never ended, or is a script."""
        if self.begun_ns is None or self.healed_ns is None or self.cores is not None:
            return 0.0
        return max(self.healed_ns - self.begun_ns, 0) / 1e9

    @property
    def effect_s(self) -> float:
        """Seconds for which it was seen in effect, of those asked; endless for a script that reached its core (which
        is a moment), and for a fault that was seen and never ended."""
        if self.observed_ns is None:
            return 0.0
        if self.cores is not None or self.healed_ns is None:
            return float("inf")
        return sum(last - first for first, last in self.seen(self.healed_ns)) / 1e9

    def seen(self, end_ns: int) -> tuple[tuple[int, int], ...]:
        """The spans in which it was seen in effect, up to its end (or `end_ns`): a script's, once, is all its time."""
        if self.observed_ns is None:
            return ()
        until_ns = end_ns if self.healed_ns is None else self.healed_ns
        spans = ((self.observed_ns, until_ns),) if self.spans is None else self.spans
        return tuple((first, min(last, until_ns)) for first, last in spans if first <= until_ns)


class FaultLog(msgspec.Struct, frozen=True):
    """The faults that the events so far have told of (a value: each event makes the next); client events are skipped.

    `found` has them by kind and instance, in the order in which they were requested, `over` those whose end is told,
    `invoked_ns` when each nemesis process last began something.
    """

    found: Mapping[tuple[str, int], Fault] = {}
    over: frozenset[tuple[str, int]] = frozenset()
    invoked_ns: Mapping[int, int] = {}

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Every instance of a fault."""
        return tuple(self.found.values())

    @property
    def known(self) -> tuple[Fault, ...]:
        """Instances of which it is known what came of them: what lasts has ended, a script has told of its core."""
        return tuple(fault for key, fault in self.found.items() if key in self.over or fault.cores is not None)

    def after(self, event: Op) -> FaultLog:
        """What is known when this event has come."""
        value = event.value
        if event.process >= 0 or not isinstance(value, dict) or "fault" not in value:
            return self
        found, began_ns = dict(self.found), self.invoked_ns.get(event.process, event.time)
        key = (str(value["fault"]), value.get("instance"))
        if event.type == "invoke":
            if _numbered(key):
                found[key] = _requested(found.get(key), event)
            return FaultLog(found, self.over, {**self.invoked_ns, event.process: event.time})
        for told in value.get("late") or ():
            if (late := (str(told["fault"]), int(told["instance"]))) in found:
                found[late] = _seen_late(found[late], told, began_ns, event.time)
        if not _numbered(key) or key not in found:
            return FaultLog(found, self.over, self.invoked_ns)
        found[key] = _completed(found[key], event, began_ns)
        over = self.over | {key} if value.get("step") == "end" else self.over
        return FaultLog(found, over, self.invoked_ns)


DOWN = {"kill": "dead", "stop": "dead", "pause": "paused"}
"""Kinds by which a node's processes are down for as long as the fault is seen, and what they are called then."""

RESTARTING = frozenset({"crash-loop", "rolling-restart"})
"""Kinds that hold nodes, which live from time to time."""


def served_while_down(faults: Sequence[Fault], events: Iterable[Op]) -> tuple[str, ...]:
    """A sentence for each node that answered clients, by their word, while its processes were called dead or paused:
    an operation was begun and ended while they were."""
    if any(fault.kind in RESTARTING for fault in faults):
        return ()
    spans = [
        (node, DOWN[fault.kind], first, last)
        for fault in faults
        if fault.kind in DOWN
        for first, last in fault.spans or ()
        for node in fault.targets
    ]
    begun: dict[int, int] = {}
    found: dict[tuple[str, str], int] = {}
    for event in events if spans else ():
        if event.type == "invoke":
            begun[event.process] = event.time
        elif event.type == "ok" and event.node is not None:
            for node, word, first, last in spans:
                if node == node_of(event.node) and first <= begun.get(event.process, -1) and event.time <= last:
                    found[node, word] = found.get((node, word), 0) + 1
    return tuple(
        f"{node} was called {word} while it answered {times} operation{'s' * (times > 1)} of clients"
        for (node, word), times in found.items()
    )


def faults_of(events: Iterable[Op]) -> tuple[Fault, ...]:
    """Every fault instance of a history, in the order in which they were requested; client events are skipped."""
    return reduce(FaultLog.after, events, FaultLog()).faults


def kinds_of(event: Op) -> frozenset[str]:
    """The kinds of whose faults a nemesis event tells something: its own, and those that were seen late."""
    value = event.value
    return frozenset(str(told["fault"]) for told in (value, *(value.get("late") or ())) if "fault" in told)


def _numbered(key: tuple[str, object]) -> TypeGuard[tuple[str, int]]:
    return isinstance(key[1], int)


def missed(faults: Sequence[Fault]) -> tuple[Fault, ...]:
    """The instances that were never observed in effect."""
    return tuple(fault for fault in faults if fault.observed_ns is None)


def unobserved_kinds(requested: Iterable[str], faults: Sequence[Fault]) -> tuple[str, ...]:
    """The requested kinds of which no instance was observed in effect."""
    observed = {fault.kind for fault in faults if fault.observed_ns is not None}
    return tuple(kind for kind in requested if kind not in observed)


def in_effect_s(kind: str, faults: Sequence[Fault]) -> float:
    """Seconds for which instances of a kind were seen in effect, together."""
    return sum(fault.effect_s for fault in faults if fault.kind == kind)


def asked_s(kind: str, faults: Sequence[Fault]) -> float:
    """Seconds for which instances of a kind were to be in effect, together."""
    return sum(fault.asked_s for fault in faults if fault.kind == kind)


def roles_hit(kind: str, faults: Sequence[Fault]) -> tuple[int, int]:
    """Of the observed instances of a kind that were aimed at roles: how many there were, and how many hit nodes that
    held them."""
    aimed = [fault for fault in faults if fault.kind == kind and fault.observed_ns is not None and fault.roles]
    return len(aimed), sum(all(role.held for role in fault.roles) for fault in aimed)


def why_unobserved(kind: str, faults: Sequence[Fault]) -> str:
    """A sentence on a kind of which no instance was observed."""
    sentence = f"the fault {kind} was never observed in effect"
    begun = [fault for fault in faults if fault.kind == kind]
    if count := len(why := skips(begun)):
        return f"{sentence}: {count} of {len(begun)} skipped ({'; '.join(dict.fromkeys(why))})"
    if not begun or all(fault.cores is None for fault in begun):
        return sentence
    times = "once" if len(begun) == 1 else f"{len(begun)} times"
    return f"{sentence}: it began {times}, its core was never reached"


def skips(faults: Sequence[Fault]) -> tuple[str, ...]:
    """Of each instance that found no victim, why."""
    return tuple(fault.skipped for fault in faults if fault.skipped is not None)


def _requested(known: Fault | None, event: Op) -> Fault:
    value = event.value
    if known is None:
        known = Fault(str(value["fault"]), int(value["instance"]), value.get("variant"), _targets(value), event.time)
    if value.get("step") == "end" and known.healed_ns is None and known.skipped is None:
        return msgspec.structs.replace(known, healed_ns=event.time)
    return known


def _completed(fault: Fault, event: Op, invoked_ns: int) -> Fault:
    value = event.value
    seen_ns = _seen_ns(value, invoked_ns, event.time)
    if value.get("step") == "end":
        if fault.skipped is not None:
            left = None if seen_ns is not None else value.get("evidence")
            return msgspec.structs.replace(fault, blame=None if seen_ns is not None else value.get("blame"), left=left)
        healed_ns = invoked_ns if fault.healed_ns is None else fault.healed_ns
        spans = _spans(value)
        told: dict[str, Any] = {"spans": spans}
        if fault.observed_ns is None and fault.cores is None and spans:
            told["observed_ns"] = spans[0][0]  # it came later than its beginning was waited for
        if seen_ns is None:
            told |= {"blame": value.get("blame"), "left": value.get("evidence")}
        else:
            told["ended"] = value.get("evidence") or None
        return msgspec.structs.replace(fault, healed_ns=healed_ns, recovered_ns=seen_ns, **told)
    cores = fault.cores
    if isinstance(core := value.get("core"), bool):
        seen_ns = seen_ns if core else None
        cores = (cores or 0) + (seen_ns is not None)
    first_ns = seen_ns if fault.observed_ns is None else fault.observed_ns
    targets = tuple(dict.fromkeys((*fault.targets, *_targets(value))))
    evidence = value.get("evidence") or fault.evidence
    variant = fault.variant if fault.variant is not None else value.get("variant")
    begun_ns = fault.begun_ns
    if begun_ns is None and value.get("idle") is not True:
        begun_ns = event.time if first_ns is None else first_ns
    told = {"targets": targets, "evidence": evidence, "variant": variant, "roles": (*fault.roles, *_roles(value))}
    if value.get("idle") is True and first_ns is None:
        told["skipped"] = str((value.get("evidence") or {}).get("reason", NO_VICTIM))
    return msgspec.structs.replace(fault, begun_ns=begun_ns, observed_ns=first_ns, cores=cores, **told)


def _seen_late(fault: Fault, told: dict[str, Any], invoked_ns: int, completed_ns: int) -> Fault:
    seen_ns = _seen_ns(told, invoked_ns, completed_ns)
    if seen_ns is None:
        return msgspec.structs.replace(fault, blame=told.get("blame"), left=told.get("evidence"))
    if fault.skipped is not None:
        seen_ns = None
    return msgspec.structs.replace(fault, recovered_ns=seen_ns, blame=None, left=None, ended=told.get("evidence"))


def _seen_ns(value: dict[str, Any], invoked_ns: int, completed_ns: int) -> int | None:
    """When it was observed: as told, if that lies within the operation, else at the operation's end."""
    if value.get("observed") is not True:
        return None
    told_ns = value.get("observed_ns")
    return told_ns if isinstance(told_ns, int) and invoked_ns <= told_ns <= completed_ns else completed_ns


def _spans(value: dict[str, Any]) -> tuple[tuple[int, int], ...] | None:
    told = value.get("spans")
    return None if told is None else tuple((int(first), int(last)) for first, last in told)


def _roles(value: dict[str, Any]) -> tuple[RoleHit, ...]:
    return msgspec.convert(value.get("roles") or (), tuple[RoleHit, ...])


def _targets(value: dict[str, Any]) -> tuple[str, ...]:
    targets = value.get("targets")
    return tuple(str(target) for target in targets) if isinstance(targets, list | tuple) else ()

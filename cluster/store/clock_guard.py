"""Whether a node's wall clock may be trusted (G3): a pure state machine over what its own clocks and its peers show.

The node's *lead* is its wall clock minus its monotonic clock; it stays the same while the wall clock is left alone.

    unproven --- the offset to a quorum of peers is measured within bounds ---> trusted
    trusted  --- the lead jumps by more than half the maximum offset ---------> jumped
    trusted  --- no quorum is known within bounds any more -------------------> unproven
    jumped   --- the lead is back where it was -------------------------------> trusted, or unproven
    jumped   --- measurements made after the jump prove the new time ---------> trusted

Unproven and jumped are fenced. A clock that is set for good is accepted once a quorum of peers agrees with it; one
that peers contradict stays fenced for good. The quorum is of the peers and the node itself. A tablet server's are the
nodes that share Raft groups with it: where their quorum is missing, those groups have none either. Without peers there
is nobody to be proven to, and jumps alone fence.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from cluster.knobs import Knobs

_RECHECK_NS = 250_000_000
_SAME_LEAD_NS = 1_000_000
"""A verdict is kept this long while the lead stays within that: what both may hide is counted as if it had happened."""


class ClockFence(StrEnum):
    """Why a clock is not trusted."""

    UNPROVEN = "unproven"
    JUMPED = "jumped"


@dataclass(frozen=True, slots=True)
class Measurement:
    """A peer's wall clock was `offset_ns` ahead of the own one, plus or minus `error_ns`, when the own clocks showed
    this `lead_ns` and this monotonic time."""

    offset_ns: int
    error_ns: int
    lead_ns: int
    monotonic_ns: int

    def offset_at(self, lead_ns: int) -> int:
        """The peer's offset now that the own wall clock has moved: the lead tells by how much."""
        return self.offset_ns - (lead_ns - self.lead_ns)


@dataclass(frozen=True, slots=True)
class ClockLimits:
    """What is declared of a cluster's clocks: wall clocks lie within `max_offset_ns` of each other, and any clock's
    rate within `max_drift` of true time's."""

    max_offset_ns: int
    max_drift: float = 0.01

    @classmethod
    def of(cls, knobs: Knobs) -> ClockLimits:
        """What the knobs declare."""
        return cls(knobs.max_clock_offset_ms * 1_000_000, knobs.max_clock_drift)

    @property
    def max_jump_ns(self) -> int:
        """A wall clock that moves further at once is not trusted."""
        return self.max_offset_ns // 2


class ClockGuard:
    """One node's judgement of its own wall clock; every call is handed both clocks as they are."""

    def __init__(self, limits: ClockLimits, wall_ns: int, monotonic_ns: int) -> None:
        self._limits = limits
        self._base_ns = wall_ns - monotonic_ns
        self._base_at_ns = monotonic_ns
        self._jumped = False
        self._jumps = 0
        self._peers: dict[str, Measurement | None] = {}
        self._measured_at: dict[str, int] = {}
        """Number of jumps before each measurement."""
        self.verdict: ClockFence | None = None
        """The last judgement: it stands until `stands_until_ns` while the lead is between the other two."""
        self._judged_lead_ns, self._judged_at_ns = self._base_ns, monotonic_ns
        self.lowest_ns, self.highest_ns = self._base_ns - _SAME_LEAD_NS, self._base_ns + _SAME_LEAD_NS
        self.stands_until_ns = monotonic_ns

    @property
    def peers(self) -> tuple[str, ...]:
        """The nodes that this clock is measured against."""
        return tuple(self._peers)

    def expect(self, peers: Iterable[str]) -> None:
        """Measure against these nodes and no others; what is known of one stays known."""
        self._peers = {peer: self._peers.get(peer) for peer in peers}
        self._judge_anew()

    def measured(self, peer: str, measurement: Measurement) -> None:
        """Take a measurement in: the more precise of two that agree, the newer of two that contradict each other."""
        if peer not in self._peers:
            return
        self.judge(measurement.lead_ns + measurement.monotonic_ns, measurement.monotonic_ns)
        known = self._peers[peer]
        if known is None or self._measured_at[peer] < self._jumps or _supersedes(measurement, known, self._limits):
            self._peers[peer], self._measured_at[peer] = measurement, self._jumps
            self._judge_anew()

    def judge(self, wall_ns: int, monotonic_ns: int) -> ClockFence | None:
        """Why the clock is not to be trusted now, or None."""
        lead_ns = wall_ns - monotonic_ns
        if monotonic_ns < self.stands_until_ns and self.lowest_ns <= lead_ns <= self.highest_ns:
            return self.verdict
        self._note_jump(lead_ns, monotonic_ns)
        self.verdict = self._judged(lead_ns, monotonic_ns)
        self._judged_lead_ns, self._judged_at_ns = lead_ns, monotonic_ns
        self.lowest_ns, self.highest_ns = lead_ns - _SAME_LEAD_NS, lead_ns + _SAME_LEAD_NS
        self.stands_until_ns = monotonic_ns + _RECHECK_NS
        return self.verdict

    def _judge_anew(self) -> None:
        self.stands_until_ns = -(1 << 63)

    def _note_jump(self, lead_ns: int, monotonic_ns: int) -> None:
        """Compare with the lead at the last look, and when the clock was last trusted; the clocks may have drifted."""
        max_jump_ns = self._limits.max_jump_ns
        since_ns = monotonic_ns - self._judged_at_ns
        self._jumps += abs(lead_ns - self._judged_lead_ns) > max_jump_ns + _drift(self._limits, since_ns)
        since_ns = monotonic_ns - self._base_at_ns
        self._jumped = abs(lead_ns - self._base_ns) > max_jump_ns + _drift(self._limits, since_ns)
        if self._jumped:
            self._base_at_ns = monotonic_ns  # no drift makes up for a jump, however long it lasts

    def _judged(self, lead_ns: int, monotonic_ns: int) -> ClockFence | None:
        # A majority of the peers and the node itself has to agree; the node does, so that without peers there is one.
        proven = sum([self._proven(peer, lead_ns, monotonic_ns) for peer in self._peers])
        quorum = 2 * (proven + 1) > len(self._peers) + 1
        if self._jumped and not (quorum and self._peers):
            return ClockFence.JUMPED
        if not quorum:
            return ClockFence.UNPROVEN
        # Trusted from here on: the next jump is measured from this lead, set for good or never moved.
        self._jumped = False
        self._base_ns, self._base_at_ns = lead_ns, monotonic_ns
        return None

    def _proven(self, peer: str, lead_ns: int, monotonic_ns: int) -> bool:
        """Whether the peer's clock is certainly within the maximum offset; a jump voids what was measured before."""
        known = self._peers[peer]
        if known is None or (self._jumped and self._measured_at[peer] < self._jumps):
            return False
        offset_ns = abs(known.offset_at(lead_ns))
        error_ns = _error(known, monotonic_ns + _RECHECK_NS, self._limits)
        return offset_ns + error_ns + _SAME_LEAD_NS <= self._limits.max_offset_ns


def _supersedes(new: Measurement, known: Measurement, limits: ClockLimits) -> bool:
    error_ns = _error(known, new.monotonic_ns, limits)
    contradicted = abs(new.offset_ns - known.offset_at(new.lead_ns)) > new.error_ns + error_ns
    return contradicted or new.error_ns <= error_ns


def _error(known: Measurement, monotonic_ns: int, limits: ClockLimits) -> int:
    """The error of a measurement grows with its age: the peer's wall clock and the own monotonic one drift."""
    return known.error_ns + _drift(limits, monotonic_ns - known.monotonic_ns)


def _drift(limits: ClockLimits, elapsed_ns: int) -> int:
    return int(2 * limits.max_drift * max(0, elapsed_ns))

"""Client sessions (G8; Ongaro's thesis, section 6.3): what makes a retried change take effect once (R1, M14).

Part of a replicated state machine: changed at apply only, kept in its snapshots, the same on every replica. A session's
id is the log index of the command that registered it, so no id is ever given twice. What is not in the table has ended
or never was, and its requests are refused: an earlier attempt may have taken effect, and its answer is gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from cluster.knobs import Knobs
from cluster.log.snapshots import gathered
from cluster.store.cells import MASK, ODD, fingerprint
from cluster.wire.messages import ErrorReply, RequestId, encode

SESSION_ENDED = encode(
    ErrorReply("SESSION_ENDED", "the session has ended: an earlier attempt may have taken effect", definite=False)
)
FORGOTTEN = encode(ErrorReply("FORGOTTEN", "the answer to this request is not kept any more", definite=False))


_ROW_BYTES, _ANSWER_BYTES = 32, 8
"""About what a session and an answer take beside the answer's bytes."""


class SessionLimits(msgspec.Struct, frozen=True, array_like=True):
    """Sessions end after `silence_ns` of replicated time without a change, or as the least recently used beyond
    `sessions`; each keeps at most `answers`. They ride in commands, so that replicas with other knobs still agree."""

    silence_ns: int
    sessions: int
    answers: int

    @classmethod
    def of(cls, knobs: Knobs) -> SessionLimits:
        """What the knobs of the proposer say."""
        return cls(knobs.session_silence_ms * 1_000_000, knobs.max_sessions, knobs.session_answers)


class RegisterClient(msgspec.Struct, frozen=True, array_like=True, tag=16):
    """The command that registers a session, at the proposer's clock reading."""

    time: int
    limits: SessionLimits


SessionRow: TypeAlias = tuple[int, int, int, list[tuple[int, bytes]]]
"""(session, last use, floor, [(sequence, answer)])."""


class SessionRows(msgspec.Struct, frozen=True, array_like=True):
    """Sessions as plain data, the least recently used first: all of them, or a part."""

    time: int = 0
    limits: SessionLimits = SessionLimits(0, 0, 0)
    sessions: tuple[SessionRow, ...] = ()


class _Session:
    """What lies below `floor` was called answered by the client, or its answer was dropped: it is never carried out.

    `prints` are the fingerprints of the answers, `print` that of everything else, all as the digest holds them.
    """

    __slots__ = ("answers", "epoch", "floor", "last_use", "print", "prints")

    def __init__(self, epoch: int, last_use: int, floor: int = 0) -> None:
        self.epoch = epoch
        self.last_use = last_use
        self.floor = floor
        self.answers: dict[int, bytes] = {}
        self.prints: dict[int, int] = {}
        self.print = 0

    def trim(self, floor: int) -> int:
        """Raise the floor; the fingerprints of the answers that are dropped with it, added up."""
        if floor <= self.floor:
            return 0
        self.floor = floor
        answers, dropped = self.answers, 0
        for sequence in tuple(filter(floor.__gt__, answers)):
            del answers[sequence]
            dropped += self.prints.pop(sequence)
        return dropped

    def keep(self, number: int, sequence: int, answer: bytes) -> int:
        """Keep an answer; its fingerprint."""
        self.answers[sequence] = answer
        kept = self.prints[sequence] = fingerprint((number, sequence, answer))
        return kept

    def copy(self, epoch: int) -> _Session:
        """One of its own for an epoch."""
        copied = _Session(epoch, self.last_use, self.floor)
        copied.answers, copied.prints, copied.print = self.answers.copy(), self.prints.copy(), self.print
        return copied

    def mark(self, number: int) -> int:
        """Fingerprint of everything but the answers, as it is now; kept in `print`."""
        self.print = fingerprint((number, self.last_use, self.floor))
        return self.print


class FrozenSessions:
    """The sessions as they were at one time, whatever is recorded since; made by `Sessions.freeze`."""

    def __init__(self, head: SessionRows, sessions: dict[int, _Session], keeps_answers: bool) -> None:
        self._head, self._sessions, self._keeps_answers = head, sessions, keeps_answers

    def parts(self, part_bytes: int) -> Iterator[SessionRows]:
        """Everything, in one part at least; each takes about `part_bytes` or is one session."""
        time, limits = self._head.time, self._head.limits
        if not self._sessions:
            yield self._head
        for rows in gathered(self._rows(), part_bytes):
            yield SessionRows(time, limits, tuple(rows))

    def _rows(self) -> Iterator[tuple[SessionRow, int]]:
        for number, session in self._sessions.items():
            answers = sorted(session.answers.items()) if self._keeps_answers else []
            size = _ROW_BYTES + sum(_ANSWER_BYTES + len(answer) for _, answer in answers)
            yield (number, session.last_use, session.floor, answers), size


class Sessions:
    """First answers by session and sequence. `time` is replicated: the latest that any command has carried (ns).

    The order of `_sessions` is that of their last use, so whatever ends stands first. `digest` is of the rows (G10).
    A frozen view shares sessions: one of an earlier epoch than the last freeze is copied before it is changed.
    """

    def __init__(self, flaws: frozenset[str] = frozenset()) -> None:
        self.time = 0
        self._none_ends_before = 0
        """Up to this time no session ends: last uses only rise, so it need not be looked for at each command."""
        self._set_limits(SessionLimits(0, 0, 0))
        self._sessions: dict[int, _Session] = {}
        self._digest = 0
        self._epoch = 0
        self._keeps_answers = "forget-request-ids" not in flaws

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def digest(self) -> int:
        """64 bits of everything that a snapshot holds."""
        return self._digest + self._limits_print + self.time * ODD & MASK

    def register(self, session: int, command: RegisterClient) -> None:
        """Begin a session; its id is the log index of the command."""
        self._set_limits(command.limits)
        self.advance(command.time)
        begun = self._sessions[session] = _Session(self._epoch, self.time)
        self._digest += begun.mark(session)
        while len(self._sessions) > max(1, self._limits.sessions):
            self._end(next(iter(self._sessions)))

    def advance(self, time: int) -> None:
        """A command has carried this time: sessions that were silent for too long end."""
        if time > self.time:
            self.time = time
        if self.time <= self._none_ends_before:
            return
        sessions, oldest = self._sessions, self.time - self._limits.silence_ns
        while sessions:
            session = next(iter(sessions))
            last_use = sessions[session].last_use
            if last_use >= oldest:
                self._none_ends_before = last_use + self._limits.silence_ns
                return
            self._end(session)

    def answered(self, request_id: RequestId) -> bytes | None:
        """The encoded answer to a request that must not be carried out (any more); None if it is fresh."""
        session = self._sessions.get(request_id.session)
        if session is None:
            return SESSION_ENDED
        first = session.answers.get(request_id.sequence)
        if first is None and request_id.sequence < session.floor:
            return FORGOTTEN
        return first

    def record(self, request_id: RequestId, answer: bytes) -> None:
        """Keep the answer to a fresh request that was carried out now, and forget what the client won't ask again."""
        number, sequence, floor = request_id.session, request_id.sequence, request_id.done_below
        session = self._sessions.pop(number)
        if session.epoch != self._epoch:
            session = session.copy(self._epoch)
        self._sessions[number] = session
        session.answers[sequence] = answer
        kept = session.prints[sequence] = fingerprint((number, sequence, answer))
        digest = self._digest - session.print + kept
        session.last_use = self.time
        if floor > session.floor:
            digest -= session.trim(floor if floor < sequence else sequence)
        if len(session.answers) > self._limits.answers:
            while len(session.answers) > max(1, self._limits.answers):
                digest -= session.trim(min(session.answers) + 1)
        session.print = fingerprint((number, session.last_use, session.floor))
        self._digest = digest + session.print & MASK

    def _set_limits(self, limits: SessionLimits) -> None:
        self._limits, self._limits_print, self._none_ends_before = limits, fingerprint(limits), 0

    def _end(self, number: int) -> None:
        session = self._sessions.pop(number)
        self._digest = self._digest - session.print - sum(session.prints.values()) & MASK

    def freeze(self) -> FrozenSessions:
        """Everything as it is now; later changes don't show in it."""
        self._epoch += 1
        return FrozenSessions(SessionRows(self.time, self._limits), self._sessions.copy(), self._keeps_answers)

    def restore(self, part: SessionRows) -> None:
        """Take a part of a frozen view in, in the order in which the view gave them."""
        self.time = part.time
        self._set_limits(part.limits)
        for number, last_use, floor, answers in part.sessions:
            session = self._sessions[number] = _Session(self._epoch, last_use, floor)
            kept = sum(session.keep(number, sequence, answer) for sequence, answer in answers)
            self._digest = self._digest + session.mark(number) + kept & MASK

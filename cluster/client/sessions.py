"""The client's side of sessions (G8): which session a change goes under, and when it may go under another one; pure.

A change keeps its session and sequence over every retry. Only while no earlier attempt can have taken effect may it
move to a new session: under another identity a change that was carried out already would be carried out again.
"""

from __future__ import annotations

from cluster.wire.messages import RequestId


class Session:
    """One session of this client with one tablet or the catalog; sequences rise, and the open ones are remembered."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._sequence = 0
        self._open: dict[int, None] = {}

    def begin(self) -> RequestId:
        """The identity of a new request; everything below its `done_below` will never be sent again."""
        self._sequence += 1
        self._open[self._sequence] = None
        return RequestId(self._number, self._sequence, next(iter(self._open)))

    def end(self, request_id: RequestId) -> None:
        """Answered, or given up: it is never sent again."""
        self._open.pop(request_id.sequence, None)


class ClientSessions:
    """The sessions that this client holds, by the group they are with: a tablet's id, or `catalog`."""

    def __init__(self) -> None:
        self._held: dict[str, Session] = {}

    def get(self, group: str) -> Session | None:
        return self._held.get(group)

    def registered(self, group: str, number: int) -> None:
        """A session was registered; one that another request registered meanwhile is kept."""
        self._held.setdefault(group, Session(number))

    def ended(self, group: str, session: Session) -> None:
        """The group does not know this session any more."""
        if self._held.get(group) is session:
            del self._held[group]


class Ticket:
    """The identity of one change: bound to a session at its first attempt, to another one only by `release`.

    A context manager: whatever comes of the change, its identity is let go in the end.
    """

    def __init__(self, sessions: ClientSessions) -> None:
        self._sessions = sessions
        self._group = ""
        self._session: Session | None = None
        self._request_id: RequestId | None = None

    def __enter__(self) -> Ticket:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    @property
    def bound(self) -> bool:
        return self._session is not None

    @property
    def request_id(self) -> RequestId:
        """The identity that it is bound to."""
        assert self._request_id is not None
        return self._request_id

    def bound_elsewhere(self, group: str) -> bool:
        """Whether it is bound to a session with somebody else than `group`."""
        return self.bound and self._group != group

    def bind(self, group: str) -> bool:
        """Give the request an identity with this group, unless it has one; False if a session must be registered."""
        if self._session is None:
            self._session = self._sessions.get(group)
            if self._session is None:
                return False
            self._group, self._request_id = group, self._session.begin()
        return True

    def registered(self, group: str, number: int) -> None:
        """The registration that `bind` asked for was answered."""
        self._sessions.registered(group, number)

    def ended(self) -> None:
        """The group refused the session: nothing goes out under it any more."""
        if self._session is not None:
            self._sessions.ended(self._group, self._session)
        self.release()

    def release(self) -> None:
        """Let the identity go: the request is answered, given up, or fresh again."""
        if self._session is not None and self._request_id is not None:
            self._session.end(self._request_id)
        self._session = None
        self._request_id = None

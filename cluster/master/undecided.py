"""Changes of the catalog that were not seen to be replicated in time, and may yet be (M6, step 7)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from cluster.master.calls import ServerCall
from cluster.master.catalog import Catalog, Record
from cluster.master.records import TableRecord, TabletRecord


@dataclass(frozen=True, slots=True)
class _Change:
    tables: tuple[TableRecord, ...]
    tablets: tuple[TabletRecord, ...]
    calls: tuple[ServerCall, ...]


class UndecidedChange:
    """What tablet servers are to be told of such a change as soon as it takes effect, while its proposer leads.

    Nobody else would: who asked was answered that nobody knows, reports are of what changes at tablet servers, and
    only a new leader gets full ones.
    """

    def __init__(self, catalog: Catalog, send: Callable[[Iterable[ServerCall]], None]) -> None:
        self._catalog, self._send = catalog, send
        self._changes: list[_Change] = []

    def add(
        self, tables: tuple[TableRecord, ...], tablets: tuple[TabletRecord, ...], calls: tuple[ServerCall, ...]
    ) -> None:
        """A change, which may have taken effect since its proposer gave up."""
        if calls:
            self._changes.append(_Change(tables, tablets, calls))
            self.settle()

    def settle(self) -> None:
        """Something took effect: send what is due now, and forget what can't come any more."""
        if not self._changes:
            return
        due = [change for change in self._changes if all(now == then for now, then in self._both(change))]
        self._changes = [change for change in self._changes if change not in due and not self._overtaken(change)]
        for change in due:
            self._send(change.calls)

    def forget(self) -> None:
        """Leadership was lost: the next leader gets full reports."""
        self._changes.clear()

    def _overtaken(self, change: _Change) -> bool:
        """Whether another change took the place of this one's revisions, so that it will be refused."""
        return any(now is not None and now.revision >= then.revision for now, then in self._both(change))

    def _both(self, change: _Change) -> Iterator[tuple[Record | None, Record]]:
        yield from ((self._catalog.tables.get(each.table_id), each) for each in change.tables)
        yield from ((self._catalog.tablets.get(each.tablet_id), each) for each in change.tablets)

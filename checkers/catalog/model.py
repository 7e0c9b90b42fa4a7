"""The catalog as one object, and what each operation does to it (the model that `catalog` searches with).

The state maps names to tables: (id, schema version). One object it must be. A rename takes a table from one name to
another in one step, and a list shows all names at one moment: as registers, one a name, both could be torn and each
register still be linearizable. Nor will registers written together do, for what a rename writes depends on what it
finds.

- `create`: the name is free; a new table stands there, at version 0, under an id that was never used.
- `delete`, `alter`: there is a table; it is gone, or its version is one higher.
- `rename`: there is a table under the old name and none under the new; it moves.
- An observation: what it tells of names is so; a list tells all of them.

A table whose creation was never acknowledged has an id that nobody knows: ANONYMOUS until an answer shows it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from checkers.catalog.calls import ALTER, CREATE, DELETE, RENAME, Call

ANONYMOUS: Final = -1

Table: TypeAlias = tuple[int, int] | None
"""Id and schema version; None where the name is free."""

State: TypeAlias = tuple[Table, ...]
"""By name, numbered densely."""

Bindable: TypeAlias = Callable[[int], bool]
"""Whether an anonymous table may turn out to have this id."""

RENAME_ALTERS: Final = 1
"""By how much a rename raises the schema version: it is an AlterTable (appendix B of seed 001, step 3)."""


def never(table_id: int) -> bool:
    """No anonymous table has any id."""
    return False


def after(state: State, call: Call, bindable: Bindable = never) -> State | None:
    """The state after a change, None where it can't be carried out."""
    here = state[call.name]
    if call.kind == CREATE:
        made = ANONYMOUS if call.id is None else call.id
        return None if here is not None else _with(state, call.name, (made, 0))
    if here is None or not _is_or_may_be(here, call.id, bindable):
        return None
    known = here[0] if call.id is None else call.id
    if call.kind == DELETE:
        return _with(state, call.name, None)
    if call.kind == ALTER:
        return _with(state, call.name, (known, here[1] + 1))
    assert call.kind == RENAME
    if state[call.new] is not None:
        return None
    return _with(_with(state, call.name, None), call.new, (known, here[1] + RENAME_ALTERS))


def shows(state: State, call: Call, bindable: Bindable = never) -> State | None:
    """The state in which an observation is right: this one, with anonymous tables known by what is seen; or None."""
    found = state
    for seen in call.seen:
        here = found[seen.name]
        if (here is None) != seen.absent:
            return None
        if here is None:
            continue
        if not _is_or_may_be(here, seen.id, bindable) or seen.version not in (None, here[1]):
            return None
        if seen.id is not None and here[0] != seen.id:
            if any(table is not None and table[0] == seen.id for table in found):
                return None
            found = _with(found, seen.name, (seen.id, here[1]))
    if call.total and sum(table is not None for table in found) != len(call.seen):
        return None
    return found


def _is_or_may_be(here: tuple[int, int], told: int | None, bindable: Bindable) -> bool:
    return told is None or here[0] == told or (here[0] == ANONYMOUS and bindable(told))


def _with(state: State, name: int, table: Table) -> State:
    return (*state[:name], table, *state[name + 1 :])

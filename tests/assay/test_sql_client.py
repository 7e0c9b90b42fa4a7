"""When an operation in SQL failed for certain: by what was sent before, and what the server said."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from assay.databases.sql import SqlClient
from assay.plugin import DefiniteError, IndefiniteError, Mop, Op


class Refused(Exception):
    """The server said no."""


class Rows(SqlClient):
    """One table in memory; `fails` is raised at the statement that begins so."""

    def __init__(self, workload: str = "register", at: str = "", fails: Exception | None = None) -> None:
        super().__init__("n1", 0.2, workload, 1)
        self.at, self.fails = at, fails
        self.values: dict[int, Any] = {}
        self.opened, self.statements = 0, list[str]()

    async def connect(self) -> Any:
        self.opened += 1
        if self.at == "connect" and self.fails:
            raise self.fails
        return "connection"

    async def execute(self, connection: Any, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        self.statements.append(statement.split()[0])
        if self.at and statement.startswith(self.at):
            if self.fails is None:
                await asyncio.sleep(10)
            else:
                raise self.fails
        if statement.startswith("SELECT"):
            return [(self.values[values[0]],)] if values[0] in self.values else []
        if values:
            self.values[values[0]] = values[1]
        return []

    async def disconnect(self, connection: Any) -> None:
        self.statements.append("disconnect")

    def is_refusal(self, error: Exception) -> bool:
        return isinstance(error, Refused)

    def is_lost(self, error: Exception) -> bool:
        return isinstance(error, Refused | OSError)

    def append(self, table: str) -> str:
        return f"APPEND {table}"

    def write(self, table: str) -> str:
        return f"WRITE {table}"


def asked(f: str) -> Op:
    mop = Mop("r", 1) if f == "read" else Mop("w", 1, 5) if f == "write" else Mop("cas", 1, 5, 4)
    return Op("invoke", 0, f, (mop,))


LOST = OSError("gone")


@pytest.mark.parametrize(
    ("f", "at", "fails", "kind"),
    [
        ("write", "connect", LOST, DefiniteError),
        ("write", "BEGIN", LOST, DefiniteError),
        ("write", "WRITE", LOST, DefiniteError),
        ("write", "WRITE", None, DefiniteError),
        ("write", "COMMIT", LOST, IndefiniteError),
        ("write", "COMMIT", None, IndefiniteError),
        ("write", "COMMIT", Refused(), DefiniteError),
        ("read", "COMMIT", LOST, DefiniteError),
        ("cas", "", None, DefiniteError),
        ("write", "WRITE", ValueError("a mistake of ours"), ValueError),
    ],
)
def test_only_what_was_sent_to_be_committed_may_have_been(
    f: str, at: str, fails: Exception | None, kind: type[Exception]
) -> None:
    client = Rows(at=at, fails=fails)

    async def tried() -> None:
        with pytest.raises(kind) as raised:
            await client.invoke(asked(f))
        assert type(raised.value) is kind
        client.at = ""
        client.values[1] = 4
        await client.invoke(asked("cas"))

    asyncio.run(tried())
    kept = f == "cas" or isinstance(fails, Refused | ValueError)
    assert client.opened == (1 if kept else 2)
    assert client.values[1] == 5


def test_lists_and_sets_are_told_as_the_values_of_a_key() -> None:
    lists, sets = Rows("list-append"), Rows("set")
    lists.values[1], sets.values[1] = "3,4", 7
    for client, values in ((lists, (3, 4)), (sets, (7,))):
        assert asyncio.run(client.invoke(asked("read"))).mops[0].values == values

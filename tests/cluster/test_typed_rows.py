"""Typed rows: their changes and reads against a model under alterations, and in a whole cluster by names of columns."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.client.client import ClusterClient
from cluster.client.rows import TypedTable
from cluster.deploy.database_sim import SimDatabase
from cluster.deploy.layout import Layout
from cluster.knobs import Knobs
from cluster.ranges import requests
from cluster.ranges.tablet import AlterSchema
from cluster.store.cells import Key, Span, Value
from cluster.store.mvcc import LATEST, MvccStore, Version
from cluster.store.schema import AddColumn, Column, DropColumn, RenameColumn, altered, encode_key
from cluster.wire.messages import WIRE_VERSION, ArmFailpoint, Cell, RequestId
from cluster.wire.rows import ChangeRow, GetRow, RowChangeKind, ScanRows, TypedRowsReply
from harness.cell_address import CellAddress
from harness.env.sim import SimEnvironment
from harness.errors import DefiniteError
from harness.ports.sim.world import World

BASE = (Column(0, "k", "int64", False, None, True), Column(1, "a", "int64"), Column(2, "b", "int64", False, 7))


@dataclass
class State:
    """A range's state: what is stored, and the schema in force."""

    schema_in_force: AlterSchema = field(default_factory=lambda: AlterSchema(0, BASE))
    store: MvccStore = field(default_factory=MvccStore)

    def read(self, key: Key, as_of: int = LATEST) -> Version | None:
        return self.store.read(key, as_of)

    def scan(self, span: Span, as_of: int = LATEST) -> list[tuple[Key, Version]]:
        return self.store.scan(span, as_of)


KINDS: tuple[RowChangeKind, ...] = ("insert", "upsert", "update", "delete")
Step = tuple[str, int, dict[int, int | None]]

STEPS = st.one_of(
    st.tuples(
        st.sampled_from(KINDS), st.integers(0, 2), st.dictionaries(st.integers(1, 6), st.none() | st.integers(0, 9))
    ),
    st.tuples(st.sampled_from(("add", "drop")), st.integers(0, 9), st.just({})),
)


def alter(schema: AlterSchema, next_id: int, kind: str, number: int) -> tuple[AlterSchema, int]:
    """One more column, nullable or not, with a default or not; or one less."""
    plain = [column for column in schema.columns if not column.key]
    if kind == "drop":
        if not plain:
            return schema, next_id
        columns, next_id = altered(schema.columns, next_id, [DropColumn(plain[number % len(plain)].name)])
    else:
        default = number if number % 3 else None
        added = AddColumn(Column(-1, f"c{next_id}", "int64", default is None or number % 2 == 0, default))
        columns, next_id = altered(schema.columns, next_id, [added])
    return AlterSchema(schema.version + 1, columns), next_id


@given(st.lists(STEPS, max_size=30))
def test_rows_are_what_a_table_of_the_schema_in_force_would_hold(steps: list[Step]) -> None:
    """A change names columns by id, of the latest schema or an earlier one; dropped and unknown ones are refused."""
    state, model, next_id = State(), dict[bytes, dict[int, Value]](), 3
    for time, (kind, number, cells) in enumerate(steps, 1):
        schema = state.schema_in_force
        if kind in ("add", "drop"):
            state.schema_in_force, next_id = alter(schema, next_id, kind, number)
            continue
        row = encode_key(BASE, {"k": number})
        given_cells = () if kind == "delete" else tuple(cells.items())
        request = ChangeRow(RequestId(1, time, 0), "t", "table", 0, row, kind, given_cells, schema.version)  # type: ignore[arg-type]
        plain = {column.id: column for column in schema.columns if not column.key}
        fault = requests.row_refusal(request, schema)
        if fault is not None:
            assert fault.definite and not fits_all(plain, kind, dict(given_cells))
            continue
        assert fits_all(plain, kind, dict(given_cells))
        puts, done = requests.decide_row(request, state, time * 10)
        assert done.applied == (kind == "upsert" or (row in model) == (kind != "insert"))
        for put in puts:
            state.store.write(put.key, time * 10, put.value)
        if done.applied:
            expect(model, row, kind, dict(given_cells), plain)
    check(state, model)


def fits_all(plain: dict[int, Column], kind: str, cells: dict[int, int | None]) -> bool:
    for each, value in cells.items():
        if each not in plain or (value is None and not plain[each].nullable):
            return False
    needed = [each for each in plain.values() if not each.nullable and each.default is None]
    return kind not in ("insert", "upsert") or all(each.id in cells for each in needed)


def expect(
    model: dict[bytes, dict[int, Value]], row: bytes, kind: str, cells: dict[int, int | None], plain: dict[int, Column]
) -> None:
    if kind == "delete":
        del model[row]
    else:
        fresh: dict[int, Value] = {each.id: each.default for each in plain.values()}
        model[row] = {**model.get(row, fresh), **cells}


def check(state: State, model: dict[bytes, dict[int, Value]]) -> None:
    plain = [column for column in state.schema_in_force.columns if not column.key]
    ids, version = tuple(column.id for column in plain), state.schema_in_force.version
    expected = [(row, tuple(model[row].get(each.id, each.default) for each in plain)) for row in sorted(model)]
    found = requests.scan_rows(ScanRows("t", "table", 0, b"", None, ids, version), state, LATEST)
    assert isinstance(found, TypedRowsReply) and [(row.row, row.values) for row in found.rows] == expected
    for row, values in expected:
        one = requests.get_row(GetRow("t", "table", 0, row, ids, version), state, LATEST)
        assert isinstance(one, TypedRowsReply) and one.rows[0].values == values


# ---- in a whole cluster ----

KNOBS = Knobs(snapshot_entries=10, retained_entries=0)

PEOPLE = (
    Column(-1, "country", "string", False, None, True),
    Column(-1, "number", "int32", False, None, True),
    Column(-1, "name", "string", False),
    Column(-1, "height", "double"),
)


def play(scenario: Callable[[ClusterClient, SimDatabase], Awaitable[None]]) -> None:
    with World(1, version=WIRE_VERSION) as world:
        environment, database = SimEnvironment(world), SimDatabase(world, Layout(1, 3), knobs=KNOBS)

        async def main() -> None:
            await environment.setup(database.nodes)
            await database.install()
            for node in database.nodes:
                await database.start(node.name)
            await database.await_ready(30)
            client = database.admin_client(8.0)
            await client.create_table("people", PEOPLE, 2, 3)
            while not await client.is_create_done("people"):
                await asyncio.sleep(0.05)
            await scenario(client, database)

        world.run(main())
        assert world.errors == []


async def settled(client: ClusterClient, name: str = "people") -> None:
    while not (await client.catalog.is_alter_done(name)).done:
        await asyncio.sleep(0.05)


async def refused(kind: str, done: Awaitable[object]) -> str:
    with pytest.raises(DefiniteError) as caught:
        await done
    assert caught.value.kind == kind, caught.value
    return str(caught.value)


def person(country: str, number: int, name: str, **more: Value) -> dict[str, Value]:
    return {"country": country, "number": number, "name": name, **more}


def test_rows_are_changed_and_read_by_the_names_of_columns() -> None:
    async def scenario(client: ClusterClient, database: SimDatabase) -> None:
        people = await client.open_table("people")
        await people.insert(person("de", 2, "Ada", height=1.5))
        await people.upsert(person("de", -1, "Bob"))
        await people.insert(person("at", 3, "Eve"))
        assert (await people.get({"country": "de", "number": 2}, ["height", "name"])).value == {
            "height": 1.5,
            "name": "Ada",
        }
        assert [row["name"] for row in (await people.scan()).value] == ["Eve", "Bob", "Ada"]
        assert [row["number"] for row in (await people.scan(["de"], page=1)).value] == [-1, 2]
        await people.update({"country": "de", "number": 2, "height": None})
        assert (await people.get({"country": "de", "number": 2})).value == person("de", 2, "Ada", height=None)
        await people.delete({"country": "de", "number": 2})
        assert (await people.get({"country": "de", "number": 2})).value is None

    play(scenario)


def test_rows_that_cannot_be_are_refused_and_nothing_changes() -> None:
    async def scenario(client: ClusterClient, database: SimDatabase) -> None:
        people = await client.open_table("people")
        await people.insert(person("de", 1, "Ada"))
        await refused("row-present", people.insert(person("de", 1, "Bob")))
        await refused("row-absent", people.update(person("de", 2, "Bob")))
        await refused("row-absent", people.delete({"country": "de", "number": 2}))
        assert "'name' needs a value" in await refused("invalid", people.insert({"country": "de", "number": 2}))
        assert "can't hold null" in await refused("invalid", people.upsert({"country": "x", "number": 2, "name": None}))
        assert "is a double" in await refused("invalid", people.update(person("de", 1, "Ada", height=2)))
        assert "'number' has no value" in await refused("invalid", people.get({"country": "de"}))
        assert "can't hold 4294967296" in await refused("invalid", people.get({"country": "de", "number": 1 << 32}))
        assert "'paper'" in await refused("unknown-column", people.update(person("de", 1, "Ada", paper=1)))
        assert "by its primary key" in await refused("invalid", client.write("people", CellAddress(0, 0, 1), "Eve"))
        assert "by its primary key" in await refused("invalid", client.write_rows("people", 0, [Cell(0, 1, "Eve")]))
        assert "by its primary key" in await refused("invalid", client.read("people", CellAddress(0, 0, 1)))
        assert (await people.scan()).value == [person("de", 1, "Ada", height=None)]
        await client.create_table("numbers", (Column(0, "value", "int64"),), 1, 3)
        assert "no primary key" in await refused("invalid", client.open_table("numbers"))

    play(scenario)


def test_handles_of_either_schema_read_and_write_what_the_table_holds() -> None:
    """The second handle knows no schema but the first one; both go on while tablets take the new one up."""

    async def scenario(client: ClusterClient, database: SimDatabase) -> None:
        old, new = await client.open_table("people"), await database.admin_client(8.0).open_table("people")
        await old.insert(person("de", 1, "Ada", height=1.5))
        steps = [
            DropColumn("height"),
            RenameColumn("name", "called"),
            AddColumn(Column(-1, "age", "int32", False, 30)),
            AddColumn(Column(-1, "height", "double")),
        ]
        await client.catalog.alter_table("people", steps)
        await new.refresh()
        await new.insert({"country": "de", "number": 2, "called": "Bob", "age": 5, "height": 1.0})
        await old.upsert(person("de", 3, "Eve"))
        await settled(client)
        key = {"country": "de", "number": 1}
        assert (await old.get(key, ["name"])).value == {"name": "Ada"}, "a renamed column is still the same"
        assert (await new.get(key)).value == {"country": "de", "number": 1, "called": "Ada", "age": 30, "height": None}
        assert [row["age"] for row in (await new.scan(["de"])).value] == [30, 5, 30]
        await refused("unknown-column", old.get(key, ["name", "height"]))
        assert (await old.get(key, ["called", "height"])).value == {"called": "Ada", "height": None}
        await client.catalog.alter_table("people", [DropColumn("age"), AddColumn(Column(-1, "age", "string"))])
        await settled(client)
        assert [row["age"] for row in (await (await client.open_table("people")).scan()).value] == [None] * 3

    play(scenario)


def test_a_handle_keeps_its_table_under_another_name_and_finds_the_one_that_follows() -> None:
    async def scenario(client: ClusterClient, database: SimDatabase) -> None:
        people = await client.open_table("people")
        await people.insert(person("de", 1, "Ada"))
        await client.catalog.alter_table("people", new_name="folk")
        assert (await people.get({"country": "de", "number": 1}, ["name"])).value == {"name": "Ada"}
        await settled(client, "folk")
        await client.catalog.delete_table("folk")
        columns = (PEOPLE[0], PEOPLE[1], Column(-1, "shoe", "int32"))
        await client.create_table("people", columns, 3, 3)
        while not await client.is_create_done("people"):
            await asyncio.sleep(0.05)
        await people.upsert({"country": "de", "number": 1, "shoe": 40})
        assert (await people.scan()).value == [{"country": "de", "number": 1, "shoe": 40}]

    play(scenario)


def test_a_change_whose_column_is_dropped_while_it_waits_is_refused() -> None:
    """`assay run catalog --nemesis all --swarm --time-limit 20 --seed 8`: it was called applied, its value was gone."""

    async def scenario(client: ClusterClient, database: SimDatabase) -> None:
        people = await client.open_table("people")
        await people.insert(person("de", 1, "Ada"))
        for node in [each.name for each in database.nodes if each.role == "tserver"]:
            await client.arm(database.address(node), ArmFailpoint("tablet.evaluating", "delay", seconds=0.9))
        waiting = asyncio.create_task(people.update({"country": "de", "number": 1, "height": 1.5}))
        await asyncio.sleep(0.1)
        await client.catalog.alter_table("people", [DropColumn("height")])
        await settled(client)
        assert not waiting.done()
        assert "height" in await refused("unknown-column", waiting)
        assert (await database.invariants()).breaches == ()

    play(scenario)


def test_a_schema_survives_snapshots_and_restarts() -> None:
    async def scenario(client: ClusterClient, database: SimDatabase) -> None:
        people = await client.open_table("people")
        await client.catalog.alter_table("people", [AddColumn(Column(-1, "age", "int32", False, 30))])
        await settled(client)
        await write_many(people, 30)
        for node in database.nodes:
            await database.kill(node.name)
        for node in database.nodes:
            await database.start(node.name)
        await database.await_ready(30)
        await settled(client)
        assert [row["age"] for row in (await people.scan(columns=["age"])).value] == [30] * 30

    play(scenario)


async def write_many(people: TypedTable, count: int) -> None:
    for number in range(count):
        await people.insert(person("de", number, f"name {number}"))

"""`assay cluster up | status | check | ranges | call | repair`: a cluster in containers, seen as an operator.

The cluster that is up is told of in a file in the store, which is there as long as it is up.
"""

from __future__ import annotations

import asyncio
import signal
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from assay.options import within
from cluster.client import operating
from cluster.client.client import ClusterClient
from cluster.deploy.adapter import node_status
from cluster.deploy.readiness import ready_timeout_s
from cluster.health.check import ClusterReport, look, report_text
from cluster.health.ranges import look_at_ranges, ranges_text
from cluster.quorum.client import repair_table
from cluster.quorum.messages import Repaired
from cluster.raft.types import Member
from cluster.store.schema import AddColumn, AlterStep, Column, DropColumn, RenameColumn
from cluster.wire.messages import (
    WIRE_VERSION,
    DoneReply,
    GetTableLocations,
    GetTableSchema,
    GetTabletLocations,
    IsAlterTableDone,
    IsCreateTableDone,
    ListMasters,
    ListTables,
    ListTablesReply,
    ListTabletServers,
    MastersReply,
    Regional,
    Replicas,
    Request,
    TableLocationsReply,
    TableSchemaReply,
    TabletLocationsReply,
    TabletServersReply,
)
from harness.errors import UNDECODABLE, DefiniteError, HarnessError, IndefiniteError, UserError
from harness.history.rundir import open_run, write_atomic
from harness.ports.api import Hello, Ports
from harness.protocols import Node, NodeStatus
from harness.verdict.run_seal import broken_seal

Arguments = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """One call: its arguments, those that may be left out with what they are then (None: it must be there)."""

    arguments: Mapping[str, str | None]
    make: Callable[[ClusterClient, Arguments], Awaitable[Any]]

    def usage(self, name: str) -> str:
        words = [f"{key}=…" if default is None else f"[{key}={default}]" for key, default in self.arguments.items()]
        return " ".join([name, *words])


def columns(text: str) -> tuple[Column, ...]:
    """`k:int64:key,v:string` as columns; raises UserError."""
    return tuple(_column(part) for part in text.split(",") if part)


def _column(part: str) -> Column:
    name, _, rest = part.partition(":")
    kind, _, key = rest.partition(":")
    if not name or not kind or key not in ("", "key"):
        raise UserError(f"A column is NAME:TYPE or NAME:TYPE:key, not {part!r}.")
    return Column(-1, name, kind, nullable=key != "key", key=key == "key")


def steps(arguments: Arguments) -> tuple[AlterStep, ...]:
    """What `add`, `drop` and `rename` ask for, in this order; raises UserError."""
    made: list[AlterStep] = [AddColumn(column) for column in columns(arguments["add"])]
    made += [DropColumn(name) for name in arguments["drop"].split(",") if name]
    for pair in filter(None, arguments["rename"].split(",")):
        old, _, new = pair.partition(":")
        if not old or not new:
            raise UserError(f"A column is renamed by OLD:NEW, not {pair!r}.")
        made.append(RenameColumn(old, new))
    return tuple(made)


def _number(arguments: Arguments, name: str) -> int:
    try:
        return int(arguments[name])
    except ValueError as error:
        raise UserError(f"{name} takes a whole number, not {arguments[name]!r}.") from error


def _create(client: ClusterClient, given: Arguments) -> Awaitable[Any]:
    buckets, replicas = _number(given, "buckets"), _replicas(given)
    schema = columns(given["columns"])
    return client.catalog.create_table(given["name"], schema, buckets, replicas, given["design"], given["policy"])


def _replicas(given: Arguments) -> Replicas:
    """A number of `replicas`, or some by zone: `home=z1 voters=z1:2,z2:1 learners=z3:1`; raises UserError."""
    if given["voters"]:
        return Regional(given["home"], _by_zone(given, "voters"), _by_zone(given, "learners"))
    if given["home"] or given["learners"]:
        raise UserError("Replicas that stand in certain zones have voters=ZONE:NUMBER,… among them.")
    return _number(given, "replicas")


def _by_zone(given: Arguments, name: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in filter(None, given[name].split(",")):
        zone, _, count = part.rpartition(":")
        if not zone or not count.isdecimal() or zone in found:
            raise UserError(f"{name} are told as ZONE:NUMBER,…, each zone once, not {given[name]!r}.")
        found[zone] = int(count)
    return found


def _place(client: ClusterClient, given: Arguments) -> Awaitable[Any]:
    return client.catalog.place_table(_replicas(given), given["name"], given["table_id"])


def _alter(client: ClusterClient, given: Arguments) -> Awaitable[Any]:
    new_name, policy = given["new_name"] or None, given["policy"] or None
    return client.catalog.alter_table(given["name"], steps(given), new_name, given["table_id"], policy)


def _delete(client: ClusterClient, given: Arguments) -> Awaitable[Any]:
    return client.catalog.delete_table(given["name"], given["table_id"])


def _change_masters(client: ClusterClient, given: Arguments) -> Awaitable[Any]:
    if bool(given["add"]) != bool(given["address"]):
        raise UserError("A master that is to join needs both: add=SERVER_ID address=HOST:PORT.")
    newcomer = Member(given["add"], given["address"]) if given["add"] else None
    return operating.change_masters(client, newcomer, given["remove"] or None)


def _decommission(client: ClusterClient, given: Arguments) -> Awaitable[Any]:
    if given["leaving"] not in ("yes", "no"):
        raise UserError(f"leaving is yes or no, not {given['leaving']!r}.")
    return operating.decommission(client, given["server"], given["leaving"] == "yes")


async def _transfer(client: ClusterClient, given: Arguments) -> Any:
    address = await operating.leader_address(client, given["group"])
    return await operating.transfer_leadership(client, address, given["group"], given["target"], TRANSFER_TIMEOUT_S)


CALL_TIMEOUT_S = 5.0
TRANSFER_TIMEOUT_S = 0.8 * CALL_TIMEOUT_S
"""A leader is left so long to hand over; its answer has to arrive within the call's time."""

_NAME: Final[Mapping[str, str | None]] = {"name": None}
_WHICH: Final[Mapping[str, str | None]] = {"name": "", "table_id": ""}
_REPLICAS: Final[Mapping[str, str | None]] = {"replicas": "3", "home": "", "voters": "", "learners": ""}
_TABLE: Final = {"columns": "value:int64", "buckets": "1", **_REPLICAS, "design": "raft", "policy": ""}
_MASTERS: Final = {"add": "", "address": "", "remove": ""}

CHANGES: Final[Mapping[str, OperatorCall]] = {
    "CreateTable": OperatorCall({**_NAME, **_TABLE}, _create),
    "AlterTable": OperatorCall({**_WHICH, "add": "", "drop": "", "rename": "", "new_name": "", "policy": ""}, _alter),
    "DeleteTable": OperatorCall(_WHICH, _delete),
    "PlaceTable": OperatorCall({**_WHICH, **_REPLICAS}, _place),
    "ChangeMasters": OperatorCall(_MASTERS, _change_masters),
    "DecommissionServer": OperatorCall({"server": None, "leaving": "yes"}, _decommission),
    "TransferLeadership": OperatorCall({"group": None, "target": None}, _transfer),
}


def _question(arguments: Mapping[str, str | None], make: Callable[..., Request], reply: type[Any]) -> OperatorCall:
    """A question, put to the leader master, or where `max_staleness_ms` allows an age to any one (M13)."""

    def ask(client: ClusterClient, given: Arguments) -> Awaitable[Any]:
        bound = _number(given, "max_staleness_ms") if given["max_staleness_ms"] else None
        request = make(**{key: given[key] for key in arguments}, max_staleness_ms=bound)
        return (client.ask_leader if bound is None else client.ask_any_master)(request, reply)

    return OperatorCall({**arguments, "max_staleness_ms": ""}, ask)


def _tablets(tablets: str, max_staleness_ms: int | None) -> GetTabletLocations:
    return GetTabletLocations(tuple(tablets.split(",")), max_staleness_ms)


QUESTIONS: Final[Mapping[str, OperatorCall]] = {
    "IsCreateTableDone": _question(_WHICH, IsCreateTableDone, DoneReply),
    "IsAlterTableDone": _question(_WHICH, IsAlterTableDone, DoneReply),
    "ListTables": _question({}, ListTables, ListTablesReply),
    "GetTableSchema": _question(_WHICH, GetTableSchema, TableSchemaReply),
    "GetTableLocations": _question(_WHICH, GetTableLocations, TableLocationsReply),
    "GetTabletLocations": _question({"tablets": None}, _tablets, TabletLocationsReply),
    "ListTabletServers": _question({}, ListTabletServers, TabletServersReply),
    "ListMasters": _question({}, ListMasters, MastersReply),
    "GetDecommission": OperatorCall(
        {"server": None}, lambda client, given: operating.decommission_state(client, given["server"])
    ),
}
"""GetDecommission knows no age: what it counts is the leader's alone."""

CALLS: Final[Mapping[str, OperatorCall]] = {**CHANGES, **QUESTIONS}


def prepared(name: str, words: Sequence[str]) -> Callable[[ClusterClient], Awaitable[Any]]:
    """The call that the words ask for; raises UserError for what there is not, or not in this form."""
    if name not in CALLS:
        raise UserError(f"There is no call {name!r}; there are: {', '.join(CALLS)}.")
    call = CALLS[name]
    given: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or key not in call.arguments:
            raise UserError(f"{word!r} is no argument of {name}: {call.usage(name)}.")
        given[key] = value
    for key, default in call.arguments.items():
        if key not in given and default is None:
            raise UserError(f"{name} needs {key}: {call.usage(name)}.")
        given.setdefault(key, default or "")
    if call.arguments.keys() >= _WHICH.keys() and not any(given[key] for key in _WHICH):
        raise UserError(f"{name} needs {' or '.join(_WHICH)}: {call.usage(name)}.")
    return lambda client: call.make(client, given)


UP_FILE = "cluster-up.json"
STATUS_TIMEOUT_S = 1.0
SETTLE_S = 3.0
_LONGEST_REPAIR_S = 7 * 24 * 3600.0
NOBODY_KNOWS_NS = 0

T = TypeVar("T")
Tell = Callable[[str], None]


class UpNode(msgspec.Struct, frozen=True):
    name: str
    role: str
    zone: str
    address: str


class UpCluster(msgspec.Struct, frozen=True):
    """`cluster-up.json`: how to reach a cluster that is up."""

    cluster_id: str
    nodes: tuple[UpNode, ...]

    @property
    def masters(self) -> tuple[str, ...]:
        return tuple(node.address for node in self.nodes if node.role == "master")


# ---- check, status, call ----


def check_cluster(run: Path | None, store: Path, json_output: bool) -> int:
    """Show the report of a saved run, or look at the cluster that is up; 0 if it is healthy, else 1."""
    report = saved_report(run) if run is not None else asyncio.run(with_cluster(store, _look))
    print(as_json(report) if json_output else report_text(report))
    return 0 if report.healthy else 1


def show_status(store: Path, json_output: bool) -> int:
    """Who is there and what they do; 0 if a leader master answers, else 1."""
    report = asyncio.run(with_cluster(store, lambda client, up: _look(client, up, 0.0)))
    print(as_json(report) if json_output else report_text(msgspec.structs.replace(report, problems=(), healthy=True)))
    return 0 if report.checked.get("tables") is not None and any(_leads(report)) else 1


def _leads(report: ClusterReport) -> Iterator[bool]:
    return (row.facts.get("state") == "leader" for row in report.masters)


def show_ranges(store: Path, table: str, json_output: bool) -> int:
    """How far ranges are closed, and where they stand; 0 if each has a holder, else 1. Raises UserError."""
    try:
        report = asyncio.run(with_cluster(store, lambda client, up: look_at_ranges(client, table)))
    except (DefiniteError, IndefiniteError) as error:
        raise UserError(f"Ranges can't be told ({error.kind}): {error}.") from error
    print(as_json(report) if json_output else ranges_text(report))
    return 0 if report.served else 1


def call_cluster(store: Path, name: str, words: Sequence[str]) -> int:
    """Make one call and print its answer as JSON; 0 if it succeeded, 1 if it was refused or its outcome is unknown."""
    make = prepared(name, words)
    try:
        answer = asyncio.run(with_cluster(store, lambda client, up: make(client)))
    except (DefiniteError, IndefiniteError) as error:
        known = "refused" if isinstance(error, DefiniteError) else "its outcome is unknown"
        print(f"{name} {known} ({error.kind}): {error}")
        return 1
    print(as_json(answer))
    return 0


def repair_cluster(store: Path, table: str, timeout_s: float) -> int:
    """Repair a legacy table and print what was done as JSON; 0 if it was done, 1 if not. Ctrl-c stops it."""
    within("--timeout", timeout_s, 0.1, _LONGEST_REPAIR_S)
    up = read_up(store)
    try:
        with client_ports(up) as ports:
            answer = asyncio.run(_repair(ports, up, table, timeout_s))
    except (DefiniteError, IndefiniteError) as error:
        print(f"{table} was not repaired, or in part ({error.kind}): {error}")
        return 1
    print(as_json(answer))
    return 0


async def _repair(ports: Ports, up: UpCluster, table: str, timeout_s: float) -> Repaired:
    try:
        servers = await ClusterClient(ports, up.masters, CALL_TIMEOUT_S).tablet_servers()
        live = [server for server in servers.servers if server.node_id in servers.live]
        if not live:
            raise DefiniteError("no-coordinator", "no tablet server is alive")
        return await repair_table(ports.network, live[0].address, table, timeout_s)
    finally:
        await ports.network.close()


def saved_report(run: Path) -> ClusterReport:
    """The report that a run ended with; raises UserError."""
    rundir = open_run(run)
    saved = rundir.read_json(rundir.cluster_json)
    if saved is None:
        raise UserError(f"{run} has no {rundir.cluster_json.name}: nobody looked at the cluster at its end.")
    if rundir.outcome_json.exists() and (unsealed := broken_seal(rundir)):
        raise UserError(f"The files of {run} are not those of one whole run: {unsealed[0]}.")
    try:
        return msgspec.convert(saved, ClusterReport)
    except msgspec.ValidationError as error:
        raise UserError(f"{rundir.cluster_json} can't be read: {error}.") from error


def as_json(value: Any) -> str:
    """Its fields by name, those that are set, also of structures that go over the wire without their names."""
    return msgspec.json.format(msgspec.json.encode(_named(value)), indent=2).decode()


def _named(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        return {name: _named(each) for name, each in fields.items() if each is not msgspec.UNSET}
    if isinstance(value, list | tuple):
        return [_named(each) for each in value]
    if isinstance(value, dict):
        return {key: _named(each) for key, each in value.items()}
    return value


async def _look(client: ClusterClient, up: UpCluster, settle_s: float = SETTLE_S) -> ClusterReport:
    from harness.ports.real.ports import RealClock

    nodes = tuple(Node(each.name, each.role, each.zone) for each in up.nodes)
    addresses = {each.name: each.address for each in up.nodes}

    async def status(name: str) -> NodeStatus | None:
        try:
            async with asyncio.timeout(STATUS_TIMEOUT_S):
                return node_status(await client.status(addresses[name]), NOBODY_KNOWS_NS)
        except (DefiniteError, TimeoutError):
            return None

    return await look(client, nodes, status, RealClock(), settle_s)


async def with_cluster(store: Path, work: Callable[[ClusterClient, UpCluster], Awaitable[T]]) -> T:
    """Do something with a client of the cluster that is up; raises UserError if none is."""
    up = read_up(store)
    with client_ports(up) as ports:
        try:
            return await work(ClusterClient(ports, up.masters, CALL_TIMEOUT_S), up)
        finally:
            await ports.network.close()


def read_up(store: Path) -> UpCluster:
    path = store / UP_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=UpCluster)
    except FileNotFoundError:
        raise UserError(f"No cluster is up (there is no {path}): start one with `assay cluster up`.") from None
    except (OSError, *UNDECODABLE) as error:
        raise UserError(f"{path} can't be read: {error}.") from error


@contextmanager
def client_ports(up: UpCluster) -> Iterator[Ports]:
    from harness.ports.real.ports import real_ports

    with tempfile.TemporaryDirectory(prefix="assay-client-") as folder:
        yield real_ports(Hello(up.cluster_id, "operator", 1, WIRE_VERSION), folder)


# ---- up ----


def keep_up(store: Path, masters: int, nodes: int, flaws: Sequence[str], tell: Tell) -> int:
    """Start a cluster in containers, say how to reach it, and remove everything at SIGINT or SIGTERM."""
    try:
        store.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"The store {store} can't be written ({error.strerror}); name another with --store.") from error
    if (store / UP_FILE).exists():
        raise UserError(f"A cluster is up already; or remove {store / UP_FILE} if that is no longer so.")
    asyncio.run(_up(store, masters, nodes, flaws, tell))
    return 0


async def _up(store: Path, masters: int, nodes: int, flaws: Sequence[str], tell: Tell) -> None:
    from cluster.deploy.database_ssh import SshDatabase
    from cluster.deploy.layout import Layout
    from harness.env.docker.environment import DockerEnvironment
    from harness.ports.real.ports import RealClock

    environment = DockerEnvironment(RealClock(), report=tell)
    await environment.prepare()
    database = SshDatabase(environment, Layout(masters, nodes), flaws)
    work = asyncio.create_task(_serve(environment, database, store, tell))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, work.cancel)
    try:
        await work
    except asyncio.CancelledError:
        pass  # The signal that ends it.
    finally:
        (store / UP_FILE).unlink(missing_ok=True)
        tell("removing the cluster")
        try:
            await database.teardown()
        finally:
            await environment.teardown()


async def _serve(environment: Any, database: Any, store: Path, tell: Tell) -> None:
    await environment.setup(database.nodes)
    await database.install()
    await asyncio.gather(*(database.start(node.name) for node in database.nodes))
    try:
        await database.await_ready(ready_timeout_s(len(database.nodes)))
    except TimeoutError as error:
        raise HarnessError(str(error)) from error
    up = [UpNode(node.name, node.role, node.zone, database.address(node.name)) for node in database.nodes]
    write_atomic(store / UP_FILE, msgspec.json.encode(UpCluster(database.cluster_id, tuple(up))))
    tell(f"a cluster is up: {', '.join(f'{node.name} at {node.address}' for node in up)}")
    tell("in another terminal: assay cluster status | check | call ListTables; ctrl-c here removes everything")
    await asyncio.Event().wait()

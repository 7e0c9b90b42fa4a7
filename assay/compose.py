"""Puts a run together from its options: the only place that knows environments, databases, nemeses and workloads.

With `--swarm` each seed draws its own cluster, load and faults (Groce et al. 2012, "Swarm testing"). A run that has
everything at once rarely has enough of anything: leaving out a random part of the kinds reaches states that all of them
together never do. All is drawn from the seed, so that the same command makes the same run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from assay.discovery import find_database, resolve_database_options
from assay.options import RunOptions
from assay.plugin import DatabasePlugin, Setup
from assay.reproduce.blocks import write_steps
from assay.reproduce.inputs import Inputs, Recording, load_inputs, save_inputs
from assay.worlds import REDRAWS, WorldSpec, draw_world, given_knobs, parse_world
from cluster.deploy.database import ReferenceDatabase
from cluster.deploy.database_sim import SimDatabase
from cluster.deploy.layout import Layout
from cluster.deploy.readiness import ready_timeout_s
from cluster.wire.messages import WIRE_VERSION
from harness.env.hosts_file import read_hosts
from harness.env.sim import SimEnvironment
from harness.errors import HarnessError, UserError
from harness.generators.played import played
from harness.history import rundir as rundirs
from harness.history.rundir import RunDir
from harness.ports.sim.draws import Draws, RecordedDraws
from harness.ports.sim.world import World
from harness.protocols import Database, Environment, Node, Tuning, failover_of, tuning_of
from harness.run.life_cycle import run
from harness.run.spec import Judge, RunListener, RunOutcome, Test
from harness.verdict.adequacy import parse_floors, without_availability
from harness.verdict.facts import write_verdict
from nemesis.asked import ALL, Asked, expand, parse_all
from nemesis.nemesis import FaultNemesis
from nemesis.packages import NemesisOptions, NemesisPackage, cost_s, fitting, joined, package, parted, wanted
from nemesis.planned import planned
from workloads.api import check_operations, draw_options, resolve_options
from workloads.registry import workload

MASTERS = (1, 3, 3, 3, 5)
NODES = (3, 4, 5, 5, 6, 7)
RATES_HZ = (30.0, 60.0, 100.0, 100.0, 200.0)
CONCURRENCY = (5, 5, 10, 10, 20)
"""Of fewer clients too few write: two fifths of a register's only read, and each is stuck in one request at a time."""
SLOW_WAITS, WAITS = "slow-waits", (1, 0, 3, 0)
"""The key of worlds that swarms alone draw, and its values."""
MOST_KINDS = 6
PACED_SHARE = 0.4
"""How often a kind has a pace of its own."""


def draw_cluster(options: RunOptions, least_nodes: int = 1) -> RunOptions:
    """The options with cluster and load as the seed has them, of at least the nodes that the workload needs; the world
    is drawn from the seed anyway."""
    entropy = Random(f"swarm/{options.seed}")
    return replace(
        options,
        masters=entropy.choice(MASTERS),
        nodes=max(entropy.choice(NODES), least_nodes),
        rate=entropy.choice(RATES_HZ),
        concurrency=entropy.choice(CONCURRENCY),
    )


def draw_faults(options: RunOptions, offered: frozenset[str], tuning: Tuning | None = None) -> tuple[str, ...]:
    """A random part of the kinds asked for, some with a random pace, as `--nemesis` takes them.

    Those asked for by name that can't be done here stay among them, to be refused, as does `all` where it stands for
    none. Of kinds with settings of their own from the user the settings are kept. A draw with a pace that is longer
    than the run is drawn again.
    """
    asked = parse_all(options.nemesis)
    named = [each.name for each in asked]
    kinds, joining = parted(expand(asked, offered, tuning), named)
    if not kinds:
        return options.nemesis if asked else ()
    least = 1 if ALL in named else min(2, len(kinds))
    drawn = kinds
    for again in ("", *(f"/{number}" for number in range(1, REDRAWS))):
        drawn = _draw_kinds(kinds, least, options.time_limit, Random(f"swarm/{options.seed}/faults{again}"))
        if all(each in kinds or (each.every_s or 0.0) <= options.time_limit for each in drawn):
            break
    return tuple(each.text() for each in joined(drawn, joining, named, f"swarm/{options.seed}/faults"))


def _draw_kinds(kinds: Sequence[Asked], least: int, time_limit_s: float, entropy: Random) -> tuple[Asked, ...]:
    """A draw of at least `least` kinds, as far as they have time, in the order given."""
    count = entropy.randint(least, min(len(kinds), MOST_KINDS))
    drawn = fitting(entropy.sample(kinds, count), (), time_limit_s, entropy)
    left_s = time_limit_s - sum(map(cost_s, drawn))
    faults = []
    for each in (kind for kind in kinds if kind in drawn):
        paced = _paced(each, entropy, cost_s(each) + max(left_s, 0.0))
        left_s -= cost_s(paced) - cost_s(each)
        faults.append(paced)
    return tuple(faults)


def _paced(asked: Asked, entropy: Random, longest_s: float) -> Asked:
    """Maybe with a pace of its own, such that every kind still has its turn within the run."""
    every_s, share = round(entropy.uniform(3.0, 12.0), 1), entropy.uniform(0.2, 0.7)
    alone = asked.every_s is None and asked.for_s is None and entropy.random() < PACED_SHARE
    if not alone or every_s > longest_s:
        return asked
    return msgspec.structs.replace(asked, every_s=every_s, for_s=round(every_s * share, 1))


def drawn_words(options: RunOptions, nemeses: Sequence[str]) -> str:
    """What was drawn, in one line for people."""
    return (
        f"swarm: masters={options.masters}, nodes={options.nodes}, rate={options.rate:g}, "
        f"concurrency={options.concurrency}, nemesis={','.join(nemeses) or 'none'}"
        + "".join(f", {name}={value}" for name, value in options.workload_options.items())
    )


VOLUME_MIB = 64
"""The size of the data volume of a node in a container whose disk is to be full at times."""

EXTRA_SHARE, MOST_EXTRA_S = 5.0, 60.0
"""Of the time limit, and in seconds: how much longer a load goes on that has not shown what was asked of it.

Links between continents let five clients do a dozen operations a second: of each kind that `catalog` has, too few of
them succeed within three times 12 s.
"""

Tell = Callable[[str], None]
"""Takes a sentence for the user about a step that takes long."""


ZONES_OF_CONTAINERS = 3
"""As many as a tablet has replicas: the loss of one can be survived."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A run that is over. `trace` is the digest of the simulation's every step, None outside the simulator."""

    outcome: RunOutcome
    trace: str | None = None


def make_test(
    options: RunOptions,
    environment: Environment,
    database: Database,
    started: datetime,
    tell: Tell = lambda _: None,
    world: WorldSpec | None = None,
    inputs: Inputs | None = None,
) -> Test:
    """The run that the options describe; raises UserError for what this database or environment can't do.

    The seed and what was drawn with it (the world, of `all`, by `--swarm`) is told, and saved. With `inputs` operations
    and faults are theirs.
    """
    chosen = workload(options.workload)
    offered = frozenset(database.capabilities | environment.capabilities)
    nemeses = draw_faults(options, offered, tuning_of(database)) if options.swarm else options.nemesis
    check_operations(chosen, database.name, database.operations)
    values = resolve_options(chosen, options.workload_options)
    entropy = Random(options.seed)
    floors = parse_floors({**{name: f"{floor:g}" for name, floor in chosen.floors.items()}, **options.floors})
    pinned = {} if inputs is None else inputs.pinned(options.targets)
    asked = NemesisOptions(5.0, options.probe_period, options.time_limit, options.swarm, floors, pinned)
    faults = package(nemeses, database, environment, asked, child(entropy))
    own = [floor for floor in chosen.own_floors if floor.nemesis in ("", *faults.kinds)]
    for line in _drawn(options, nemeses, faults, world):
        tell(line)
    test = Test(
        name=options.workload,
        workload=options.workload,
        environment=environment,
        database=database,
        nemesis=faults.nemesis,
        generator=chosen.generator(values, child(entropy)),
        started=started,
        seed=entropy.getrandbits(53),
        concurrency=options.concurrency,
        time_limit_s=options.time_limit,
        extra_s=min(EXTRA_SHARE * options.time_limit, MOST_EXTRA_S),
        rate_hz=options.rate,
        final_generator=chosen.final_generator and chosen.final_generator(values, child(entropy)),
        each_node=chosen.each_node,
        nemesis_generator=faults.generator if faults.kinds else None,
        heal_generator=faults.final_generator if faults.kinds else None,
        fs=chosen.fs,
        requested_faults=faults.kinds,
        floors=without_availability(floors) if faults.unavailable else floors,
        own_floors=() if faults.unavailable else tuple(own),
        op_timeout_s=options.op_timeout,
        ready_timeout_s=ready_timeout_s(len(database.nodes)),
        recovery_budget_s=_recovery_budget_s(options, database),
        workload_options=values,
        unpromised=chosen.unpromised(values),
        models=chosen.checkers,
        settings=chosen.settings(values),
        keep_journal=options.keep_journal,
        options=_record_of(options, chosen.checkers, nemeses),
    )
    return test if inputs is None else with_inputs(test, inputs)


def with_inputs(test: Test, inputs: Inputs) -> Test:
    """The run whose operations and faults are these."""
    if not inputs.own_load:
        test = replace(test, generator=played(inputs.operations, test.concurrency), timed=True)
    return replace(
        test,
        nemesis_generator=planned(inputs.faults) if test.nemesis_generator is not None else None,
        extra_s=test.extra_s if inputs.extend else 0.0,
    )


def _record_of(options: RunOptions, checkers: Sequence[str], nemeses: Sequence[str]) -> dict[str, Any]:
    """What `run.json` keeps of the options."""
    made = {"command": options.command(), "checkers": list(checkers), "faults": list(nemeses)}
    return {**options.as_dict(), **made}


def _recovery_budget_s(options: RunOptions, database: Database) -> float:
    """What the options say, but at least one fail-over by the cluster's own timeouts and leases: a fault may have had
    the last leader fall as it was healed."""
    return max(options.recovery_budget, failover_of(database))


def _drawn(
    options: RunOptions, nemeses: tuple[str, ...], faults: NemesisPackage, world: WorldSpec | None
) -> Iterator[str]:
    """The seed, and what was drawn with it."""
    yield f"seed {options.seed}"
    if world is not None:
        yield f"world: {world.line()}"
    if options.swarm:
        yield drawn_words(options, nemeses)
    if faults.unavailable:
        yield "some groups can't be served meanwhile: the run is asked for safety and recovery only"
    if ALL in nemeses:
        yield f"faults: {', '.join(faults.kinds)}"


def child(entropy: Random) -> Random:
    """A generator of its own for one subsystem."""
    return Random(entropy.getrandbits(64))


def spared(options: RunOptions) -> tuple[str, ...]:
    """The keys of worlds that are left alone for the workload's sake: deletions of a legacy table come back once their
    grace period is over, unless a repair was faster."""
    values = resolve_options(workload(options.workload), options.workload_options)
    return () if values.get("table", "logged") == "logged" else ("deletion-grace-ms",)


def world_of(options: RunOptions) -> str:
    """What the world is told: what the workload wants of it, but for what the user tells."""
    given = parse_world(options.world)
    told = [f"{key}={value}" for key, value in workload(options.workload).world.items() if key not in given]
    return ",".join([*told, options.world] if options.world else told)


def make_world(options: RunOptions, spec: WorldSpec, draws: Draws | None = None) -> World:
    """The simulated world of a run, which decides by the seed, or by `draws`."""
    nodes = layout_of(options, spec.zones).nodes()
    return World(
        options.seed,
        network=spec.physical.link_options,
        disk=spec.physical.disk_options(),
        machines=spec.machines(options.seed, nodes),
        version=WIRE_VERSION,
        draws=draws,
    )


def layout_of(options: RunOptions, zones: int) -> Layout:
    """The nodes of a run, over `zones` zones where it was not told over how many."""
    return Layout(options.masters, options.nodes, options.zones or zones, data_centres(options))


def simulated_database(world: World, options: RunOptions, spec: WorldSpec) -> SimDatabase:
    """The reference cluster in that world."""
    database = SimDatabase(world, layout_of(options, spec.zones), options.flaw, spec.knobs)
    tell_workload(database, options)
    return database


def tell_workload(database: ReferenceDatabase, options: RunOptions) -> None:
    """Tell the database what is to be run on it; raises UserError."""
    database.workload = options.workload
    database.workload_options = resolve_options(workload(options.workload), options.workload_options)
    wanted, places = replication(options), data_centres(options)
    if wanted > (there := options.nodes // places):
        where = "there" if places == 1 else f"in the smallest of {places} data centres"
        raise UserError(
            f"-o replication={wanted} needs {wanted} tablet servers {where}; --nodes {options.nodes} makes {there}."
        )


def data_centres(options: RunOptions) -> int:
    """Over how many the workload wants the nodes to be spread; raises UserError."""
    return _number(options, "data-centres")


def swarmed(options: RunOptions) -> RunOptions:
    """The options with a load of the workload that the seed draws, slow waits in its world, and a cluster, with room
    for the workload's replicas; raises UserError."""
    drawn = draw_options(workload(options.workload), options.workload_options, options.seed)
    options = replace(options, workload_options=drawn)
    count = Random(f"swarm/{options.seed}/world/{SLOW_WAITS}").choice(WAITS)
    if options.on == "sim" and count and SLOW_WAITS not in parse_world(options.world):
        options = replace(options, world=",".join(filter(None, (options.world, f"{SLOW_WAITS}={count}"))))
    return draw_cluster(options, replication(options) * data_centres(options))


def replication(options: RunOptions) -> int:
    """How many replicas the workload wants in each of them; raises UserError."""
    return _number(options, "replication")


def _number(options: RunOptions, name: str) -> int:
    """A setting of the workload; 1 of one that has no such setting."""
    return int(resolve_options(workload(options.workload), options.workload_options).get(name, 1))


def run_simulated(
    options: RunOptions, rundir: RunDir, judge: Judge, progress: RunListener, started: datetime, tell: Tell
) -> Finished:
    """Run in the simulator, in virtual time; the seed decides everything, or the inputs do."""
    inputs = _inputs_of(options)
    spec = draw_world(options.seed, world_of(options), spared(options))
    draws = inputs.draws() if inputs else Draws()
    recorded = None if options.record is None else RecordedDraws(draws)
    listener = progress if recorded is None else Recording(progress)
    with make_world(options, spec, recorded or draws) as world:
        environment, database = SimEnvironment(world), simulated_database(world, options, spec)
        test = make_test(options, environment, database, started, tell, spec, inputs)
        test = replace(test, world=spec.values, floors=spec.eased(test.floors, options.rate, options.concurrency))
        outcome = world.run(run(test, rundir, judge, listener))
        if isinstance(listener, Recording) and recorded is not None and options.record is not None:
            assert isinstance(test.nemesis, FaultNemesis)
            whole = replace(options, world=spec.line())
            extend = inputs is None or inputs.extend
            save_inputs(listener.inputs(whole, test.nemesis, recorded.streams, extend), options.record)
        trace = world.trace_digest()
        if outcome.rundir.verdict_json.exists():
            with suppress(HarnessError):  # the verdict stays saved without it
                write_verdict(rundir, outcome.verdict, outcome.account, trace)
                write_steps(rundir.steps_jsonl, world.loop.marks)
        return Finished(outcome, trace)


def _inputs_of(options: RunOptions) -> Inputs | None:
    """The inputs that are to be carried out; raises UserError for what are none."""
    return None if options.inputs is None else load_inputs(options.inputs)


def run_in_docker(
    options: RunOptions, rundir: RunDir, judge: Judge, progress: RunListener, started: datetime, tell: Tell
) -> Finished:
    """Run in containers, in real time."""
    import uvloop

    from cluster.deploy.database_ssh import SshDatabase
    from cluster.deploy.node_files import LOG_PATH
    from harness.env.docker.environment import DockerEnvironment
    from harness.env.docker.images import image_spec
    from harness.env.docker.machines import KeptLogs
    from harness.ports.real.ports import RealClock

    inputs = _inputs_of(options)

    async def main() -> RunOutcome:
        needed = wanted(options.nemesis)
        volume_mib = VOLUME_MIB if "full-disk" in needed else None
        logs = KeptLogs(LOG_PATH, rundir.nodes.absolute())
        environment = DockerEnvironment(RealClock(), image_spec(*made_of(options)), tell, volume_mib, logs)
        await environment.prepare(try_out=not needed.isdisjoint({"clock", "packets"}))
        variables = environment.program_environment if "clock" in needed & environment.capabilities else {}
        database: Database
        if options.database:
            database = own_database(options, environment, variables)
            test = of_plugin(make_test(options, environment, database, started, tell, inputs=inputs), options)
        else:
            layout, knobs = layout_of(options, ZONES_OF_CONTAINERS), given_knobs(world_of(options))
            reference = SshDatabase(environment, layout, options.flaw, knobs, options.seed, variables)
            tell_workload(reference, options)
            database = reference
            test = make_test(options, environment, database, started, tell, inputs=inputs)
        containers = f"assay-{environment.run_id}-NODE"
        left = f"the nodes' logs are in the containers {containers}; `assay doctor --clean` saves them with the run"
        return await run(replace(test, logs_left=left), rundir, judge, progress)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return Finished(runner.run(main()))


def run_on_hosts(
    options: RunOptions, rundir: RunDir, judge: Judge, progress: RunListener, started: datetime, tell: Tell
) -> Finished:
    """Run on hosts over SSH, in real time."""
    import uvloop

    from harness.env.hosts import SshEnvironment
    from harness.ports.real.ports import RealClock

    inputs = _inputs_of(options)

    async def main() -> RunOutcome:
        assert options.hosts is not None
        environment = SshEnvironment(RealClock(), read_hosts(options.hosts)[: options.nodes], tell)
        try:
            await environment.prepare(options.install)
            variables = (
                environment.program_environment if "clock" in wanted(options.nemesis) & environment.capabilities else {}
            )
            database = own_database(options, environment, variables)
            test = of_plugin(make_test(options, environment, database, started, tell, inputs=inputs), options)
        except BaseException:
            await environment.teardown()
            raise
        left = f"the hosts are as the run left them; `assay doctor --hosts {options.hosts} --clean` frees them"
        return await run(replace(test, logs_left=left), rundir, judge, progress)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return Finished(runner.run(main()))


def made_of(options: RunOptions) -> tuple[tuple[str, ...], str]:
    """Debian's packages that nodes in containers need beside our own, or the image that they are made of instead: what
    the database's plugin says, or the user."""
    if not options.database:
        return (), ""
    plugin: DatabasePlugin = find_database(options.database).value
    own = options.image or plugin.image
    return () if own else tuple(plugin.packages), own


def own_database(options: RunOptions, environment: Environment, variables: Mapping[str, str]) -> Database:
    """A database that is not ours, as its plugin makes it of the options; raises UserError."""
    found = find_database(options.database)
    setup = Setup(
        nodes=own_nodes(options),
        options=resolve_database_options(found.value, options.database_options),
        workload=options.workload,
        workload_options=resolve_options(workload(options.workload), options.workload_options),
        seed=options.seed,
        variables=variables,
    )
    try:
        made: Database = found.value.make(environment, setup)
    except UserError:
        raise
    except Exception as error:
        raise UserError(found.blamed(error)) from error
    return made


def own_nodes(options: RunOptions) -> tuple[Node, ...]:
    """`n1`, `n2`, …, or the first hosts of their file, over the zones that were asked for, in turn."""
    zones = options.zones or 1
    hosts = () if options.hosts is None else read_hosts(options.hosts)
    names = [host.name for host in hosts] or [f"n{number + 1}" for number in range(options.nodes)]
    return tuple(Node(name, "node", f"z{number % zones + 1}") for number, name in enumerate(names[: options.nodes]))


def of_plugin(test: Test, options: RunOptions) -> Test:
    """The test with what its record says of a database that is not ours."""
    found = find_database(options.database)
    values = resolve_database_options(found.value, options.database_options)
    return replace(test, plugin={**found.origin, "options": values}, packages=tuple(found.value.packages))


def carry_out(
    options: RunOptions,
    judge: Judge,
    progress: RunListener,
    started: datetime,
    tell: Tell,
    store: Path | None = None,
) -> Finished:
    """One run from start to end, saved in the store (its options' own, unless another is given); what the user can't
    have leaves nothing there."""
    directory = rundirs.create(store or options.store, options.workload, started)
    options = swarmed(options) if options.swarm else options
    try:
        if options.on == "docker":
            return run_in_docker(options, directory, judge, progress, started, tell)
        if options.on == "ssh":
            return run_on_hosts(options, directory, judge, progress, started, tell)
        return run_simulated(options, directory, judge, progress, started, tell)
    except BaseException:
        discard_if_empty(directory)
        raise


def discard_if_empty(directory: RunDir) -> None:
    """Remove a run that ended before it began."""
    if not directory.run_json.exists():
        directory.discard()

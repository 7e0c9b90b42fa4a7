"""The command line: `assay run | night | check | verify | new | generate | pack | export | import | list | …`."""

from __future__ import annotations

import atexit
import os
import random
import sys
import threading
import traceback
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from assay.cli_options import (
    COUNT_HELP,
    LOAD_HELP,
    MASTERS_HELP,
    NODES_HELP,
    SEARCH_HELP,
    SEED_LIMIT_HELP,
    SEEDS_HELP,
    UNTIL_HELP,
    ZONES_HELP,
    Again,
    CheckReport,
    CompletionsAlone,
    Consistency,
    Database,
    DatabaseOptions,
    Debug,
    Evidence,
    FailedCas,
    Flaws,
    Hosts,
    Image,
    Inputs,
    KeepJournal,
    Manifest,
    Model,
    ModelSettings,
    Nemeses,
    Plugins,
    Record,
    SparkArchive,
    SparkMaster,
    Swarm,
    Targets,
    WhatIsWhole,
)
from assay.night_options import compare, gate, index, night_app, triage
from assay.telling import EXIT_WITHOUT_VERDICT, Untold, print_any_name, say_at_once
from harness.errors import HarnessError, UnwritableError, UserError

if TYPE_CHECKING:
    from assay.processes import JudgeProcess

EXIT_VALID, EXIT_INVALID, EXIT_UNKNOWN, EXIT_BAD_ARGUMENTS, EXIT_HARNESS = 0, 1, 2, 254, EXIT_WITHOUT_VERDICT
PARSER_INTERRUPTED = 130

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    help="Torture tests for distributed databases: run, judge, explain.",
)


def print_version(wanted: bool) -> None:
    """Print the version and end, if that is asked."""
    if wanted:
        from importlib.metadata import version

        typer.echo(f"assay {version('assay')}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Torture tests for distributed databases: run, judge, explain."""


def judging(one_run: bool) -> AbstractContextManager[JudgeProcess | None]:
    """The process that judges one run; it loads what that takes while this one loads what a run takes. Where there are
    many, a wish to end is answered now, and ends them once they could begin."""
    if one_run:
        from assay.processes import judge_process

        return judge_process()
    from harness.run.stopping import AskedToEnd

    return AskedToEnd(lambda times: say_at_once("stopping before the first seed.")).in_charge()


def loading_only() -> AbstractContextManager[None]:
    """Where modules are loaded and nothing else is done (see `assay.processes`)."""
    from assay.processes import loading

    return loading(_process.is_program)


@app.command()
def run(
    workload: Annotated[str, typer.Argument(help="What the clients do; see `assay list workloads`.")] = "",
    on: Annotated[str, typer.Option(help="Where the cluster runs: sim, docker or ssh.")] = "sim",
    nemesis: Nemeses = None,
    time_limit: Annotated[float, typer.Option(help=LOAD_HELP)] = 60.0,
    rate: Annotated[float, typer.Option(help="Operations a second, over all clients.")] = 100.0,
    concurrency: Annotated[int, typer.Option(help="Clients at work at once.")] = 10,
    database: Database = None,
    plugin: Plugins = None,
    database_option: DatabaseOptions = None,
    image: Image = None,
    hosts: Hosts = None,
    install: Annotated[bool, typer.Option("--install", help="Install on hosts what they lack for faults.")] = False,
    masters: Annotated[int | None, typer.Option(help=MASTERS_HELP)] = None,
    nodes: Annotated[int | None, typer.Option(help=NODES_HELP)] = None,
    zones: Annotated[int | None, typer.Option(help=ZONES_HELP)] = None,
    seed: Annotated[int | None, typer.Option(help="The seed of all choices; a random one if not given.")] = None,
    seeds: Annotated[list[str] | None, typer.Option(help=SEEDS_HELP)] = None,
    until_invalid: Annotated[bool, typer.Option("--until-invalid", help=UNTIL_HELP)] = False,
    test_count: Annotated[int | None, typer.Option(help=COUNT_HELP)] = None,
    seed_timeout: Annotated[float | None, typer.Option(help=SEED_LIMIT_HELP)] = None,
    jobs: Annotated[int, typer.Option(help="With many seeds: how many processes work at once.")] = 1,
    keep_valid: Annotated[bool, typer.Option("--keep-valid", help="With many seeds: keep valid runs too.")] = False,
    flaw: Flaws = None,
    swarm: Swarm = False,
    world: Annotated[list[str] | None, typer.Option(help="KEY=VALUE,… of the world; see `assay list worlds`.")] = None,
    keep_journal: KeepJournal = False,
    store: Annotated[Path, typer.Option(help="Directory that runs are saved in.")] = Path("store"),
    op_timeout: Annotated[float, typer.Option(help="Seconds a client waits for one operation.")] = 5.0,
    recovery_budget: Annotated[float, typer.Option(help="Seconds to recover; a fail-over at least.")] = 10.0,
    probe_period: Annotated[float, typer.Option(help="Seconds between two looks at a fault while it lasts.")] = 0.5,
    floor: Annotated[list[str] | None, typer.Option(help="KEY=VALUE: what a run must reach; repeatable.")] = None,
    option: Annotated[list[str] | None, typer.Option("-o", help="KEY=VALUE for the workload; repeatable.")] = None,
    table: Annotated[str | None, typer.Option(help="How its table is replicated; short for -o table=.")] = None,
    inputs: Inputs = None,
    targets: Targets = "node",
    record: Record = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print the verdict as one JSON object.")] = False,
    debug: Debug = False,
) -> int:
    """Start a cluster, throw faults at it while clients work, save the history and judge it."""
    with judging(not (seeds or until_invalid or test_count is not None)) as judge:
        with loading_only():
            from assay.options import RunOptions, asked_of, system_of
            from assay.run_command import Many, carried_out, run_or_runs
        same: dict[str, Any] = {"on": on, "store": store, "swarm": swarm, "keep_journal": keep_journal}
        same |= {"workload": workload, "inputs": inputs, "targets": targets, "record": record}
        same |= {"time_limit": time_limit, "rate": rate, "op_timeout": op_timeout, "probe_period": probe_period}
        same |= {"concurrency": concurrency, "zones": zones, "recovery_budget": recovery_budget, "install": install}
        options = RunOptions(
            **system_of(database, masters, nodes, plugin, database_option, image, hosts),
            **asked_of(nemesis, flaw, world, floor, option, table),
            **same,
            seed=seed if seed is not None else 0 if inputs else random.SystemRandom().getrandbits(32),
        )
        many = Many(seeds, jobs, keep_valid, seed is not None, until_invalid, test_count, seed_timeout)
        options = carried_out(options, many)
        return run_or_runs(options, many, json_output, judge, _process.is_program)


@app.command()
def check(
    paths: Annotated[list[str] | None, typer.Argument(help="Run directories or history files.")] = None,
    model: Model = None,
    format: Annotated[str, typer.Option(help="The files' format; auto detects it.")] = "auto",
    engine: Annotated[str, typer.Option(help="auto, local or spark.")] = "auto",
    failed_cas: FailedCas = "auto",
    consistency: Consistency = None,
    alone: CompletionsAlone = False,
    report: CheckReport = None,
    evidence: Evidence = None,
    setting: ModelSettings = None,
    manifest: Manifest = None,
    what_is_whole: WhatIsWhole = False,
    again: Again = False,
    spark_master: SparkMaster = None,
    spark_conf: Annotated[list[str] | None, typer.Option(help="spark.NAME=VALUE for Spark; repeatable.")] = None,
    spark_archive: SparkArchive = None,
    time_limit: Annotated[float, typer.Option(min=0, help=SEARCH_HELP.format("Seconds"))] = 60.0,
    memory_limit: Annotated[int, typer.Option(min=1, help=SEARCH_HELP.format("MiB"))] = 1024,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON object for each input.")] = False,
    debug: Debug = False,
) -> int:
    """Judge saved runs and histories."""
    leave_pandas_out()
    from assay import check_command as command
    from assay.evidence import require_evidence

    model = command.named_model(model)
    command.one_kind_of_input(paths or [], manifest, model, format, report)
    require_evidence(evidence, len(paths or []), manifest is not None, model)
    spark = command.spark_options(engine, spark_master, spark_conf or [], spark_archive)
    if again:
        from assay.again import check_again, refuse_beside

        whole, form, cas = what_is_whole, format != "auto", failed_cas != "auto"
        refuse_beside({"--model": model, "--manifest": manifest, "--report": report, "-o": setting})
        refuse_beside({"--consistency": consistency, "--format": form, "--failed-cas": cas, "--what-is-whole": whole})
        return check_again(paths or [], engine, command.check_options("auto", None, debug, spark=spark), json_output)
    asked = command.consistencies_of(consistency or [], model, manifest is not None)
    options = command.check_options(failed_cas, asked[0], debug, model, setting or [], spark)
    options = replace(options, time_limit_s=time_limit, memory_mib=memory_limit, alone=alone)
    if manifest is not None:
        from assay.manifest import ManifestRequest, check_manifest

        return check_manifest(ManifestRequest(manifest, engine, options), json_output)
    request = command.CheckRequest(model, format, engine, options, asked, report, evidence, what_is_whole)
    return command.check_and_report(paths or [], request, json_output=json_output)


@app.command()
def shrink(
    path: Annotated[str, typer.Argument(help="A history in any format of `assay check`, or a run directory.")],
    model: Model = None,
    format: Annotated[str, typer.Option(help="The file's format; auto detects it.")] = "auto",
    failed_cas: FailedCas = "auto",
    consistency: Annotated[str | None, typer.Option(help="What must hold (`assay list consistency`).")] = None,
    alone: CompletionsAlone = False,
    setting: ModelSettings = None,
    anomaly: Annotated[str | None, typer.Option(help="The finding to follow; else the strongest.")] = None,
    budget: Annotated[str, typer.Option(help="How long to try, such as 90s or 20m.")] = "10m",
    jobs: Annotated[int, typer.Option(help="Of a run: how many processes work at once.")] = 1,
    to: Annotated[Path | None, typer.Option(help="The folder to write; else one named after what is shrunk.")] = None,
    museum: Annotated[str | None, typer.Option(help="Of a run: also keep it as results/museum/NAME.")] = None,
    time_limit: Annotated[float, typer.Option(min=0, help=SEARCH_HELP.format("Seconds"))] = 60.0,
    memory_limit: Annotated[int, typer.Option(min=1, help=SEARCH_HELP.format("MiB"))] = 1024,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    debug: Debug = False,
) -> int:
    """Leave out of a refuted run, or history, all that is not needed to refute it in the same way."""
    leave_pandas_out()
    from assay import check_command as command
    from assay.night.plan import seconds
    from assay.reproduce.shrink_command import ShrinkRequest, shrink
    from harness.history.rundir import is_run

    if model is None and "://" not in path and is_run(Path(path)):
        from assay.reproduce.candidates import ShrinkRunRequest
        from assay.reproduce.shrink_run import shrink_run

        asked_run = ShrinkRunRequest(Path(path), seconds("--budget", budget), jobs, to, museum, anomaly)
        return shrink_run(asked_run, json_output)
    if museum is not None:
        raise UserError("--museum is for runs in the simulator.")

    model = command.named_model(model)
    asked = command.consistencies_of([consistency] if consistency else [], model, manifest=True)
    options = command.check_options(failed_cas, asked[0], debug, model, setting or [])
    options = replace(options, time_limit_s=time_limit, memory_mib=memory_limit, alone=alone)
    request = ShrinkRequest(path, model, options, format, anomaly, seconds("--budget", budget), to)
    return shrink(request, json_output)


@app.command()
def museum(
    names: Annotated[list[str] | None, typer.Argument(help="Entries of results/museum; all if none is named.")] = None,
    keys: Annotated[int, typer.Option(min=0, help="So many other chances for an entry that is stale.")] = 0,
    jobs: Annotated[int, typer.Option(min=1, help="How many runs at once.")] = 1,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON object for each entry.")] = False,
    debug: Debug = False,
) -> int:
    """Make the smallest runs of bugs that were found again: is one back, and does each still mean something?"""
    leave_pandas_out()
    from assay.reproduce.museum import museum_command

    return museum_command(names or [], keys, jobs, json_output)


@app.command()
def replay(
    path: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory in the store.")],
    times: Annotated[int | None, typer.Option(min=1, help="Of a run in real time: how often; else 10.")] = None,
    until_hits: Annotated[int | None, typer.Option(min=1, help="Of such a run: enough once so many show it.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Of such a run: how many at once.")] = 1,
    against: Annotated[str | None, typer.Option(help="Of a simulated run: by the code of this commit.")] = None,
    likelihood: Annotated[bool, typer.Option("--likelihood", help="Of such a run: when it became inevitable.")] = False,
    to: Annotated[Path | None, typer.Option(help="The likelihood's picture; else one named after the run.")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    debug: Debug = False,
) -> int:
    """Make a saved run again: whether it shows its finding, and where it goes another way."""
    leave_pandas_out()
    from assay.reproduce.replay import ReplayRequest, replay

    return replay(ReplayRequest(path, times, until_hits, jobs, against, likelihood, to), json_output)


@app.command()
def bisect(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run with a finding, in the store.")],
    good: Annotated[str, typer.Option(help="A commit without it.")],
    bad: Annotated[str, typer.Option(help="A later commit with it.")] = "HEAD",
    build: Annotated[str | None, typer.Option(help="A shell command that builds a commit of another system.")] = None,
    repository: Annotated[Path | None, typer.Option(help="That system's repository, if not this directory's.")] = None,
    several: Annotated[int, typer.Option("--runs", min=1, max=1000, help="Seeds at each visit to a commit.")] = 4,
    jobs: Annotated[int, typer.Option(min=1, max=64, help="How many runs at once.")] = 1,
    budget: Annotated[str, typer.Option(help="How long to try, such as 20m or 8h.")] = "1h",
    to: Annotated[Path | None, typer.Option(help="The record, which is resumed; else one named after the run.")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    debug: Debug = False,
) -> int:
    """Find the commit that brought the finding of a run, which shows in some seeds only."""
    from assay.night.plan import seconds
    from assay.reproduce.bisect_command import BisectRequest, bisect

    budget_s = seconds("--budget", budget)
    return bisect(BisectRequest(run, good, bad, build, repository, several, jobs, budget_s, to), json_output)


@app.command()
def export(
    path: Annotated[str, typer.Argument(metavar="SOURCE", help="A run directory or a history file.")],
    to: Annotated[str | None, typer.Option(help="The file to write; of a run its history.edn if not given.")] = None,
    format: Annotated[str, typer.Option(help="The source's format; auto detects it.")] = "auto",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it is there.")] = False,
    part_rows: Annotated[int, typer.Option(min=1, help="At most so many operations in a part.")] = 10_000_000,
    debug: Debug = False,
) -> int:
    """Write a saved run's or another history as Jepsen EDN, for Jepsen's own tools."""
    from assay.history_commands import export_history

    for line in export_history(path, to, format, overwrite, part_rows):
        typer.echo(line)
    return EXIT_VALID


@app.command(name="import")
def import_(
    path: Annotated[str, typer.Argument(help="A run directory or a history file in any format of `assay check`.")],
    to: Annotated[str, typer.Option(help="Where to write: a path, or an address such as s3://bucket/name.")],
    format: Annotated[str, typer.Option(help="As in `assay check`.")] = "auto",
    part_rows: Annotated[int, typer.Option(min=1, help="At most so many operations in a part.")] = 10_000_000,
    debug: Debug = False,
) -> None:
    """Copy a history into assay's own form, in parts that a Spark cluster can read."""
    from assay.history_commands import import_history

    for line in import_history(path, to, format, part_rows):
        typer.echo(line)


@app.command()
def generate(
    model: Annotated[str, typer.Argument(help="What the history is to be judged by; see `assay list models`.")],
    to: Annotated[str, typer.Option(help="Where to write: a path, or an address such as s3://bucket/name.")],
    operations: Annotated[int, typer.Option(min=1, max=10**12, help="How many operations.")] = 10_000,
    keys: Annotated[
        int | None, typer.Option(min=1, max=10**9, help="On how many keys (accounts, partitions, tables).")
    ] = None,
    anomaly: Annotated[
        str | None, typer.Option(help="NAME, injected once, or NAME,RATE: in that share of the operations, evenly.")
    ] = None,
    info: Annotated[float, typer.Option(help="The share of changes whose outcome is unknown.")] = 0.01,
    seed: Annotated[int, typer.Option(min=0, help="Of all choices.")] = 0,
    format: Annotated[str, typer.Option(help="parquet (assay's own) or edn (Jepsen's).")] = "parquet",
    part_rows: Annotated[int, typer.Option(min=1, help="At most so many operations in a part.")] = 10_000_000,
    debug: Debug = False,
) -> int:
    """Make a history of any length: valid by construction, or with anomalies of one name in it."""
    leave_pandas_out()
    from assay.history_commands import Target, generate_history, with_anomaly
    from checkers.made.generate import MadeHistory

    wanted = with_anomaly(MadeHistory(model, operations, keys, info=info, seed=seed), anomaly)
    for line in generate_history(wanted, Target(to, format, part_rows)):
        typer.echo(line)
    return EXIT_VALID


@app.command()
def pack(
    to: Annotated[Path, typer.Option(help="The archive to write.")] = Path("assay-pack.tar.gz"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it is there.")] = False,
    debug: Debug = False,
) -> int:
    """Make the archive from which Spark's executors judge; see `assay check --spark-archive`."""
    from assay.pack_command import pack_command

    typer.echo(pack_command(to, overwrite))
    return EXIT_VALID


@app.command(name="list")
def list_names(
    what: Annotated[
        str, typer.Argument(help="workloads, databases, nemeses, flaws, failpoints, worlds, models or consistency")
    ],
    verbose: Annotated[bool, typer.Option("-v", help="Also the settings of workloads, nemeses and databases.")] = False,
    debug: Debug = False,
) -> int:
    """List what can be named on the command line."""
    from assay.list_command import print_list

    print_list(what, verbose)
    return EXIT_VALID


@app.command()
def report(
    run_directory: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory in the store.")],
    to: Annotated[
        Path | None, typer.Option(help="A file instead of the run's report.html; or a folder: with all operations.")
    ] = None,
    debug: Debug = False,
) -> int:
    """Build the report of a saved run again; 2 if its files are not those of one whole run."""
    from assay.judging import rebuild_report

    path, unfit = rebuild_report(run_directory, to)
    typer.echo(path)
    if unfit:
        complain(f"the saved files are not those of one whole run: {'; '.join(unfit)}.")
    return EXIT_UNKNOWN if unfit else EXIT_VALID


@app.command()
def verify(
    database: Annotated[str, typer.Argument(help="A database by name, or FILE.py, or FILE.py:NAME.")],
    database_option: DatabaseOptions = None,
    debug: Debug = False,
) -> int:
    """Try in containers whether a database's plugin does what it says; 1 if not, with a sentence for each failure."""
    from assay.options import key_values
    from assay.verify.command import verify_command

    return verify_command(database, key_values(database_option or [], "-d"), typer.echo)


new_app = typer.Typer(no_args_is_help=True, help="Write something of one's own to begin with.")
app.add_typer(new_app, name="new")


@new_app.command(name="database")
def new_database(
    name: Annotated[str, typer.Argument(help="What it is called; a folder of this name is made.")],
    to: Annotated[Path, typer.Option(help="The directory that the folder is made in.")] = Path("."),
    broken: Annotated[bool, typer.Option("--broken", help="Its store keeps all in memory, which is found.")] = False,
    debug: Debug = False,
) -> int:
    """Write a database of one's own that works: plugin, store, test, README."""
    from assay import new_command

    for line in new_command.new_database(name, to, broken):
        typer.echo(line)
    return EXIT_VALID


cluster_app = typer.Typer(no_args_is_help=True, help="A cluster in containers: start it, look at it, call it.")
app.add_typer(cluster_app, name="cluster")

Store = Annotated[Path, typer.Option(help="Directory that runs are saved in, and that says which cluster is up.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@cluster_app.command(name="up")
def cluster_up(
    masters: Annotated[int, typer.Option(help="Master nodes (an odd number).")] = 3,
    nodes: Annotated[int, typer.Option(help="Tablet servers.")] = 5,
    flaw: Flaws = None,
    store: Store = Path("store"),
    debug: Debug = False,
) -> int:
    """Keep a cluster in containers running until ctrl-c, which removes everything."""
    from assay.cluster_command import keep_up
    from assay.options import RunOptions, listed, validate

    flaws = listed("--flaw", "flaw", flaw)
    asked = validate(RunOptions("register", on="docker", masters=masters, nodes=nodes, flaw=flaws, store=store))
    return keep_up(asked.store, asked.masters, asked.nodes, asked.flaw, typer.echo)


@cluster_app.command(name="status")
def cluster_status(store: Store = Path("store"), json_output: Json = False, debug: Debug = False) -> int:
    """Masters, tablet servers and tables of the cluster that is up."""
    from assay.cluster_command import show_status

    return show_status(store, json_output)


@cluster_app.command(name="check")
def cluster_check(
    run_directory: Annotated[
        Path | None, typer.Argument(metavar="[RUN]", help="A saved run, instead of the cluster that is up.")
    ] = None,
    store: Store = Path("store"),
    json_output: Json = False,
    debug: Debug = False,
) -> int:
    """Say what is wrong with the cluster that is up, or was at the end of a run; 1 if anything is."""
    from assay.cluster_command import check_cluster

    return check_cluster(run_directory, store, json_output)


@cluster_app.command(name="ranges")
def cluster_ranges(
    table: Annotated[str, typer.Argument(help="Only ranges of this table.")] = "",
    store: Store = Path("store"),
    json_output: Json = False,
    debug: Debug = False,
) -> int:
    """Say how far each range of the cluster that is up is closed and resolved, and where its replicas stand."""
    from assay.cluster_command import show_ranges

    return show_ranges(store, table, json_output)


@cluster_app.command(name="call")
def cluster_call(
    name: Annotated[str, typer.Argument(metavar="CALL", help="Such as CreateTable, AlterTable, ListTables.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="NAME=VALUE, such as name=orders buckets=3.")] = None,
    store: Store = Path("store"),
    debug: Debug = False,
) -> int:
    """Make one call of the metadata plane on the cluster that is up, and print its answer as JSON."""
    from assay.cluster_command import call_cluster

    return call_cluster(store, name, arguments or [])


@cluster_app.command(name="repair")
def cluster_repair(
    table: Annotated[str, typer.Argument(help="A table of the design `legacy`.")],
    timeout: Annotated[float, typer.Option(help="Give up after so many seconds; what was streamed stays.")] = 600.0,
    store: Store = Path("store"),
    debug: Debug = False,
) -> int:
    """Compare all replicas of a table by Merkle trees and stream what differs; ctrl-c stops it."""
    from assay.cluster_command import repair_cluster

    return repair_cluster(store, table, timeout)


@app.command()
def doctor(
    clean: Annotated[bool, typer.Option("--clean", help="Remove what runs that were killed left behind.")] = False,
    build: Annotated[bool, typer.Option("--build", help="Make the node image if it is not there.")] = False,
    store: Annotated[Path, typer.Option(help="The store that is looked at.")] = Path("store"),
    hosts: Hosts = None,
    debug: Debug = False,
) -> int:
    """Say what this machine can do, or hosts can, with a sentence for each lack."""
    from assay.doctor_command import print_doctor, print_hosts

    if hosts is not None:
        return print_hosts(hosts, clean)
    return print_doctor(clean=clean, build=build, store=store)


@app.command(name="track-record")
def track_record(
    databases: Annotated[list[str] | None, typer.Argument(help="Only these; see `assay list databases`.")] = None,
    runs: Annotated[int, typer.Option(help="Runs of each row.", min=1, max=100)] = 3,
    record: Annotated[Path, typer.Option(help="The file of outcomes.")] = Path("store/track-record.jsonl"),
    only_table: Annotated[bool, typer.Option("--only-table", help="Make no run: tell what the record has.")] = False,
    to: Annotated[Path | None, typer.Option(help="The document whose table is made anew.")] = None,
    store: Annotated[Path, typer.Option(help="Directory that runs are saved in.")] = Path("store"),
    debug: Debug = False,
) -> int:
    """Try again what is known of databases that people use, in containers, and tell it as a table."""
    from assay.track_record import tell_track_record

    return tell_track_record(databases or [], runs, record, store, to, only_table)


app.add_typer(night_app, name="night")
for command in (index, triage, gate, compare):
    app.command()(command)


def invoke(arguments: list[str] | None) -> int:
    """Run one command and return its exit code; raises what the command raises, of which the parser swallows ctrl-c."""
    result = _command().main(args=arguments, prog_name="assay", standalone_mode=False)
    if result == PARSER_INTERRUPTED:
        raise KeyboardInterrupt
    return result if isinstance(result, int) else EXIT_VALID


@cache
def _command() -> Any:
    return typer.main.get_command(app)


def complain(sentence: str) -> None:
    """One sentence on standard error, and the traceback below it if `--debug` was given."""
    print(f"assay: {sentence}", file=sys.stderr)
    if os.environ.get("ASSAY_DEBUG"):
        traceback.print_exc()


def main(arguments: list[str] | None = None) -> None:
    """Entry point: every outcome becomes an exit code of `checking.md`, and never a traceback without `--debug`."""
    print_any_name()
    if arguments is None:
        _process.is_program = True
    try:
        code = invoke(arguments)
    except Untold as untold:
        code = unheard(untold)
    except (UserError, UnwritableError) as error:
        complain(str(error))
        code = EXIT_BAD_ARGUMENTS
    except (KeyboardInterrupt, SystemExit) as stop:
        code = stopped(stop)
    except HarnessError as error:
        complain(str(error))
        code = EXIT_HARNESS
    except Exception as error:  # noqa: BLE001 - the last resort that keeps tracebacks from users
        code = usage_code(error)
    code = flushed(code)
    if _process.is_program:
        leave(code)
    raise SystemExit(code)


@dataclass
class _Process:
    """Whether this process is the command and nothing else."""

    is_program: bool = False


_process = _Process()


def leave_pandas_out() -> None:
    """See `harness.history.arrow`; where this is no program of its own, pandas may be somebody else's, and stays."""
    if _process.is_program:
        from harness.history.arrow import without_pandas

        without_pandas()


def leave(code: int) -> NoReturn:
    """End the process once all is put away; to take the interpreter apart as well would take a third of a second."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


def stopped(stop: KeyboardInterrupt | SystemExit) -> int:
    """The parser turns ctrl-c into an exit with 130, and standard output that nobody reads any more into one with 1."""
    if isinstance(stop, KeyboardInterrupt) or stop.code == PARSER_INTERRUPTED:
        complain("stopped by the keyboard; what was started has been removed, and the history so far is saved.")
    return EXIT_HARNESS


def flushed(code: int) -> int:
    """The exit code once what was printed has left; 255 if it could not, unless it has to say that a bug was found."""
    if sys.stdout is None:  # closed by who started us, so nothing was printed
        return code
    try:
        sys.stdout.flush()
    except OSError as error:
        return unheard(Untold(code, error))
    return code


def unheard(untold: Untold) -> int:
    """255 for a finding that could not be printed, unless it is that a bug was found."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter complains at its end
    if not isinstance(untold.error, BrokenPipeError):
        complain(f"standard output can't be written: {untold.error.strerror}.")
    return untold.code if untold.code == EXIT_INVALID else EXIT_HARNESS


def usage_code(error: Exception) -> int:
    """254 for a mistake in the arguments that the parser found, 255 for a bug of ours; says which."""
    message = getattr(error, "format_message", None)
    if message is not None:
        complain(f"{message() or 'A command is missing.'} Try `assay --help`.")
        return EXIT_BAD_ARGUMENTS
    complain(f"a bug of the harness: {type(error).__name__}: {error} (run again with --debug for the traceback)")
    return EXIT_HARNESS


if __name__ == "__main__":
    main()

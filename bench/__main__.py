"""`make bench`: runs every benchmark in a process of its own, or `python -m bench NAME` one with options of its own.

Each prints its rows of figures as they come, a JSON object each. With `--write` they go to its table too, in the
document that has one.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias, get_args, get_origin, get_type_hints

from bench.measure import Row, machine, mark, report, updated
from harness.errors import UserError

DOCUMENTS: Final = Path(__file__).parent.parent / "docs"
NO_FIGURES: Final = 254
"""Exit code of a benchmark that lacks what it needs, such as Docker."""

Benchmark: TypeAlias = Callable[..., Iterable[Row]]
"""Its arguments are what can be asked for: positional words where it takes any number, options by name elsewhere."""


class Case(NamedTuple):
    """Where the function of that name stands, and what it measures."""

    module: str
    what: str


CASES: Final[Mapping[str, Case]] = {
    "judge": Case("judging", "large valid histories of many models, from Parquet to the verdict, in-process"),
    "spark": Case("judging", "the same on Spark, with its start-up"),
    "isolation": Case("judging", "each isolation level asked for alone, of Parquet, of AWDIT's text and of Plume's"),
    "cores": Case("judging", "the local engine on one core and on more, in turns"),
    "on_cluster": Case("judging", "the same on a standalone cluster of Spark in namespaces (needs root)"),
    "version_orders": Case("version_orders", "orders of versions that nobody observed, found or refuted"),
    "kernel": Case("searches", "registers in memory: by zones, and by search where values repeat"),
    "search": Case("searches", "the search for linearizability with many clients, model by model"),
    "memory": Case("memory", "the local engine's peak against the columns that it reads"),
    "task_memory": Case("memory", "what one task takes to judge all that meets in it"),
    "cost_curves": Case("growth", "CPU time from 10^4 to 10^7 operations against n log n"),
    "growth": Case("growth", "what Spark's driver gets, holds and sends for n and 10 n operations"),
    "growth_local": Case("growth", "processor time of judging n and 10 n operations in one process"),
    "commands": Case("loading", "`assay` from its start to its end"),
    "compiling": Case("loading", "a first and a second check by each model with nothing compiled"),
    "importers": Case("loading", "foreign histories to columns"),
    "interpreter": Case("operations", "operations a second with a client that does nothing, journal included"),
    "simulator": Case("operations", "operations a CPU-second of the cluster in the simulator"),
    "counts": Case("operations", "bytecodes or calls, turns, messages and fsyncs of an operation in the simulator"),
    "docker_throughput": Case("clusters", "operations a second in containers; how long setting up takes"),
    "probes": Case("clusters", "what the probes of faults cost clients in containers"),
    "run_figures": Case("clusters", "how soon a saved run's cluster served, and its faults were in effect"),
    "failover": Case("failovers", "from the kill of a leaseholder to the next write that succeeds"),
    "master_failover": Case("failovers", "from the kill of the leader master to the next table that is made"),
    "idle": Case("idle", "what idle replicas cost a node"),
    "storm": Case("idle", "whether elections end on nodes that are too slow for them"),
    "masters": Case("masters", "one master's own work on a large catalog"),
    "masters_restart": Case("masters", "all masters of a large catalog killed and started again"),
    "node_log": Case("disks", "fsyncs a write, and writes a second to one node's log"),
    "sorted_store": Case("disks", "the local store of a quorum replica"),
    "snapshot_stream": Case("snapshot_stream", "a large snapshot sent to learners while the group serves"),
    "own_databases": Case("databases", "etcd, redis, PostgreSQL, MariaDB: how soon they serve, our clients' cost"),
    "night_costs": Case("nights", "a night's own CPU beside its runs, against `--seeds` over the same"),
    "night_looks": Case("nights", "the index, the gate and the page of 10 000 runs"),
    "by_inputs": Case("reproducing", "runs in the simulator recorded and by their inputs, against the runs themselves"),
    "shrink_histories": Case("reproducing", "refuted histories made as small as they go"),
    "shrink_runs": Case("reproducing", "the smallest run of each flaw, and how many runs it takes to find it"),
    "timeline": Case("reports", "the report of 10^6 operations, its first picture and its zoom in Chromium"),
    "follower_reads": Case(
        "follower_reads", "reads from any replica: latencies by region, lags, ticks, what lost regions leave"
    ),
    "quorum": Case("quorum", "CEP-45's goals, legacy replication against mutation tracking"),
}


def main(words: Sequence[str] | None = None) -> int:
    """The exit code: of one benchmark its own, of all the number of those that failed."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--list", action="store_true", help="say what there is")
    parser.add_argument("--write", action="store_true", help="write figures to the documents' tables")
    parser.add_argument("name", nargs="?", choices=tuple(CASES), metavar="NAME", help="see --list")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="see NAME --help")
    asked = parser.parse_args(words)
    write = ["--write"] if asked.write else []
    if asked.list:
        print("\n".join(f"{name:18} {case.what}" for name, case in CASES.items()))
        return 0
    return run(asked.name, [*write, *asked.options]) if asked.name else run_all(write)


def run_all(options: Sequence[str]) -> int:
    """One after the other, whatever becomes of each."""
    failed = 0
    for name in CASES:
        report(f"# {name}")
        failed += subprocess.run([sys.executable, "-m", "bench", name, *options], check=False).returncode != 0
    return failed


def run(name: str, words: Sequence[str]) -> int:
    """One benchmark in this process."""
    function: Benchmark = getattr(import_module(f"bench.{CASES[name].module}"), name)
    asked = vars(_parser(name, function).parse_args(words))
    write = asked.pop("write")
    several = [asked.pop(each.name) for each in _parameters(function) if each.kind is each.VAR_POSITIONAL]
    rows = []
    try:
        for row in function(*(word for words in several for word in words), **asked):
            print(json.dumps({"benchmark": name, **row, "machine": machine()}), flush=True)
            rows.append({**row, "load": round(os.getloadavg()[0], 1)})
    except UserError as error:
        report(str(error))
        return NO_FIGURES
    return _write(name, rows) if write else 0


def _write(name: str, rows: Sequence[Row]) -> int:
    pages = [path for path in sorted(DOCUMENTS.glob("**/*.md")) if mark(name) in path.read_text()]
    for path in pages if rows else ():
        path.write_text(updated(path.read_text(), name, rows))
    report("\n".join(f"written to {path}" for path in pages) or f"no document has a table of {name}")
    return 0


# ---- options from a function's arguments ----


def _parameters(function: Benchmark) -> Iterable[inspect.Parameter]:
    return inspect.signature(function).parameters.values()


def _parser(name: str, function: Benchmark) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m bench {name}",
        description=inspect.getdoc(function),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--write", action="store_true", help="write figures to the documents' tables")
    hints = get_type_hints(function, include_extras=True)
    for parameter in _parameters(function):
        hint, about = hints[parameter.name], ""
        if get_origin(hint) is Annotated:
            hint, about = get_args(hint)
        if parameter.kind is parameter.VAR_POSITIONAL:
            parser.add_argument(parameter.name, nargs="*", type=_reader(hint), help=about)
        else:
            option = f"--{parameter.name.replace('_', '-')}"
            parser.add_argument(option, default=parameter.default, help=about, **_kind(hint))
    return parser


def _kind(hint: Any) -> dict[str, Any]:
    if hint is bool:
        return {"action": "store_true"}
    if get_origin(hint) is Sequence:
        return {"nargs": "+", "type": _reader(get_args(hint)[0])}
    return {"type": _reader(hint), "choices": get_args(hint) if get_origin(hint) is Literal else None}


def _reader(hint: Any) -> Callable[[str], Any]:
    """How a word is read: 1e8 is a whole number too."""
    if get_origin(hint) is Literal:
        return type(get_args(hint)[0])
    kinds = [kind for kind in get_args(hint) or (hint,) if kind is not NoneType]
    return (lambda text: int(float(text))) if kinds == [int] else kinds[0]


if __name__ == "__main__":
    sys.exit(main())

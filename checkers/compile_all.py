"""`python -m checkers.compile_all`: compiles the kernels of all models, so that no judge has to.

It judges the worked examples of every anomaly by several processes, and reads a text of each format whose reader is
compiled; kernels that are compiled already take a few seconds.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

from harness.history.cores import usable_cores

_FIRST: Final = ("multi-register", "list-append", "rw-register", "register", "isolation", "fifo-queue", "lin-set")
"""Models that take longest."""

_BESIDES: Final = {"register": ("cas-register",), "sessions": ("monotonic-reads",), "set": ("set-full",)}
"""What else the examples of a model are judged by."""

_TELLING: Final = {"list-append": "incompatible-order"}
"""Anomalies that take more kernels than the first of a model: lists that leave the longest one are sent as well."""

_UNKNOWN: Final = {"list-append": 0.3, "rw-register": 0.3}
"""Shares of changes of unknown outcome at which some depend on others, and have their place in time from these."""

_AWDIT_TEXT: Final = b"w 0 1\n-----\nr 0 1\n=====\n"
"""A history in AWDIT's format, which kernels read; all examples are in others."""


def compile_all(processes: int) -> int:
    """Judge every example by its model in several processes; the number of kernels that were compiled."""
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        models = pool.map(compile_model, _tasks())
        others = [pool.submit(compile_growing), pool.submit(compile_choices)]
        return sum(models) + sum(each.result() for each in others)


def compile_for_executors(folder: Path, report: Callable[[str], None]) -> None:
    """Judge a small history of every model on Spark here, with anomalies in it: its workers split, carry and join what
    nobody does in-process. `report` hears of each model; needs Java."""
    from checkers.api import judge_source
    from checkers.engines.session import SparkOptions
    from checkers.engines.spark import SparkEngine
    from checkers.importers.detect import open_source
    from checkers.made.generate import BASES, MadeHistory, anomalies, write_made

    engine = SparkEngine(SparkOptions("local[1]"))
    try:
        for model in BASES:
            report(model)
            anomaly = _TELLING.get(model) or next(iter(anomalies(model)), None)
            path = folder / f"{model}.parquet"
            rate, info = 0.02 if anomaly else None, _UNKNOWN.get(model, 0.01)
            write_made(MadeHistory(model, 300, anomaly=anomaly, rate=rate, info=info), path)
            judge_source(open_source(path), model, engine)
        _split_a_register()
    finally:
        engine.close()


def _split_a_register() -> None:
    """Judge a register as many tasks do, which only one of very many operations takes."""
    import numpy as np

    from checkers.columns.codes import NIL, WRITE
    from checkers.engines.api import Rows
    from checkers.findings import NO_KEY
    from checkers.linearizability.registers.split_registers import RegisterSplit

    one = Rows(*(np.array([number]) for number in (0, 0, 1, WRITE, 7, NIL)))
    split = RegisterSplit((NO_KEY,), 1, 1)
    split.blocks(one)
    split.compare(one, np.zeros(1, np.int64))


def compile_growing() -> int:
    """Outgrow the room that a search and an inference of lists begin with, which no small history does, and search by a
    model of nobody's; how many kernels had to be compiled for it."""
    from checkers.compile_cache import compilation_reported
    from checkers.linearizability.objects.word_store import intern, make_store
    from checkers.linearizability.own_model.search_own import warm
    from checkers.transactions.inference.list_accesses import edge_bound
    from checkers.transactions.inference.list_reader import group_accesses
    from checkers.transactions.inference.prefix_trees import grown_forks, make_forks

    reports: list[bool] = []
    with compilation_reported(reports.append):
        intern(make_store(2, 1), 0)
        edge_bound(group_accesses(1, [], []), 0)
        grown_forks(make_forks(1), 2)
        warm()
    return reports.count(True)


def compile_choices() -> int:
    """Decide about two writers that a third transaction saw half of each, and about one, by every condition: most
    examples hang on one condition; how many kernels had to be compiled for it."""
    import numpy as np

    from checkers.compile_cache import compilation_reported
    from checkers.transactions.polygraph.conditions import CONDITIONS
    from checkers.transactions.polygraph.decide import DecisionBudget, decide
    from checkers.transactions.polygraph.history_polygraph import Accessed, TxnTimes, make_polygraph

    reports: list[bool] = []
    event, nothing = np.arange(4), np.empty((3, 0), np.int64)
    times = TxnTimes(np.zeros(4, np.uint8), event, event, event + 4)
    writes = np.array([[0, 0, 1, 1], [0, 1, 0, 1]])
    with compilation_reported(reports.append):
        for source in (0, 1):
            reads = np.array([[0, 1, 0], [2, 2, 3], [0, source, -1]])
            polygraph = make_polygraph(times, Accessed(2, writes, reads, nothing, nothing))
            for condition, form in CONDITIONS.values():
                decide(polygraph, condition, form, DecisionBudget())
    return reports.count(True)


def _tasks() -> list[tuple[str, Path]]:
    """Models and the directories of their examples, the longest first."""
    from checkers.made.examples import EXAMPLES

    models = sorted(place.name for place in EXAMPLES.iterdir() if place.is_dir())
    ordered = sorted(models, key=lambda model: _FIRST.index(model) if model in _FIRST else len(_FIRST))
    return [(each, EXAMPLES / model) for model in ordered for each in (model, *_BESIDES.get(model, ()))]


def compile_model(task: tuple[str, Path]) -> int:
    """Judge the examples in a directory by a model; how many kernels had to be compiled for it."""
    from checkers.compile_cache import compilation_reported
    from checkers.importers.transactions import open_awdit
    from checkers.models import MODELS

    model, place = task
    reports: list[bool] = []
    if model in MODELS:
        with compilation_reported(reports.append):
            for path in _histories(place.iterdir()):
                _judge(path, model)
            if model == "isolation":
                open_awdit(place, _AWDIT_TEXT)
    return reports.count(True)


def _histories(paths: Iterable[Path]) -> Iterator[Path]:
    yield from sorted(path for path in paths if path.suffix in (".edn", ".txt"))


def _judge(path: Path, model: str) -> None:
    from checkers.api import judge_source
    from checkers.engines.local import LocalEngine
    from checkers.made.examples import open_example
    from harness.errors import UserError

    try:
        judge_source(open_example(path), model, LocalEngine())
    except UserError as error:
        print(f"{path} is not judged: {error}", file=sys.stderr)


def main() -> None:
    """Compile with all processors."""
    print("compiling kernels, which takes about a minute (once)", flush=True)
    compile_all(usable_cores())


if __name__ == "__main__":
    main()

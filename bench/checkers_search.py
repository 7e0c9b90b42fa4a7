"""Measures the search for linearizability with many clients: `python bench/checkers_search.py [MODEL ...]`.

One line a history of one object: model, clients, operations, how many different values, how much is of unknown outcome,
the verdict, processor seconds and memory above what the process held before. Histories are valid, or have one answer
that can't be. A verdict that contradicts that ends the benchmark; `unknown` is within its rights, and told.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time

from bench._measure import machine
from checkers.api import judge_source
from checkers.engines.local import LocalEngine
from checkers.made.objects import MODELS, ObjectShape, object_source
from checkers.options import CheckOptions

LIMIT_S = 4.0

WIDTHS = ((10, 10_000), (50, 10_000))
"""Clients and operations."""

LONG = ((50, 100_000), (100, 100_000))
"""The same for registers with few values, besides."""

VALUES = {"register": 5, "cas-register": 5, "mutex": 5, "lin-set": 30}
"""How many values there are; where none is named, each is written once."""

REPEATED = {"fifo-queue": (10, 2_000, 5), "kv-append": (50, 10_000, 20)}
"""Clients, operations and values of models whose elements are unique above, besides."""

HEADER = "model          clients operations values unknown  history  verdict        s MiB"


def shapes(model: str) -> list[ObjectShape]:
    """The histories of a model."""
    sizes = WIDTHS + (LONG if model in ("register", "cas-register") else ())
    shares = (0.0, 0.01)
    clients, operations, values = REPEATED.get(model, (0, 0, 0))
    more = [ObjectShape(model, operations, clients, values, 0.0, corrupted, seed=1) for corrupted in (False, True)]
    return [
        ObjectShape(model, operations, clients, VALUES.get(model, 0), share, corrupted, seed=1)
        for clients, operations in sizes
        for share in (shares if operations <= 10_000 else shares[:1])
        for corrupted in (False, True)
    ] + (more if values else [])


def judged_apart(shape: ObjectShape) -> bool:
    """Judge one history in a process of its own, with the kernels compiled already; whether the verdict is right."""
    source = object_source(shape)
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.process_time()
    verdict = judge_source(source, shape.model, LocalEngine(), CheckOptions(time_limit_s=LIMIT_S))
    seconds = time.process_time() - begin
    mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib) // 1024
    said = {True: "valid", False: "invalid"}.get(verdict.valid, "unknown")  # type: ignore[arg-type]
    kind = "corrupted" if shape.corrupted else "valid"
    line = (
        f"{shape.model:14} {shape.clients:7} {shape.operations:10} {shape.values or 'unique':>6} {shape.info_share:7}"
    )
    print(f"{line}  {kind:8} {said:8} {seconds:7.2f} {mib}", flush=True)
    os._exit(verdict.valid is shape.corrupted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"some of {', '.join(MODELS)}")
    chosen = parser.parse_args().models or MODELS
    print(f"{machine()}; at most {LIMIT_S:g} s each")
    print(HEADER, flush=True)
    for model in chosen:
        for corrupted in (False, True):
            judge_source(object_source(ObjectShape(model, 200, 5, corrupted=corrupted)), model, LocalEngine())
        for shape in shapes(model):
            if not judged_apart(shape):
                sys.exit(f"wrong verdict on {shape}")


if __name__ == "__main__":
    main()

"""Linearizability by itself: registers in memory, and the search with many clients on one object of each model."""

from __future__ import annotations

import resource
import statistics
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from bench.histories import written
from bench.judging import Count
from bench.measure import Row, chosen, in_a_process, kept_in, power, spent
from checkers.api import judge_source
from checkers.columns.codes import CAS, NIL, READ, WRITE, RegisterColumns
from checkers.columns.projection import KeyedOps, concatenated, flatten, group
from checkers.engines.local import LocalEngine
from checkers.importers.detect import open_source
from checkers.linearizability.driver import Budget
from checkers.linearizability.registers.refute_registers import RegisterKernel, projection
from checkers.made.objects import MODELS, ObjectShape, object_source
from checkers.options import CheckOptions

LIMIT_S: Final = 4.0

WIDTHS: Final = ((10, 10_000), (50, 10_000))
"""Clients and operations."""

LONG: Final = ((50, 100_000), (100, 100_000))
"""Clients and operations of registers with few values, in addition."""

VALUES: Final = {"register": 5, "cas-register": 5, "mutex": 5, "lin-set": 30}
"""How many values there are; where none is named, each is written once."""

REPEATED: Final = {"fifo-queue": (10, 2_000, 5), "kv-append": (50, 10_000, 20)}
"""Clients, operations and values of models whose elements are unique above, besides."""

SAID: Final = {True: "valid", False: "invalid"}
"""Any other verdict is `unknown`."""


# ---- registers, from columns in memory to the findings ----


def kernel(count: Count = 1_000_000) -> Iterator[Row]:
    """Unique values by zones, the median of five; and five values by search, on many keys and on one."""
    kernel = RegisterKernel(CheckOptions().explain, Budget())
    yield _by_zones(kernel, count, 100)
    _judged(kernel, repeated_values(1000, 10, 10))
    for keys, clients in ((count // 100, 10), (1, 10), (1, 50)):
        many = count if keys > 1 else count // 10
        seconds = _judged(kernel, repeated_values(many, keys, clients))
        what = f"search, 5 values, {power(many)} operations, {power(keys)} key{'s' * (keys > 1)}, {clients} clients"
        yield {"what": what, "s": round(seconds, 2), "M_per_s": round(many / seconds / 1e6, 2)}


def _by_zones(kernel: RegisterKernel, count: int, keys: int) -> Row:
    asked = projection(failed_cas_observed=False)
    with kept_in() as folder:
        source = open_source(written("register", count, keys, folder))
        batches = source.batches(asked.columns(source.key_columns()))
        flat = concatenated([flatten(batch, asked) for batch in batches])
    times = []
    for _ in range(6):
        with spent() as grouping:
            keyed = group(flat, LocalEngine().threads(count))
        times.append(grouping.wall_s + _judged(kernel, keyed))
    seconds = statistics.median(times[1:])
    what = f"zones, {power(count)} operations, {keys} keys"
    return {"what": what, "s": round(seconds, 2), "M_per_s": round(count / seconds / 1e6, 2)}


def _judged(kernel: RegisterKernel, keyed: KeyedOps) -> float:
    """Seconds on the clock; ends the benchmark at a wrong verdict."""
    with spent() as took:
        found = LocalEngine().judge_grouped(keyed, kernel, kernel.explain)
    if found.counts or found.undecided:
        sys.exit(f"wrong verdict: {found}")
    return took.wall_s


def repeated_values(operations: int, keys: int, clients: int) -> KeyedOps:
    """A cas-register with five values that behaves, `clients` operations of a key in flight at once."""
    random, each = np.random.default_rng(1), operations // keys
    kind = random.choice(np.array([READ, WRITE, CAS], np.uint8), operations)
    value, expected = random.integers(0, 5, operations), np.full(operations, NIL)
    for key in range(keys):
        state = NIL
        for row in range(key * each, (key + 1) * each):
            if kind[row] == READ:
                value[row] = state
            else:
                expected[row] = state if kind[row] == CAS else NIL
                state = value[row]
    turn = np.tile(np.arange(each), keys)
    invoke = turn // clients * 2 * clients + turn % clients
    offsets, addresses = np.arange(keys + 1) * each, np.zeros((keys, 4), np.int64)
    addresses[:, 1] = np.arange(keys)
    return KeyedOps(addresses, RegisterColumns(offsets, kind, value, expected, invoke, invoke + clients))


# ---- one object, many clients ----


def search(*models: str) -> Iterator[Row]:
    """One history of one object a row: processor seconds, and memory above what the process held before.

    Histories are valid, or have one answer that can't be. A verdict that contradicts that ends the benchmark; `unknown`
    is within its rights, and printed.
    """
    for model in chosen(models, MODELS):
        for corrupted in (False, True):
            judge_source(object_source(ObjectShape(model, 200, 5, corrupted=corrupted)), model, LocalEngine())
        for shape in shapes(model):
            verdict, figures = in_a_process("fork", _searched, shape)
            if verdict is shape.corrupted:
                sys.exit(f"wrong verdict on {shape}")
            size = f"{power(shape.operations)}, {shape.values or 'unique'} values, {shape.info_share:.0%} unknown"
            what = {"model": model, "clients": str(shape.clients), "operations": size}
            kind = "corrupted" if shape.corrupted else "valid"
            yield {**what, "history": kind, **figures, "verdict": SAID.get(verdict, "unknown")}


def shapes(model: str) -> Sequence[ObjectShape]:
    """The histories of a model."""
    sizes = WIDTHS + (LONG if model in ("register", "cas-register") else ())
    some = [
        (operations, clients, VALUES.get(model, 0), share)
        for clients, operations in sizes
        for share in ((0.0, 0.01) if operations <= 10_000 else (0.0,))
    ]
    if model in REPEATED:
        clients, operations, values = REPEATED[model]
        some.append((operations, clients, values, 0.0))
    return [ObjectShape(model, *each, corrupted, seed=1) for each in some for corrupted in (False, True)]


def _searched(shape: ObjectShape) -> tuple[Any, Row]:
    source = object_source(shape)
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with spent() as took:
        verdict = judge_source(source, shape.model, LocalEngine(), CheckOptions(time_limit_s=LIMIT_S))
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
    return verdict.valid, {"CPU_s": round(took.cpu_s, 2), "MiB": grown_kib // 1024}

"""Kernels compiled by plain numba, as under a version whose internals we don't know, judge as linked ones do."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys

import msgspec
import numba

if sys.argv[1] == "plain":
    numba.__version__ = "another"

from pathlib import Path

from checkers.api import judge_source
from checkers.compiled import IS_LINKED
from checkers.engines.local import LocalEngine
from checkers.made.jepsen import Shape, history
from checkers.source import Source
from harness.history.table import to_table

replace = msgspec.structs.replace


def without(op, element):
    left = [m.values and tuple(value for value in m.values if value != element) for m in op.mops]
    return replace(op, mops=tuple(replace(m, values=values) for m, values in zip(op.mops, left)))


events = history("set-full", Shape(), 1)
for each in (events, [without(op, 1) for op in events]):
    table = to_table(each)
    source = Source(Path("made"), "journal", table.num_rows, table=table)
    verdict = replace(judge_source(source, "set-full", LocalEngine()), seconds=0.0)
    print(IS_LINKED, verdict.valid, verdict.counts, msgspec.json.encode(verdict))
"""


def lines(kernels: str) -> list[list[str]]:
    ran = subprocess.run([sys.executable, "-c", PROGRAM, kernels], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return [line.split(" ", 1) for line in ran.stdout.splitlines()]


def test_plain_kernels_judge_as_linked_ones() -> None:
    plain, linked = lines("plain"), lines("linked")
    assert [is_linked for is_linked, _ in plain] == ["False", "False"]
    assert [told for _, told in plain] == [told for _, told in linked]
    assert plain[0][1].startswith("True {}") and plain[1][1].startswith("False {'lost': 1}")

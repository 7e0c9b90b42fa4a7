"""Strings whose pieces repeat: what is known of the gets to come, and what the search makes of it."""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from bruteforce import some_order
from hypothesis import given
from hypothesis import strategies as st
from object_histories import OBJECTS, Call, columns, random_calls, texts_of

from checkers.api import judge_source
from checkers.columns.codes import NEVER
from checkers.engines.local import LocalEngine
from checkers.linearizability.driver import INVALID, VALID, Budget
from checkers.linearizability.objects import object_search
from checkers.linearizability.objects.object_columns import GET, sorted_rows
from checkers.linearizability.objects.refute_objects import ObjectKernel
from checkers.linearizability.objects.strings import Trie, build_strings
from checkers.made.generate import MadeHistory, made_batches
from checkers.source import Interned, Source
from tests.support.kernels_alone import answers_of

Calls = list[tuple[Call, int, int]]


def source(operations: int, keys: int) -> Source:
    """A valid history of strings of five pieces; one change in twenty is of unknown outcome, and so stays open."""
    texts: dict[str, int] = {}
    wanted = MadeHistory("kv-append", operations, keys=keys, info=0.05)
    table = pa.Table.from_batches(made_batches(wanted, texts))
    return Source(Path("made"), "parquet", table.num_rows, table=table, dictionary=tuple(texts))


MOST_WORK = 100
"""Configurations compared by operation. Before the search knew what gets are to come it took 365 and 1 118, and
the third was undecided after a minute."""


@pytest.mark.parametrize(("operations", "keys"), [(20_000, 10), (32_000, 4), (40_000, 1)])
def test_work_does_not_grow_with_what_stays_open(operations: int, keys: int, monkeypatch: pytest.MonkeyPatch) -> None:
    drive, work = object_search.drive, list[int]()

    def counting(run: Any, *given: Any) -> Any:
        driven = drive(run, *given)
        work.append(int(run.cursor.work))
        return driven

    monkeypatch.setattr(object_search, "drive", counting)
    verdict = judge_source(source(operations, keys), "kv-append", LocalEngine())
    assert verdict.valid is True and verdict.details["objects_searched"] == keys
    assert sum(work) <= MOST_WORK * operations, sum(work) / operations


def mostly_unknown(seed: int, most: int) -> Calls:
    """A small history in which half of the changes never complete."""
    random = Random(seed)
    calls = random_calls(random, "kv-append", random.randint(3, most))
    return [(call, begin, end if call[0] == "r" or random.random() < 0.5 else NEVER) for call, begin, end in calls]


@pytest.mark.parametrize(
    ("first", "count", "most"),
    [
        pytest.param(0, 1_000, 9, id="small"),
        pytest.param(10_000, 20_000, 9, marks=pytest.mark.campaign, id="many"),
        pytest.param(50_000, 2_000, 12, marks=pytest.mark.campaign, id="longer"),
    ],
)
def test_search_and_brute_force_agree_where_much_stays_open(first: int, count: int, most: int) -> None:
    histories = [mostly_unknown(seed, most) for seed in range(first, first + count)]
    texts, seen = texts_of(histories), Counter[bool]()
    kernel = ObjectKernel("kv-append", 1, Budget(), Interned(None, tuple(texts)))
    found = answers_of(kernel, columns("kv-append", histories, texts))
    for number, calls in enumerate(histories):
        truth = some_order(calls, *OBJECTS["kv-append"])
        seen[truth] += 1
        assert found.get(number, [VALID]) == [VALID if truth else INVALID], calls
    assert min(seen.values()) > count // 10, seen


def test_what_is_known_of_later_gets_is_so() -> None:
    histories = [mostly_unknown(seed, 12) for seed in range(60)]
    texts = texts_of(histories)
    rows = sorted_rows(columns("kv-append", histories, texts))
    built, node_object = build_strings(rows, lambda value: texts[-(2**62) - 1 - value])
    ops, strings = built.ops, built.ops.strings
    key = np.repeat(np.arange(len(ops.offsets) - 1), np.diff(ops.offsets))
    for node, other in product(range(1, len(built.nodes)), repeat=2):
        if node_object[node] == node_object[other]:
            begins = built.nodes[other].startswith(built.nodes[node])
            assert (strings.rank[node] <= strings.rank[other] <= strings.last[node]) == begins
    for row in np.flatnonzero(ops.complete != NEVER):
        gets = np.flatnonzero((key == key[row]) & (ops.kind == GET) & (ops.invoke > ops.complete[row]))
        until = ops.complete[gets].min(initial=NEVER)
        assert strings.next_get[row] == until
        told = slice(strings.next_first[row], strings.next_last[row])
        mine = gets[ops.invoke[gets] < until]
        assert strings.get_begin[told].tolist() == ops.invoke[mine].tolist()
        assert strings.get_node[told].tolist() == ops.value[mine].tolist()


WORDS = st.lists(st.text("ab", max_size=7), max_size=6)


@given(WORDS, WORDS, WORDS)
def test_a_trie_has_all_that_pieces_make_of_what_was_read(reads: list[str], puts: list[str], pieces: list[str]) -> None:
    starts = {"", *puts}
    trie = Trie(reads, 1)
    trie.grow(starts, pieces)

    def begins_a_read(text: str) -> bool:
        return any(read.startswith(text) for read in reads)

    made = {start for start in starts if begins_a_read(start)}
    edges: set[tuple[str, str, str]] = set()
    ahead = list(made)
    while ahead:
        here = ahead.pop()
        for piece in {piece for piece in pieces if begins_a_read(here + piece)}:
            edges.add((here, piece, here + piece))
            if here + piece not in made:
                made.add(here + piece)
                ahead.append(here + piece)
    texts = list(trie.nodes)
    assert set(texts) == made | set(reads)
    assert sorted((texts[here - 1], piece, texts[there - 1]) for here, piece, there in trie.edges) == sorted(edges)

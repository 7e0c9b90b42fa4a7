"""Pages of lists and registers, of operations that read and write: against the definition, and by hand."""

import pytest
from naive_pages import drawn, is_broken
from session_histories import Row, flattened, side_by_side
from test_appended_lists import judged

from checkers.sessions.session_lists import verdict_of
from checkers.sessions.write_atomicity import PROJECTION, PageKernel
from tests.support.few_seeds import ranges_of


def op(begin, *mops):
    return Row(begin, begin + 1, begin, mops)


BOTH = op(0, ("append", 0, 1), ("append", 1, 5))
TWO = op(0, ("append", 0, 1), ("append", 0, 2))
CELLS = op(0, ("w", 0, 1), ("w", 1, 5))
OVER = op(0, ("w", 0, 1), ("w", 0, 2), ("w", 1, 5))
MIXED = op(0, ("append", 0, 1), ("w", 1, 5))
PAGES = {
    "a list before its own append": (True, [op(0, ("r", 0, ()), *BOTH.mops, ("r", 1, (5,)))]),
    "a list behind its own append": (False, [op(0, *BOTH.mops, ("r", 0, (1,)), ("r", 1, ()))]),
    "a part of what one list got": (False, [TWO, op(2, ("r", 0, (1,)))]),
    "a part of it, and later all": (False, [TWO, op(2, ("r", 0, (1,))), op(4, ("r", 0, (1, 2)))]),
    "all of it, with others between": (True, [TWO, op(2, ("append", 0, 9)), op(4, ("r", 0, (1, 9, 2)))]),
    "a list twice": (False, [BOTH, op(2, ("r", 0, ()), ("r", 0, (1,)))]),
    "a list twice, the other way": (False, [BOTH, op(2, ("r", 0, (1,)), ("r", 0, None))]),
    "a list around its own append": (True, [BOTH, op(2, ("r", 0, (1,)), ("append", 0, 7), ("r", 0, (1, 7)))]),
    "a register twice": (False, [CELLS, op(2, ("r", 0, None), ("r", 1, 5), ("r", 0, 1))]),
    "a register around its own write": (True, [CELLS, op(2, ("r", 0, 1), ("w", 0, 7), ("w", 1, 8), ("r", 0, 7))]),
    "a register before its own write": (
        True,
        [CELLS, op(2, ("w", 0, 7), ("r", 0, 7), ("r", 1, 5), ("w", 1, 8))],
    ),
    "a register behind its own write": (
        False,
        [CELLS, op(2, ("w", 0, 7), ("w", 1, 8), ("r", 0, 7), ("r", 1, 5))],
    ),
    "what its write wrote over": (False, [OVER, op(2, ("r", 0, 1))]),
    "what it wrote over itself": (True, [op(0, ("w", 0, 1), ("r", 0, 1), ("w", 0, 2))]),
    "a register of a mixed write": ("unknown", [MIXED, op(2, ("r", 0, ()), ("r", 1, 5))]),
    "a list of a mixed write": ("unknown", [MIXED, op(2, ("r", 0, (1,)), ("r", 1, None))]),
}


@pytest.mark.parametrize("name", PAGES)
def test_pages_by_hand(name, tmp_path):
    valid, rows = PAGES[name]
    verdict = judged(rows, tmp_path, ("write-atomicity",))["write-atomicity"]
    assert (verdict.valid, verdict.counts) == (valid, {} if valid else {"torn-read": 1})


def test_words_of_a_value_that_its_own_write_replaced(tmp_path):
    rows = PAGES["what its write wrote over"][1]
    (anomaly,) = judged(rows, tmp_path, ("write-atomicity",))["write-atomicity"].anomalies["torn-read"]
    assert anomaly.message.endswith(
        "The same write put 2 in the place of 1, so the page shows a part of the write only."
    )


@pytest.mark.parametrize("seeds", ranges_of(200, 20_000))
def test_no_page_is_called_other_than_by_the_definition(seeds):
    """Valid and invalid are right; what is unknown is no more than a third."""
    said = {True: 0, False: 0, "unknown": 0}
    for seed in seeds:
        history = drawn(seed)
        broken = is_broken(history)
        found = PageKernel(4)(flattened(side_by_side([history.rows]), PROJECTION, 1 + seed % 4))
        valid, _ = verdict_of(found)
        assert broken is None or valid in (not broken, "unknown"), seed
        said[valid] += 1
    assert said["unknown"] < len(seeds) // 3 and said[False] > len(seeds) // 20, said


def test_timestamps_that_order_nothing_order_no_repeated_value_either(tmp_path):
    """A value that two operations wrote was placed by real time, where the others of its partition no longer were."""
    rows = [
        Row(0, 1, 0, (("w", 1, 5), ("w", 2, 7)), served_ts=20),
        Row(2, 3, 1, (("w", 0, 2), ("w", 1, 6), ("w", 2, 7)), served_ts=10),
        Row(4, 5, 2, (("w", 3, 9),)),
        Row(6, 7, 3, (("r", 0, 2), ("r", 1, 5))),
    ]
    verdict = judged(rows, tmp_path, ("write-atomicity",))["write-atomicity"]
    assert verdict.valid == "unknown" and "below that of a write that came before" in verdict.reason

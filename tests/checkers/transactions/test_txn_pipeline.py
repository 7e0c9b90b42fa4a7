"""The stages of the distributed pipeline against the in-process engine, on random histories cut into tiny parts."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from pipeline_in_memory import find_in_pieces
from weak_store import random_history, source_of

from checkers.kernels.txn_register import ORDER_REALTIME
from checkers.transactions.found import UNWRITTEN
from checkers.transactions.local import find_in_lists, find_in_registers

SEEDS = range(60)


@pytest.mark.parametrize("lists", [True, False], ids=["list-append", "rw-register"])
def test_pieces_buckets_and_windows_give_what_one_process_gives(lists, tmp_path):
    for seed in SEEDS:
        dice = random.Random(seed)
        history = random_history(seed, lists, txns=dice.randint(5, 60), keys=dice.randint(1, 4))
        source, orders = source_of(history), dice.randrange(3)
        sources = 0 if lists else dice.choice([0, ORDER_REALTIME])
        parts = {"rows_each": dice.randint(1, 9), "buckets": dice.randint(1, 3), "stride": dice.choice([1, 8, 1000])}
        model = "list-append" if lists else "rw-register"
        theirs = find_in_pieces(source, tmp_path, model, orders, sources, **parts)
        theirs.pop(UNWRITTEN, None)
        if lists:
            ours = find_in_lists(source, orders, 2).counts
        else:
            ours = find_in_registers(source, orders, sources, 2).counts
        assert theirs == ours, (seed, parts)

"""Made histories: valid ones are judged valid, what is injected is found by name, at any rate and in parts."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from assay.history_commands import Target, generate_history, with_anomaly
from checkers.api import check
from checkers.importers.detect import open_source
from checkers.made import pages, registers, transactions
from checkers.made.generate import BASES, MadeHistory, anomalies, made_batches, settings_of, write_made
from checkers.made.injection import Template, spliced
from checkers.models import MODELS
from checkers.options import CheckOptions
from harness.errors import UserError
from harness.history.columns import SCHEMA
from harness.history.ops import Mop, Op
from harness.history.saved import MANIFEST, open_saved
from harness.history.table import to_table


def counts(wanted: MadeHistory, path: Path) -> dict[str, int]:
    """What the model counts in the history."""
    path.unlink(missing_ok=True)
    write_made(wanted, path)
    return check(path, wanted.model, engine="local", options=CheckOptions(settings=settings_of(wanted))).counts


def test_every_model_of_histories_has_made_ones() -> None:
    assert BASES.keys() == MODELS.keys() - {"logs"}
    assert sum(len(anomalies(model)) for model in BASES) > 120


@pytest.mark.parametrize("model", sorted(BASES))
def test_valid_histories_are_valid_and_injected_anomalies_found(model: str, tmp_path: Path) -> None:
    wanted = MadeHistory(model, 300, info=0.05, seed=3)
    write_made(wanted, tmp_path / "valid")
    verdict = check(tmp_path / "valid", model, engine="local")
    assert (verdict.valid, verdict.counts) == (True, {})
    info = 0.0 if model == "catalog" else 0.05  # a creation of unknown outcome may have made any phantom
    for anomaly in anomalies(model):
        corrupted = MadeHistory(model, 300, None, anomaly, None, info, 3)
        assert counts(corrupted, tmp_path / "corrupted").get(anomaly), anomaly


@pytest.mark.parametrize(
    ("model", "anomaly"), [("register", "stale-read"), ("set", "lost"), ("unique-ids", "duplicate-id")]
)
def test_a_rate_injects_so_many(model: str, anomaly: str, tmp_path: Path) -> None:
    found = counts(MadeHistory(model, 2_000, anomaly=anomaly, rate=0.01), tmp_path / "corrupted")
    assert found == {anomaly: 20}


def test_injecting_leaves_all_else_as_it_was() -> None:
    wanted = MadeHistory("register", 500, keys=3, info=0.1)
    plain = pa.Table.from_batches(made_batches(wanted, {}))
    template = Template(to_table([Op("invoke", 0, "read", (Mop("r", 5),), index=0, time=0)]))
    places = np.array([0, 7, 400, 5_000])
    table = pa.Table.from_batches(spliced(iter(plain.to_batches(max_chunksize=64)), template, places))
    index = table.column("invoke_index").to_numpy()
    assert (np.diff(index) > 0).all() and table.column("op").to_pylist() == list(range(504))
    times = np.sort(
        np.concatenate([table.column(name).drop_null().to_numpy() for name in ("invoke_time", "complete_time")])
    )
    assert len(times) == len(set(times.tolist()))
    added = [row for row in table.to_pylist() if row["process"] >= 10**9]
    assert len({row["mops"][0]["partition"] for row in added}) == len({row["process"] for row in added}) == 4
    kept = [row for row in table.to_pylist() if row["process"] < 10**9]
    events = sorted(
        e for row in plain.to_pylist() for e in (row["invoke_index"], row["complete_index"]) if e is not None
    )
    moved = sorted(e for row in kept for e in (row["invoke_index"], row["complete_index"]) if e is not None)
    moves = {"op", "invoke_index", "complete_index", "invoke_time", "complete_time"}
    order, rank = {e: i for i, e in enumerate(events)}, {e: i for i, e in enumerate(moved)}
    for before, after in zip(plain.to_pylist(), kept, strict=True):
        assert order[before["invoke_index"]] == rank[after["invoke_index"]]
        assert order.get(before["complete_index"]) == rank.get(after["complete_index"])
        assert all(before[name] == after[name] for name in SCHEMA.names if name not in moves)


@pytest.mark.parametrize("model", ["list-append", "rw-register", "register", "write-atomicity"])
def test_memory_does_not_grow_with_the_history(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of all kinds are small here, so that four times the operations are four times the blocks."""
    for module, name in ((transactions, "_SECTION"), (transactions, "_ROWS_PER_GROUP"), (registers, "_ROWS_PER_GROUP")):
        monkeypatch.setattr(module, name, 1 << 9)
    monkeypatch.setattr(pages, "_OPS_PER_GROUP", 1 << 9)
    few, many = (peak(MadeHistory(model, operations, keys=5)) for operations in (4_000, 16_000))
    assert many < 1.3 * few


def peak(wanted: MadeHistory) -> int:
    """Bytes that making the history takes at most, without what Arrow holds."""
    for _ in made_batches(replace(wanted, operations=100), {}):
        pass
    tracemalloc.start()
    for _ in made_batches(wanted, {}):
        pass
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


@pytest.mark.parametrize("model", ["list-append", "rw-register"])
def test_transactions_go_on_where_a_section_ends(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the same keys, each value once, by clients who do one thing after the other."""
    monkeypatch.setattr(transactions, "_SECTION", 100)
    table = pa.Table.from_batches(made_batches(MadeHistory(model, 1_000, keys=4, info=0.1), {}))
    assert table.column("op").to_pylist() == list(range(1_000))
    rows = table.to_pylist()
    assert sorted(e for row in rows for e in (row["invoke_index"], row["complete_index"])) == list(range(2_000))
    open_until: dict[int, int] = {}
    for row in rows:
        assert open_until.get(row["process"], -1) < row["invoke_index"]
        open_until[row["process"]] = row["complete_index"] if row["type"] != "info" else 2_000
    written = [(mop["partition"], mop["value"]) for row in rows for mop in row["mops"] if mop["f"] != "r"]
    assert len(written) == len(set(written))
    later = {mop["partition"] for row in rows[100:] for mop in row["mops"]}
    assert later & {mop["partition"] for row in rows[:100] for mop in row["mops"]}
    write_made(MadeHistory(model, 1_000, keys=4, info=0.1), tmp_path / "h")
    verdict = check(tmp_path / "h", model, engine="local", options=CheckOptions(consistency="strict-serializable"))
    assert (verdict.valid, verdict.counts) == (True, {})


def test_the_command_writes_parts_and_edn(tmp_path: Path) -> None:
    wanted = with_anomaly(MadeHistory("kv-append", 400, keys=4), "nonlinearizable,0.01")
    parts, edn = tmp_path / "parts", tmp_path / "made.edn"
    assert list(generate_history(wanted, Target(parts, part_rows=100))) == [f"{parts}: 412 operations"]
    assert len(open_saved(parts).manifest.parts) == 5 and (parts / MANIFEST).exists()
    list(generate_history(wanted, Target(edn, "edn")))
    judged = [check(path, "kv-append", engine="local") for path in (parts, edn)]
    assert judged[0].counts == judged[1].counts == {"nonlinearizable": 4}
    assert open_source(parts).dictionary[:1] == ("k",)
    again = tmp_path / "again"
    list(generate_history(wanted, Target(again, part_rows=100)))
    assert [path.read_bytes() for path in sorted(parts.iterdir())] == [
        path.read_bytes() for path in sorted(again.iterdir())
    ]


@pytest.mark.parametrize(
    ("wanted", "anomaly", "target", "sentence"),
    [
        (MadeHistory("logs", 10), None, "h", "there is nothing to generate"),
        (MadeHistory("nothing", 10), None, "h", "There is no model 'nothing'"),
        (MadeHistory("register", 10), "G0", "h", "'G0' can't be injected in a history of register; what can: read-of-"),
        (MadeHistory("stats", 10), "G0", "h", "knows no anomalies"),
        (MadeHistory("register", 10), "stale-read,2", "h", "NAME,RATE"),
        (MadeHistory("register", 10), "stale-read,x", "h", "NAME,RATE"),
        (MadeHistory("register", 10, info=2.0), None, "h", "between 0 and 1"),
        (MadeHistory("register", 0), None, "h", "A history has operations"),
        (MadeHistory("unique-ids", 10, keys=2), None, "h", "has no keys"),
        (MadeHistory("bank", 10, keys=1), None, "h", "more accounts than 1"),
        (MadeHistory("register", 10), None, "absent/h", "There is no directory"),
        (MadeHistory("register", 10), None, "", "is there already"),
    ],
)
def test_what_cannot_be_made_is_a_sentence(
    wanted: MadeHistory, anomaly: str | None, target: str, sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=sentence.replace("(", r"\(")) as told:
        list(generate_history(with_anomaly(wanted, anomaly), Target(tmp_path / target)))
    assert "\n" not in str(told.value) and list(tmp_path.iterdir()) == []

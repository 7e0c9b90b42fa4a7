"""Judging slice by slice finds what judging all at once finds."""

import msgspec
import pytest

from checkers.api import check_run
from checkers.engines import grouped
from checkers.made.pages import PageShape, write_page_history

MODELS = ("sessions", "monotonic-reads", "write-atomicity")


@pytest.mark.parametrize("anomaly", ["none", "torn-read", "non-monotonic-read"])
@pytest.mark.parametrize("stamped", [False, True])
def test_slices_change_no_verdict(anomaly, stamped, tmp_path, monkeypatch):
    path = tmp_path / "history.parquet"
    write_page_history(PageShape(6000, partitions=40, stamped=stamped, anomaly=anomaly), path)
    monkeypatch.setattr(grouped, "_SLICES", 1)
    whole = check_run(path, MODELS, engine="local")
    judged = []
    original = grouped.united
    monkeypatch.setattr(grouped, "united", lambda parts, names: judged.append(len(parts)) or original(parts, names))
    monkeypatch.setattr(grouped, "_SLICES", 7)
    monkeypatch.setattr(grouped, "_ROWS_PER_SLICE", 1)
    sliced = check_run(path, MODELS, engine="local")
    assert len(judged) == 7 * len(MODELS)
    for model in MODELS:
        assert msgspec.structs.replace(sliced[model], seconds=0) == msgspec.structs.replace(whole[model], seconds=0)
    expected = {"none": set(), "torn-read": {"write-atomicity"}, "non-monotonic-read": {"sessions", "monotonic-reads"}}
    assert {model for model in MODELS if whole[model].valid is not True} >= expected[anomaly]
    assert anomaly != "none" or all(verdict.valid is True for verdict in sliced.values())

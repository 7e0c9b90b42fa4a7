"""The lattice of consistency models against the tables that Elle prints."""

from __future__ import annotations

import csv

import pytest

from checkers.transactions import lattice
from checkers.transactions.graph.cycle_anomalies import BASES, ORDERS
from harness.errors import UserError
from tests.support.corpus import CORPUS

TABLES = CORPUS / "elle-models"


def rows(name: str) -> list[dict[str, str]]:
    path = TABLES / name
    if not path.exists():
        pytest.skip(f"the corpus is not here: {path}")
    with path.open() as file:
        return list(csv.DictReader(file, delimiter="\t"))


def test_anomalies_rule_out_what_elle_says():
    for row in rows("anomaly_models.tsv"):
        name = row["anomaly"]
        assert lattice.implied_anomalies([name]) - {name} == set(row["implies"].split()), name
        weakest, stronger = lattice.ruled_out([name])
        assert list(weakest) == row["not(weakest models ruled out)"].split(), name
        assert list(stronger) == row["also_not"].split(), name


def test_models_prohibit_what_elle_says():
    for row in rows("model_prohibits.tsv"):
        model = row["friendly"]
        assert lattice.MODELS[model][0] == row["model"]
        assert lattice.friendly_name(row["model"]) == model
        assert lattice.implied_models(model) == set(row["implies_models"].split())
        elles = set(row["prohibited_anomalies"].split())
        ours = {"garbage-read"} if "G1a" in elles else set()
        ours |= {f"cyclic-versions{order}" for order in ORDERS[1:] if f"G-single-item{order}" in elles}
        assert lattice.prohibited_anomalies(model) == elles | ours, model


def test_every_name_in_the_data_is_known():
    for _, implied, _ in lattice.MODELS.values():
        assert set(implied.split()) <= set(lattice.MODELS)


def test_names():
    assert lattice.friendly_name("strict-serializable") == "strong-serializable"
    for alias in ("PL-SI", "SI", "si", "Snapshot-Isolation"):
        assert lattice.friendly_name(alias) == "snapshot-isolation"
    assert set(lattice.ALIASES.values()) <= set(lattice.MODELS) and lattice.ALIASES.keys().isdisjoint(lattice.MODELS)
    with pytest.raises(UserError, match=r"no consistency model 'eventual'.*read-atomic.*psi \(parallel-snapshot-"):
        lattice.friendly_name("eventual")


def test_several_anomalies_keep_the_weakest_models():
    weakest, stronger = lattice.ruled_out(["G2-item", "G1a"])
    assert weakest == ("read-committed",)
    assert "repeatable-read" in stronger
    assert lattice.ruled_out([]) == ((), ())


def test_what_cycles_add_to_lists_that_contradict_each_other():
    """Why dependencies are read off one of several longest lists only: of the classes of cycles nothing but G0 can
    depend on which."""
    known = lattice.impossible_models(["incompatible-order"])
    classes = [base + order for base in BASES for order in ORDERS]
    more = {name for name in classes if not lattice.impossible_models([name]) <= known}
    assert more == {"G0", "G0-process", "G0-realtime"}


def test_which_orders_a_model_needs():
    assert lattice.needs_realtime("strict-serializable")
    assert not lattice.needs_realtime("serializable")
    assert lattice.needs_sessions("strong-session-snapshot-isolation")
    assert not lattice.needs_sessions("snapshot-isolation")

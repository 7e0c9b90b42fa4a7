"""`assay verify` on stand-ins: one that keeps every promise passes, and each that breaks one is told so."""

from __future__ import annotations

import asyncio
import re

import pytest

from assay.verify.command import verify
from assay.verify.subject import Subject, Waits
from tests.assay.verify.stand_in import BROKEN, UNTRIED, StandIn, StandInMachines

QUICK = Waits(operation=0.3, beyond=0.3, ready=1.0, settle=0.1, appear=0.3, second_start=0.05, election=1.0, clock=0.05)


def verified(kind: type[StandIn]) -> tuple[tuple[str, ...], list[str]]:
    """What was found of a stand-in, and what was told meanwhile."""
    told: list[str] = []
    machines = StandInMachines()
    database = kind(machines, machines)
    subject = Subject(machines, database, "register", database.behind, QUICK)  # type: ignore[arg-type]
    return asyncio.run(verify(subject, told.append)), told


def test_one_that_keeps_its_promises_passes_every_check() -> None:
    found, told = verified(StandIn)
    assert found == ()
    assert [line.split()[0] for line in told] == ["ok"] * 13, told


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_a_broken_promise_is_told_in_a_sentence(kind: type[StandIn]) -> None:
    found, _ = verified(kind)
    assert any(re.match(BROKEN[kind], sentence) for sentence in found), found


@pytest.mark.parametrize("kind", UNTRIED, ids=lambda kind: kind.__name__)
def test_what_could_not_be_tried_is_not_called_kept(kind: type[StandIn]) -> None:
    found, told = verified(kind)
    assert found == () and UNTRIED[kind] in told, told

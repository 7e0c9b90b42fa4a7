"""The set up of a workload: its table is there once it was asked for, whatever a slow world did to the answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cluster.deploy.adapter import CREATIONS, create_registers
from harness.errors import DefiniteError, IndefiniteError

LOST = IndefiniteError("timeout", "no answer within 1 s")
PRESENT = DefiniteError("already-present", "a table named 'registers' exists")


class Answers:
    """A client whose masters answer one thing after the other."""

    def __init__(self, *answers: Exception | None) -> None:
        self.answers, self.asked = list(answers), list[tuple[Any, ...]]()

    async def create_table(self, *asked: Any) -> None:
        self.asked.append(asked)
        answer = self.answers.pop(0)
        if answer is not None:
            raise answer


def created(*answers: Exception | None) -> Answers:
    client: Any = Answers(*answers)
    asyncio.run(create_registers(client, "register", {"buckets": 2}, client))
    assert not client.answers and len(set(client.asked)) == 1
    return client


@pytest.mark.parametrize("then", [None, PRESENT])
def test_a_table_of_unknown_outcome_is_asked_for_again(then: Exception | None) -> None:
    """`assay run register --nemesis all --swarm --seed 564` gave up: the masters had ended the session that asked."""
    created(None)
    assert len(created(LOST, LOST, then).asked) == 3


def test_a_table_that_was_there_before_is_refused() -> None:
    with pytest.raises(DefiniteError, match="exists"):
        created(PRESENT)


def test_what_stays_unknown_is_told() -> None:
    with pytest.raises(IndefiniteError, match="no answer"):
        created(*[LOST] * CREATIONS)
    with pytest.raises(DefiniteError, match="other"):
        created(LOST, DefiniteError("invalid", "other"))

"""Small histories of Jepsen's kinds for tests: valid ones, corrupted at random, and many of them in one table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import msgspec

from checkers.engines.api import Engine
from checkers.engines.local import LocalEngine
from checkers.made.jepsen import Shape, history
from checkers.models import MODELS
from checkers.options import CheckOptions
from checkers.source import Source
from checkers.verdict import Verdict
from harness.history.ops import Mop, Op
from harness.history.table import to_table
from tests.support.injecting import with_mops, without


def source_of(events: Sequence[Op]) -> Source:
    table = to_table(events)
    return Source(Path("test.journal"), "journal", table.num_rows, table=table)


def judge(model: str, events: Sequence[Op], engine: Engine | None = None, **settings: str) -> Verdict:
    return MODELS[model].judge(source_of(events), engine or LocalEngine(), CheckOptions(settings=settings))


def small_shape(random: Random, key: int) -> Shape:
    return Shape(
        operations=random.randint(0, 24),
        clients=random.randint(1, 5),
        info_share=random.choice((0.0, 0.1, 0.4)),
        fail_share=random.choice((0.0, 0.1, 0.3)),
        key=key,
        width=random.randint(2, 4),
    )


def corrupted(model: str, events: list[Op], random: Random) -> list[Op]:
    """The history with up to three reads corrupted or operations dropped, or none."""
    for _ in range(random.choice((0, 1, 1, 2, 3))):
        told = [place for place, op in enumerate(events) if op.type == "ok" and op.mops]
        if told and random.random() < 0.8:
            place = random.choice(told)
            mops = events[place].mops
            which = random.randrange(len(mops))
            changed = _changed(mops[which], random, model)
            events = with_mops(events, place, (*mops[:which], changed, *mops[which + 1 :]))
        elif events:
            victim = random.choice(events)
            begun = max(op.index for op in events if op.process == victim.process and op.index <= victim.index)
            begun = max(
                op.index for op in events if op.process == victim.process and op.index <= begun and op.type == "invoke"
            )
            events = without(events, lambda op, begun=begun: op.index == begun)  # type: ignore[misc]
    return events


def _changed(mop: Mop, random: Random, model: str) -> Mop:
    if mop.f in ("add", "enqueue", "w"):
        return mop
    if mop.values is not None:
        values = list(mop.values)
        draw = random.random()
        if values and draw < 0.5:
            values.pop(random.randrange(len(values)))
        elif values and draw < 0.7:
            values.append(random.choice(values))
        else:
            values.append(random.randint(1, 20))
        return msgspec.structs.replace(mop, values=tuple(values))
    if model == "long-fork":
        return msgspec.structs.replace(mop, value=None if mop.value else 1)
    if model == "bank" and random.random() < 0.2:
        return msgspec.structs.replace(mop, value=None)
    return msgspec.structs.replace(mop, value=(mop.value or 0) + random.randint(-4, 4))


def random_history(model: str, seed: int, key: int = 0) -> list[Op]:
    random = Random(seed)
    events = history(model, small_shape(random, key), seed)
    return corrupted(model, events, random)


def joined(histories: Sequence[list[Op]]) -> list[Op]:
    """One history after the other, each with processes of its own."""
    events: list[Op] = []
    base = 0
    for one in histories:
        for op in one:
            events.append(msgspec.structs.replace(op, index=len(events), time=len(events), process=base + op.process))
        base += 1 + max((op.process for op in one), default=0)
    return events

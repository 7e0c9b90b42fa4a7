"""Generators: pure values that say what to do next, and the combinators that make them (`runs.md`, "Generators")."""

from harness.generators.bounds import cycle, filter_ops, limit, map_ops, repeat, until, until_ok
from harness.generators.chance import Chance, child
from harness.generators.choice import any_of, flip_flop, mix, weighted
from harness.generators.core import (
    EMPTY,
    PENDING,
    Context,
    Generator,
    Pending,
    Source,
    Step,
    chain,
    draw,
    invoke,
    lift,
    once,
)
from harness.generators.keyed import keyed_concurrent, keyed_sequential, keyed_zipf
from harness.generators.threads import clients, each_process, nemesis, on_threads, phases, reserve, synchronize, then
from harness.generators.timing import cycle_times, delay, sleep, stagger, time_limit

__all__ = [
    "EMPTY",
    "PENDING",
    "Chance",
    "Context",
    "Generator",
    "Pending",
    "Source",
    "Step",
    "any_of",
    "chain",
    "child",
    "clients",
    "cycle",
    "cycle_times",
    "delay",
    "draw",
    "each_process",
    "filter_ops",
    "flip_flop",
    "invoke",
    "keyed_concurrent",
    "keyed_sequential",
    "keyed_zipf",
    "lift",
    "limit",
    "map_ops",
    "mix",
    "nemesis",
    "on_threads",
    "once",
    "phases",
    "repeat",
    "reserve",
    "sleep",
    "stagger",
    "synchronize",
    "then",
    "time_limit",
    "until",
    "until_ok",
    "weighted",
]

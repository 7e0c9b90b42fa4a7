"""`--swarm`: each seed draws its own cluster, load and faults (Groce et al. 2012, "Swarm testing").

A run that has everything at once rarely has enough of anything: leaving out a random part of the kinds reaches states
that all of them together never do. All is drawn from the seed, so that the same command makes the same run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import msgspec

from assay.options import RunOptions
from nemesis.asked import ALL, Asked, expand, parse_all
from nemesis.packages import cost_s, fitting

MASTERS = (1, 3, 3, 3, 5)
NODES = (3, 4, 5, 5, 6, 7)
RATES_HZ = (30.0, 60.0, 100.0, 100.0, 200.0)
CONCURRENCY = (5, 5, 10, 10, 20)
"""Of fewer clients too few write: two fifths of a register's only read, and each is stuck in one request at a time."""
MOST_KINDS = 6
PACED_SHARE = 0.4
"""How often a kind has a pace of its own."""


def draw_cluster(options: RunOptions, least_nodes: int = 1) -> RunOptions:
    """The options with cluster and load as the seed has them, of so many nodes as the workload needs; the world is
    drawn from the seed anyway."""
    entropy = Random(f"swarm/{options.seed}")
    return replace(
        options,
        masters=entropy.choice(MASTERS),
        nodes=max(entropy.choice(NODES), least_nodes),
        rate=entropy.choice(RATES_HZ),
        concurrency=entropy.choice(CONCURRENCY),
    )


def draw_faults(options: RunOptions, offered: frozenset[str]) -> tuple[str, ...]:
    """A random part of the kinds asked for, some with a random pace, as `--nemesis` takes them.

    Those asked for by name that can't be done here stay among them, to be refused, as does `all` where it stands for
    none. Of kinds with settings of their own from the user the settings are kept.
    """
    entropy = Random(f"swarm/{options.seed}/faults")
    asked = parse_all(options.nemesis)
    kinds = list(expand(asked, offered))
    if not kinds:
        return options.nemesis if asked else ()
    least = 1 if any(each.name == ALL for each in asked) else min(2, len(kinds))
    count = entropy.randint(least, min(len(kinds), MOST_KINDS))
    drawn = fitting(entropy.sample(kinds, count), (), options.time_limit, entropy)
    left_s = options.time_limit - sum(map(cost_s, drawn))
    faults = []
    for each in (kind for kind in kinds if kind in drawn):
        paced = _paced(each, entropy, cost_s(each) + max(left_s, 0.0))
        left_s -= cost_s(paced) - cost_s(each)
        faults.append(paced.text())
    return tuple(faults)


def _paced(asked: Asked, entropy: Random, longest_s: float) -> Asked:
    """Maybe with a pace of its own, such that every kind still has its turn within the run."""
    every_s, share = round(entropy.uniform(3.0, 12.0), 1), entropy.uniform(0.2, 0.7)
    alone = asked.every_s is None and asked.for_s is None and entropy.random() < PACED_SHARE
    if not alone or every_s > longest_s:
        return asked
    return msgspec.structs.replace(asked, every_s=every_s, for_s=round(every_s * share, 1))


def drawn_words(options: RunOptions, nemeses: Sequence[str]) -> str:
    """What was drawn, in one line for people."""
    return (
        f"swarm: masters={options.masters}, nodes={options.nodes}, rate={options.rate:g}, "
        f"concurrency={options.concurrency}, nemesis={','.join(nemeses) or 'none'}"
    )

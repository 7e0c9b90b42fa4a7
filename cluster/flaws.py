"""The one literal registry of the bugs that the cluster can be started with (`reference-cluster.md`, "Flaws").

A flaw changes the one decision that the historical bug got wrong, in the place where the code makes it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Flaw:
    """A known bug: the mechanism it breaks, what goes wrong, and the workload and nemesis that find it.

    `world` is what `--world` has to be told for it, if anything. `seen_by` says what shows it: `clients`, through the
    workload's checkers, or the name of an invariant.
    """

    name: str
    mechanism: str
    consequence: str
    workload: str
    nemesis: str
    world: str = ""
    seen_by: str = "clients"


FLAWS: dict[str, Flaw] = {
    flaw.name: flaw
    for flaw in (
        Flaw("raft-ack-before-fsync", "R1", "an acknowledged write is lost with a crash", "register", "power-cut"),
        Flaw(
            "raft-forget-vote",
            "R1",
            "a voter votes twice in a term: two leaders",
            "register",
            "rotate-majority",
        ),
        Flaw(
            "raft-commit-old-term",
            "R1",
            "a committed entry is overwritten (figure 8)",
            "register",
            "leader-returns",
        ),
        Flaw(
            "forget-request-ids",
            "G8",
            "snapshots lose the answers: a retried compare-and-set takes effect twice",
            "register",
            "partition,kill",
            world="loss=0.03,snapshot-entries=2",
        ),
        Flaw("read-without-lease", "R2", "a deposed leader serves stale reads", "register", "partition"),
    )
}

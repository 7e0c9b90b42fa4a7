"""What `tc` and the firewall are told: one treatment for all that leaves a node, loss for each source by itself."""

from __future__ import annotations

import pytest

from harness.env import shaping
from harness.errors import HarnessError
from harness.ports.machines import Impairment

ADDRESSES = {"t1": "10.0.0.1", "t2": "10.0.0.2", "t3": "10.0.0.3"}


def test_capabilities_follow_from_what_the_kernel_has() -> None:
    assert shaping.capabilities(()) == frozenset()
    assert shaping.capabilities({"tbf", "faketime"}) == {"packets", "packet-rate", "packet-clog"}
    assert shaping.capabilities({"netem", "tbf", "statistic"}) == {"packets", *shaping.ABILITIES}


@pytest.mark.parametrize(
    ("impairment", "words"),
    [
        (Impairment(rate_bytes_per_s=1_000), "tbf rate 8000bit burst 3028 limit 67108864"),
        (Impairment(clogged=True), "tbf rate 100bit burst 3028 limit 67108864"),
        (Impairment(delay_s=0.1), "netem delay 100000us 0us limit 100000"),
        (Impairment(delay_s=0.1, jitter_s=0.02), "netem delay 110000us 10000us limit 100000"),
        (Impairment(duplication=0.2, corruption=0.1), "netem duplicate 20% corrupt 10% limit 100000"),
        (Impairment(reorder=0.25), "netem delay 20000us 0us reorder 75% limit 100000"),
        (Impairment(delay_s=0.1, rate_bytes_per_s=100), "netem delay 100000us 0us rate 800bit limit 100000"),
    ],
)
def test_each_impairment_is_a_queueing_discipline(impairment: Impairment, words: str) -> None:
    assert shaping.discipline(impairment) == words
    command = shaping.shape_command(impairment, "10.0.0.1", "10.0.0.2")
    assert f'tc qdisc replace dev "$interface" root {words}' in command


def test_all_that_leaves_a_node_is_treated_alike_and_loss_apart() -> None:
    slow = Impairment(delay_s=1.0)
    links = {("t1", "t2"): slow, ("t1", "t3"): Impairment(delay_s=1.0, loss=0.5), ("t2", "t3"): Impairment(loss=0.1)}
    assert shaping.leaving(links, ADDRESSES) == {"t1": slow, "t2": shaping.NOTHING, "t3": shaping.NOTHING}
    assert shaping.loss_at(links, ADDRESSES) == {"t1": {}, "t2": {}, "t3": {"10.0.0.1": 0.5, "10.0.0.2": 0.1}}
    with pytest.raises(HarnessError, match="what leaves t1"):
        shaping.leaving({("t1", "t2"): slow}, ADDRESSES)


def test_loss_replaces_our_own_chain_in_one_transaction() -> None:
    command = shaping.lose_command({"10.0.0.1": 0.25}, "10.0.0.3")
    rule = "-A ASSAY-LOSS -s 10.0.0.1/32 -m statistic --mode random --probability 0.250000 -j DROP"
    assert f"*filter\\n:ASSAY-LOSS - [0:0]\\n{rule}\\nCOMMIT" in command
    assert "-F" not in command

"""What can be done to a machine: tried on it by one command, in its own words."""

from __future__ import annotations

from dataclasses import dataclass

from harness.env import shaping
from harness.env.clocks import LIBRARY
from harness.env.firewall import FIND_IPTABLES

TRIAL_CHAIN = "ASSAY-TRIAL"
FAKED_OFFSET_S = 120

CLOCK_PROGRAM = "import time; print(int(time.time()))"

PROBE_COMMAND = f"""
words=/tmp/assay-words.$$
{FIND_IPTABLES}
command -v ip >/dev/null || tool=
try() {{ name=$1; shift; if "$@" >"$words" 2>&1; then echo "$name"; else echo "$name: $(head -n 1 "$words")"; fi; }}
echo "iptables $tool"
if [ -n "$tool" ]; then
    "$tool" -N {TRIAL_CHAIN}
    try statistic "$tool" -A {TRIAL_CHAIN} -m statistic --mode random --probability 0.5 -j DROP
    "$tool" -F {TRIAL_CHAIN}
    "$tool" -X {TRIAL_CHAIN}
fi
try netem tc qdisc add dev lo root netem delay 1ms
tc qdisc del dev lo root 2>/dev/null
try tbf tc qdisc add dev lo root tbf rate 1mbit burst 32kbit latency 400ms
tc qdisc del dev lo root 2>/dev/null
true_time=$(python3 -c '{CLOCK_PROGRAM}')
export FAKETIME=+{FAKED_OFFSET_S}s FAKETIME_DONT_FAKE_MONOTONIC=1
faked_time=$(LD_PRELOAD='{LIBRARY}' python3 -c '{CLOCK_PROGRAM}' 2>"$words")
offset=$((faked_time - true_time))
moved() {{ test "$offset" -ge {FAKED_OFFSET_S} -a "$offset" -le {FAKED_OFFSET_S + 20} ||
  {{ test -s "$words" && head -n 1 "$words" || echo "the clock moved by $offset s"; return 1; }}; }}
try faketime moved
rm -f "$words"
"""


@dataclass(frozen=True, slots=True)
class NodeAbilities:
    """Which `iptables` works in a node ("": none does, for lack of it or of NET_ADMIN), and what else does.

    `lacks` maps each of `statistic`, `netem`, `tbf`, `faketime` that does not work to what was said about it.
    """

    iptables: str
    works: frozenset[str]
    lacks: dict[str, str]


UNTRIED = NodeAbilities("iptables", frozenset(), {})
"""What is taken for granted of machines of our own image."""


def parse_abilities(output: str) -> NodeAbilities:
    """What the probe printed: `iptables TOOL`, then `NAME` or `NAME: reason` for each ability."""
    first, *rest = output.strip().splitlines()
    works = frozenset(line for line in rest if ":" not in line)
    lacks = {name: reason.strip() for name, colon, reason in (line.partition(":") for line in rest) if colon}
    tool = first.removeprefix("iptables").strip()
    return NodeAbilities(tool, works, lacks if tool else {"iptables": "no iptables works, or there is no ip", **lacks})


def capabilities_of(node: NodeAbilities, volumes: bool) -> frozenset[str]:
    """What can be done to machines with these abilities, and with volumes of a limited size."""
    cuts = {"partition", "client-cut"} if node.iptables else frozenset[str]()
    clock = {"clock"} if "faketime" in node.works else frozenset[str]()
    full = {"full-disk"} if volumes else frozenset[str]()
    return frozenset(cuts) | full | clock | shaping.capabilities(node.works)

"""What faults a node's container can be subjected to on this machine, tried out inside one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.env.clocks import LIBRARY
from harness.env.firewall import CHOOSE_IPTABLES
from harness.protocols import Node

if TYPE_CHECKING:
    from harness.env.docker.environment import DockerEnvironment

TRIAL_CHAIN = "ASSAY-TRIAL"
PROBE_NODE = Node("doctor", "probe")
FAKED_OFFSET_S = 120

CLOCK_PROGRAM = "import time; print(int(time.time()))"

PROBE_COMMAND = f"""
{CHOOSE_IPTABLES}
try() {{ name=$1; shift; if "$@" >/tmp/probe 2>&1; then echo "$name"; else echo "$name: $(head -n 1 /tmp/probe)"; fi; }}
echo "iptables $tool"
"$tool" -N {TRIAL_CHAIN}
try statistic "$tool" -A {TRIAL_CHAIN} -m statistic --mode random --probability 0.5 -j DROP
"$tool" -F {TRIAL_CHAIN}
"$tool" -X {TRIAL_CHAIN}
try netem tc qdisc add dev lo root netem delay 1ms
tc qdisc del dev lo root 2>/dev/null
try tbf tc qdisc add dev lo root tbf rate 1mbit burst 32kbit latency 400ms
tc qdisc del dev lo root 2>/dev/null
true_time=$(python3 -c '{CLOCK_PROGRAM}')
export FAKETIME=+{FAKED_OFFSET_S}s FAKETIME_DONT_FAKE_MONOTONIC=1
faked_time=$(LD_PRELOAD='{LIBRARY}' python3 -c '{CLOCK_PROGRAM}' 2>/tmp/preload)
offset=$((faked_time - true_time))
moved() {{ test "$offset" -ge {FAKED_OFFSET_S} -a "$offset" -le {FAKED_OFFSET_S + 20} ||
  {{ test -s /tmp/preload && head -n 1 /tmp/preload || echo "the clock moved by $offset s"; return 1; }}; }}
try faketime moved
true
"""


@dataclass(frozen=True, slots=True)
class NodeAbilities:
    """Which `iptables` works in a node (SSH and NET_ADMIN do, or there would be no answer), and what else does.

    `lacks` maps each of `statistic`, `netem`, `tbf`, `faketime` that does not work to what was said about it.
    """

    iptables: str
    works: frozenset[str]
    lacks: dict[str, str]


async def probe_node(environment: DockerEnvironment) -> NodeAbilities:
    """Set one node up, try everything in it, and remove it; raises HarnessError when not even that can be done."""
    try:
        await environment.setup((PROBE_NODE,))
        return parse_abilities(await environment.fleet.check(PROBE_NODE.name, PROBE_COMMAND))
    finally:
        await environment.teardown()


def parse_abilities(output: str) -> NodeAbilities:
    """What the probe printed: `iptables TOOL`, then `NAME` or `NAME: reason` for each ability."""
    first, *rest = output.strip().splitlines()
    works = frozenset(line for line in rest if ":" not in line)
    lacks = {name: reason.strip() for name, colon, reason in (line.partition(":") for line in rest) if colon}
    return NodeAbilities(first.removeprefix("iptables "), works, lacks)

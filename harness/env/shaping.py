"""Bad links on a node: shell text for `tc` on its data interface, and for random loss in its firewall.

`tc` treats everything alike that leaves the node: by netem where the kernel has it, else by tbf, which limits the rate
and clogs. Loss is dropped by a chain of our own at the receiving end, for each source by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from harness.env.firewall import CHOOSE_IPTABLES, LOCK_WAIT_S, interface_of, spared
from harness.env.marks import IN_CONTAINERS, Marks
from harness.errors import HarnessError
from harness.ports.machines import Impairment

NOTHING = Impairment()

MTU_BYTES = 1514
QUEUE_BYTES = 64 << 20
CLOGGED_BITS_PER_S = 100
FLUSH_BITS_PER_S = 10_000_000_000

ABILITIES: Mapping[str, Collection[str]] = {
    "packet-delay": ("netem",),
    "packet-duplication": ("netem",),
    "packet-reorder": ("netem",),
    "packet-corruption": ("netem",),
    "packet-loss": ("statistic",),
    "packet-rate": ("tbf",),
    "packet-clog": ("tbf",),
}
"""What of the kernel each capability needs."""


def capabilities(works: Collection[str]) -> frozenset[str]:
    """What packets can be subjected to where these abilities of the kernel work; `packets` is any of them."""
    found = frozenset(name for name, needed in ABILITIES.items() if all(each in works for each in needed))
    return found | ({"packets"} if found else frozenset())


def leaving(links: Mapping[tuple[str, str], Impairment], nodes: Iterable[str]) -> dict[str, Impairment]:
    """What is done to all that leaves each node, loss apart; raises HarnessError where its links differ."""
    found: dict[str, Impairment] = {}
    names = list(nodes)
    for source in names:
        kinds = {replace(links.get((source, target), NOTHING), loss=0.0) for target in names if target != source}
        if len(kinds) > 1:
            raise HarnessError(f"what leaves {source} can't be treated differently for different targets here")
        found[source] = kinds.pop() if kinds else NOTHING
    return found


def shape_command(impairment: Impairment, data_address: str, neighbour: str) -> str:
    """Has everything that leaves the node treated like this, and as usual for none; what a clog kept leaves at once.

    `neighbour` is an address that takes a datagram: the kernel looks at a queue again when something joins it.
    """
    if impairment == NOTHING:
        return f"{interface_of(data_address)}\nneighbour={neighbour}\n{_RELIEVE}"
    return f'{interface_of(data_address)}\ntc qdisc replace dev "$interface" root {discipline(impairment)}'


def discipline(impairment: Impairment) -> str:
    """The queueing discipline that does it."""
    if impairment.clogged:
        return _tbf(CLOGGED_BITS_PER_S)
    words = []
    if impairment.delay_s or impairment.jitter_s or impairment.reorder:
        # What is to be overtaken is the share that waits: netem sends the others at once.
        delay_s = impairment.delay_s + impairment.jitter_s / 2 + (0.02 if impairment.reorder else 0.0)
        words.append(f"delay {delay_s * 1e6:.0f}us {impairment.jitter_s / 2 * 1e6:.0f}us")
    if impairment.reorder:
        words.append(f"reorder {100 * (1 - impairment.reorder):g}%")
    if impairment.duplication:
        words.append(f"duplicate {100 * impairment.duplication:g}%")
    if impairment.corruption:
        words.append(f"corrupt {100 * impairment.corruption:g}%")
    rate = impairment.rate_bytes_per_s
    if not words and rate is not None:
        return _tbf(8 * rate)
    return " ".join(["netem", *words, *([f"rate {8 * rate}bit"] if rate is not None else []), "limit 100000"])


def _tbf(bits_per_s: int) -> str:
    return f"tbf rate {bits_per_s}bit burst {2 * MTU_BYTES} limit {QUEUE_BYTES}"


_RELIEVE = f"""
kind=$(tc qdisc show dev "$interface" root | awk '{{ print $2; exit }}')
if [ "$kind" = tbf ]; then
    tc qdisc change dev "$interface" root tbf rate {FLUSH_BITS_PER_S}bit burst 10mb limit {QUEUE_BYTES}
    for _ in $(seq 50); do
        bash -c "echo >/dev/udp/$neighbour/9" 2>/dev/null
        tc -s qdisc show dev "$interface" root | grep -q 'backlog 0b' && break
        sleep 0.02
    done
fi
case "$kind" in tbf | netem) tc qdisc del dev "$interface" root ;; esac
""".strip()


def loss_at(links: Mapping[tuple[str, str], Impairment], addresses: Mapping[str, str]) -> dict[str, dict[str, float]]:
    """For every node the share to lose of what comes from each address."""
    found: dict[str, dict[str, float]] = {name: {} for name in addresses}
    for (source, target), impairment in sorted(links.items()):
        if impairment.loss:
            found[target][addresses[source]] = impairment.loss
    return found


def lose_command(shares: Mapping[str, float], data_address: str, marks: Marks = IN_CONTAINERS) -> str:
    """Has these shares of what comes from these addresses lost, instead of what was lost before."""
    rules = f":{marks.loss} - [0:0]\\n{spared(marks.loss, marks, '--dport')}" + "".join(
        f"-A {marks.loss} -s {address}/32 -m statistic --mode random --probability {share:.6f} -j DROP\\n"
        for address, share in shares.items()
    )
    hook = f'INPUT -i "$interface" -j {marks.loss}'
    return (
        f"{CHOOSE_IPTABLES}\n{interface_of(data_address)}\n"
        f"printf '*filter\\n{rules}COMMIT\\n' | $tool-restore -w {LOCK_WAIT_S} --noflush || exit 1\n"
        f"$tool -w {LOCK_WAIT_S} -C {hook} 2>/dev/null || $tool -w {LOCK_WAIT_S} -A {hook}"
    )

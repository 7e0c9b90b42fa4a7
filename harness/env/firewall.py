"""Partitions: two chains of our own in the node's filter table, hooked on its data interface, flushed at heal.

Shell text and rules only; nothing but our chains is ever touched. A cut of (source, target) drops, at the target, what
comes from the source's data address; if the target is `CLIENTS`, the source drops what goes to them. A one-way drop
also loses TCP's acknowledgements the other way round: requests may arrive, answers don't.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from harness.ports.machines import CLIENTS

CHAIN = "ASSAY-CUT"
OUT_CHAIN = "ASSAY-CUT-OUT"
LOCK_WAIT_S = 5

CHOOSE_IPTABLES = (
    "for tool in iptables-nft iptables-legacy iptables; do"
    f" if $tool -w {LOCK_WAIT_S} -S INPUT >/dev/null 2>&1; then break; fi; tool=; done;"
    ' [ -n "$tool" ] || { echo "no iptables works here (is NET_ADMIN missing?)" >&2; exit 1; }'
)
"""Sets `tool` to the first iptables that works in this network namespace: which one does is the kernel's choice."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """The addresses that one node hears no more, and those that hear it no more."""

    sources: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)


def interface_of(data_address: str) -> str:
    """Sets `interface` to the one that has the data address."""
    return (
        f"interface=$(ip -o -4 addr show | awk -v a={data_address} 'index($4, a \"/\") == 1 {{ print $2; exit }}')\n"
        f'[ -n "$interface" ] || {{ echo "no interface has the address {data_address}" >&2; exit 1; }}'
    )


def install_command(data_address: str) -> str:
    """Makes the chains and hooks them on the interface that has the data address; safe to run twice."""
    hooks = {CHAIN: f'INPUT -i "$interface" -j {CHAIN}', OUT_CHAIN: f'OUTPUT -o "$interface" -j {OUT_CHAIN}'}
    made = "\n".join(
        f"$tool -w {LOCK_WAIT_S} -N {chain} 2>/dev/null || $tool -w {LOCK_WAIT_S} -F {chain}\n"
        f"$tool -w {LOCK_WAIT_S} -C {hook} 2>/dev/null || $tool -w {LOCK_WAIT_S} -I {hook}"
        for chain, hook in hooks.items()
    )
    return f"{CHOOSE_IPTABLES}\n{interface_of(data_address)}\n{made}"


def cut_command(dropped: Dropped) -> str:
    """Drops what comes from and goes to these addresses, instead of what was dropped before; all of it at one moment.

    A chain that is declared is emptied, in the transaction that fills it again.
    """
    rules = f":{CHAIN} - [0:0]\\n:{OUT_CHAIN} - [0:0]\\n"
    rules += "".join(f"-A {CHAIN} -s {address}/32 -j DROP\\n" for address in dropped.sources)
    rules += "".join(f"-A {OUT_CHAIN} -d {address}/32 -j DROP\\n" for address in dropped.targets)
    return f"{CHOOSE_IPTABLES}\nprintf '*filter\\n{rules}COMMIT\\n' | $tool-restore -w {LOCK_WAIT_S} --noflush"


def heal_command() -> str:
    """Undoes every cut at this node, and nothing else."""
    return f"{CHOOSE_IPTABLES}\n$tool -w {LOCK_WAIT_S} -F {CHAIN}\n$tool -w {LOCK_WAIT_S} -F {OUT_CHAIN}"


def dropped_at(links: Iterable[tuple[str, str]], addresses: Mapping[str, str]) -> dict[str, Dropped]:
    """For every node that has something to drop, what, in a fixed order; `addresses` has one of `CLIENTS` too."""
    grouped: dict[str, Dropped] = {}
    for source, target in sorted(links):
        if target == CLIENTS:
            grouped.setdefault(source, Dropped()).targets.append(addresses[CLIENTS])
        else:
            grouped.setdefault(target, Dropped()).sources.append(addresses[source])
    return grouped

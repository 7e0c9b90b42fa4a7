"""Partitions: one chain of our own in the node's filter table, hooked on its data interface, flushed at heal.

Shell text and rules only; nothing but our chain is ever touched. A cut of (source, target) drops, at the target, what
comes from the source's data address. A one-way drop also loses TCP's acknowledgements the other way round: requests
may arrive, answers don't.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

CHAIN = "ASSAY-CUT"
LOCK_WAIT_S = 5

CHOOSE_IPTABLES = (
    "for tool in iptables-nft iptables-legacy iptables; do"
    f" if $tool -w {LOCK_WAIT_S} -S INPUT >/dev/null 2>&1; then break; fi; tool=; done;"
    ' [ -n "$tool" ] || { echo "no iptables works here (is NET_ADMIN missing?)" >&2; exit 1; }'
)
"""Sets `tool` to the first iptables that works in this network namespace: which one does is the kernel's choice."""


def install_command(data_address: str) -> str:
    """Makes the chain and hooks it on the interface that has the data address; safe to run twice."""
    hook = f'INPUT -i "$interface" -j {CHAIN}'
    return (
        f"{CHOOSE_IPTABLES}\n"
        f"interface=$(ip -o -4 addr show | awk -v a={data_address} 'index($4, a \"/\") == 1 {{ print $2; exit }}')\n"
        f'[ -n "$interface" ] || {{ echo "no interface has the address {data_address}" >&2; exit 1; }}\n'
        f"$tool -w {LOCK_WAIT_S} -N {CHAIN} 2>/dev/null || $tool -w {LOCK_WAIT_S} -F {CHAIN}\n"
        f"$tool -w {LOCK_WAIT_S} -C {hook} 2>/dev/null || $tool -w {LOCK_WAIT_S} -I {hook}"
    )


def cut_command(source_addresses: Iterable[str]) -> str:
    """Drops what comes from these addresses, in addition to what is dropped already; all of them at one moment."""
    rules = "".join(f"-A {CHAIN} -s {address}/32 -j DROP\\n" for address in source_addresses)
    return f"{CHOOSE_IPTABLES}\nprintf '*filter\\n{rules}COMMIT\\n' | $tool-restore -w {LOCK_WAIT_S} --noflush"


def heal_command() -> str:
    """Undoes every cut at this node, and nothing else."""
    return f"{CHOOSE_IPTABLES}\n$tool -w {LOCK_WAIT_S} -F {CHAIN}"


def sources_by_target(links: Iterable[tuple[str, str]], addresses: Mapping[str, str]) -> dict[str, list[str]]:
    """For every target that has something to drop, the data addresses of its sources, both in a fixed order."""
    grouped: dict[str, list[str]] = {}
    for source, target in sorted(links):
        grouped.setdefault(target, []).append(addresses[source])
    return grouped

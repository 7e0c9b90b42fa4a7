"""Partitions: two chains of our own in the node's filter table, hooked on its data interface, flushed at heal.

Shell text and rules only; nothing but our chains is ever touched. A cut of (source, target) drops, at the target, what
comes from the source's data address; if the target is `CLIENTS`, the source drops what goes to them. A one-way drop
also loses TCP's acknowledgements the other way round: requests may arrive, answers don't.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from harness.env.marks import IN_CONTAINERS, Marks
from harness.ports.machines import CLIENTS

LOCK_WAIT_S = 5

FIND_IPTABLES = (
    "for tool in iptables-nft iptables-legacy iptables; do"
    f" if $tool -w {LOCK_WAIT_S} -S INPUT >/dev/null 2>&1; then break; fi; tool=; done"
)
"""Sets `tool` to the first iptables that works in this network namespace, or to nothing."""

CHOOSE_IPTABLES = (
    f'{FIND_IPTABLES}; [ -n "$tool" ] || {{ echo "no iptables works here (is NET_ADMIN missing?)" >&2; exit 1; }}'
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


def install_command(data_address: str, marks: Marks = IN_CONTAINERS) -> str:
    """Makes the chains and hooks them on the interface that has the data address; safe to run twice."""
    hooks = {
        marks.cut: f'INPUT -i "$interface" -j {marks.cut}',
        marks.cut_out: f'OUTPUT -o "$interface" -j {marks.cut_out}',
    }
    made = "\n".join(
        f"$tool -w {LOCK_WAIT_S} -N {chain} 2>/dev/null || $tool -w {LOCK_WAIT_S} -F {chain}\n"
        f"$tool -w {LOCK_WAIT_S} -C {hook} 2>/dev/null || $tool -w {LOCK_WAIT_S} -I {hook}"
        for chain, hook in hooks.items()
    )
    return f"{CHOOSE_IPTABLES}\n{interface_of(data_address)}\n{made}"


def cut_command(dropped: Dropped, marks: Marks = IN_CONTAINERS) -> str:
    """Drops what comes from and goes to these addresses, instead of what was dropped before; all of it at one moment.

    A chain that is declared is emptied, in the transaction that fills it again.
    """
    rules = f":{marks.cut} - [0:0]\\n:{marks.cut_out} - [0:0]\\n{spared(marks.cut, marks, '--dport')}"
    rules += spared(marks.cut_out, marks, "--sport")
    rules += "".join(f"-A {marks.cut} -s {address}/32 -j DROP\\n" for address in dropped.sources)
    rules += "".join(f"-A {marks.cut_out} -d {address}/32 -j DROP\\n" for address in dropped.targets)
    return f"{CHOOSE_IPTABLES}\nprintf '*filter\\n{rules}COMMIT\\n' | $tool-restore -w {LOCK_WAIT_S} --noflush"


def spared(chain: str, marks: Marks, side: str) -> str:
    """The rule by which a chain leaves SSH alone, where it comes over the same interface; this end's port is `side`."""
    return "" if marks.ssh_port is None else f"-A {chain} -p tcp {side} {marks.ssh_port} -j RETURN\\n"


def heal_command(marks: Marks = IN_CONTAINERS) -> str:
    """Undoes every cut at this node, and nothing else."""
    return f"{CHOOSE_IPTABLES}\n$tool -w {LOCK_WAIT_S} -F {marks.cut}\n$tool -w {LOCK_WAIT_S} -F {marks.cut_out}"


REMOVE_COMMAND = f"""
{FIND_IPTABLES}
[ -n "$tool" ] || exit 0
$tool -w {LOCK_WAIT_S} -S | grep -e '-j ASSAY-' | sed 's/^-A/-D/' | while read -r rule; do
    $tool -w {LOCK_WAIT_S} $rule || exit 1
done
$tool -w {LOCK_WAIT_S} -S | sed -n 's/^-N \\(ASSAY-.*\\)/\\1/p' | while read -r chain; do
    $tool -w {LOCK_WAIT_S} -F "$chain" && $tool -w {LOCK_WAIT_S} -X "$chain" || exit 1
done
""".strip()
"""Removes the chains of every run, and what leads to them; to be run in a shell of its own."""


def dropped_at(links: Iterable[tuple[str, str]], addresses: Mapping[str, str]) -> dict[str, Dropped]:
    """For every node that has something to drop, what, in a fixed order; `addresses` has one of `CLIENTS` too."""
    grouped: dict[str, Dropped] = {}
    for source, target in sorted(links):
        if target == CLIENTS:
            grouped.setdefault(source, Dropped()).targets.append(addresses[CLIENTS])
        else:
            grouped.setdefault(target, Dropped()).sources.append(addresses[source])
    return grouped

"""What is dropped where, and that nothing but our own chain is ever named."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.env import firewall
from harness.env.marks import IN_CONTAINERS
from harness.ports.machines import CLIENTS

NAMES = ("t1", "t2", "t3", "t4")
ADDRESSES = {name: f"10.0.0.{number}" for number, name in enumerate(NAMES, 1)}
links = st.frozensets(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)))


@settings(deadline=None)
@given(links)
def test_every_cut_link_is_dropped_at_its_target_and_no_other(cut: frozenset[tuple[str, str]]) -> None:
    grouped = firewall.dropped_at(cut, ADDRESSES)
    dropped = {(source, ADDRESSES[target]) for target, rules in grouped.items() for source in rules.sources}
    assert dropped == {(ADDRESSES[source], ADDRESSES[target]) for source, target in cut}
    assert all(rules.sources and not rules.targets for rules in grouped.values())


def test_answers_to_clients_are_dropped_where_they_leave() -> None:
    addresses = {**ADDRESSES, CLIENTS: "10.0.0.254"}
    grouped = firewall.dropped_at({("t1", CLIENTS), (CLIENTS, "t2")}, addresses)
    assert grouped == {"t1": firewall.Dropped([], ["10.0.0.254"]), "t2": firewall.Dropped(["10.0.0.254"], [])}
    assert f"-A {IN_CONTAINERS.cut_out} -d 10.0.0.254/32 -j DROP" in firewall.cut_command(grouped["t1"])


def test_a_cut_replaces_our_chains_in_one_transaction() -> None:
    command = firewall.cut_command(firewall.Dropped(["10.0.0.1", "10.0.0.2"]))
    rules = f":{IN_CONTAINERS.cut} - [0:0]\\n:{IN_CONTAINERS.cut_out} - [0:0]\\n"
    rules += f"-A {IN_CONTAINERS.cut} -s 10.0.0.1/32 -j DROP\\n-A {IN_CONTAINERS.cut} -s 10.0.0.2/32 -j DROP\\n"
    assert f"*filter\\n{rules}COMMIT" in command
    assert "--noflush" in command


def test_healing_flushes_our_chains_only() -> None:
    flushes = [line for line in firewall.heal_command().splitlines() if "-F" in line]
    chains = (IN_CONTAINERS.cut, IN_CONTAINERS.cut_out)
    assert flushes == [f"$tool -w {firewall.LOCK_WAIT_S} -F {chain}" for chain in chains]

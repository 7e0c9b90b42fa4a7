"""What is dropped where, and that nothing but our own chain is ever named."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.env import firewall

NAMES = ("t1", "t2", "t3", "t4")
ADDRESSES = {name: f"10.0.0.{number}" for number, name in enumerate(NAMES, 1)}
links = st.frozensets(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)))


@settings(deadline=None)
@given(links)
def test_every_cut_link_is_dropped_at_its_target_and_no_other(cut: frozenset[tuple[str, str]]) -> None:
    grouped = firewall.sources_by_target(cut, ADDRESSES)
    dropped = {(source, ADDRESSES[target]) for target, sources in grouped.items() for source in sources}
    assert dropped == {(ADDRESSES[source], ADDRESSES[target]) for source, target in cut}
    assert all(grouped.values())


def test_a_cut_appends_to_our_chain_in_one_transaction() -> None:
    command = firewall.cut_command(["10.0.0.1", "10.0.0.2"])
    rules = f"-A {firewall.CHAIN} -s 10.0.0.1/32 -j DROP\\n-A {firewall.CHAIN} -s 10.0.0.2/32 -j DROP\\n"
    assert f"*filter\\n{rules}COMMIT" in command
    assert "--noflush" in command


def test_healing_flushes_our_chain_only() -> None:
    flushes = [line for line in firewall.heal_command().splitlines() if "-F" in line]
    assert flushes == [f"$tool -w {firewall.LOCK_WAIT_S} -F {firewall.CHAIN}"]

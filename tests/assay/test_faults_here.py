"""`assay doctor` names exactly the faults that nemeses can make here."""

from __future__ import annotations

from assay.doctor_command import docker_faults
from harness.env.docker.environment import NodeAbilities
from harness.env.doctor import ABILITIES, EngineFacts, MachineFacts
from nemesis.registry import NEMESES


def facts(works: set[str]) -> MachineFacts:
    node = NodeAbilities("iptables-nft", frozenset(works), {})
    return MachineFacts(8, 16.0, "", EngineFacts("27.0", image_built=True, node=node))


def test_where_everything_works_nothing_is_for_the_simulator_only() -> None:
    [found] = docker_faults(facts(set(ABILITIES)))
    assert all(name in found.sentence for name in NEMESES)


def test_what_lacks_an_ability_is_named_with_it() -> None:
    works, lacks = docker_faults(facts(set()))
    assert "partition" in works.sentence
    assert "clock" not in works.sentence
    assert not lacks.ok
    assert "clock-jump (clock)" in lacks.sentence


def test_nothing_is_said_where_no_node_was_tried() -> None:
    assert docker_faults(MachineFacts(8, 16.0, "", None, "no engine")) == ()

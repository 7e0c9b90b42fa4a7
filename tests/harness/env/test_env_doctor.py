"""What is said of a machine: one finding per fact, and for every lack what to do about it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.env.abilities import NodeAbilities, parse_abilities
from harness.env.doctor import ABILITIES, DoctorFinding, EngineFacts, MachineFacts, findings, java_major

ALL_WORK = NodeAbilities("iptables-nft", frozenset(ABILITIES), {})
GOOD = MachineFacts(
    cores=8,
    memory_gib=16.0,
    java='openjdk version "21.0.2" 2024-01-16',
    engine=EngineFacts("27.0", image_built=True, node=ALL_WORK),
)


def lacks(facts: MachineFacts) -> dict[str, DoctorFinding]:
    return {finding.subject: finding for finding in findings(facts) if not finding.ok}


def test_a_machine_that_has_everything_lacks_nothing() -> None:
    assert lacks(GOOD) == {}
    assert {finding.subject for finding in findings(GOOD)} >= {"docker", "java", "partitions", "ssh", *ABILITIES}


@pytest.mark.parametrize(
    ("facts", "subject", "advice"),
    [
        (replace(GOOD, java=""), "java", "install a Java 17"),
        (replace(GOOD, java='java version "1.8.0_312"'), "java", "Java 8 is too old"),
        (replace(GOOD, cores=1), "cores", "--on sim"),
        (replace(GOOD, memory_gib=1.5), "memory", "--engine local"),
        (replace(GOOD, engine=None, engine_error="No Docker engine answers here: start one"), "docker", "start one"),
        (replace(GOOD, engine=EngineFacts("27.0", True, "", None, "SSH failed")), "nodes", "SSH failed"),
        (replace(GOOD, engine=EngineFacts("27.0", False, "it needs root")), "image", "it needs root"),
        (replace(GOOD, engine=EngineFacts("27.0", False)), "nodes", "assay doctor --build"),
    ],
)
def test_each_lack_is_told_with_what_to_do(facts: MachineFacts, subject: str, advice: str) -> None:
    assert advice in lacks(facts)[subject].sentence


@pytest.mark.parametrize("name", list(ABILITIES))
def test_each_fault_that_nodes_can_not_take_is_told_with_its_reason(name: str) -> None:
    node = NodeAbilities("iptables-nft", frozenset(ABILITIES) - {name}, {name: "Specified qdisc kind is unknown."})
    found = lacks(replace(GOOD, engine=EngineFacts("27.0", True, "", node)))
    assert set(found) == {name}
    assert "(Specified qdisc kind is unknown)" in found[name].sentence


def test_every_sentence_is_one_sentence() -> None:
    bare = MachineFacts(1, 0.5, "", EngineFacts("20.10", False, "it needs root"))
    for facts in (GOOD, bare, replace(GOOD, engine=None, engine_error="No engine answers")):
        for finding in findings(facts):
            assert finding.sentence.endswith(".")
            assert "\n" not in finding.sentence


@pytest.mark.parametrize(
    ("line", "major"),
    [
        ('openjdk version "17.0.9" 2023', 17),
        ('java version "1.8.0_312"', 8),
        ('openjdk version "21" 2023', 21),
        ("", None),
    ],
)
def test_javas_versions_are_read(line: str, major: int | None) -> None:
    assert java_major(line) == major


def test_what_the_probe_printed_is_read() -> None:
    output = "iptables iptables-legacy\nstatistic\nnetem: Error: Specified qdisc kind is unknown.\ntbf\nfaketime: \n"
    abilities = parse_abilities(output)
    assert abilities.iptables == "iptables-legacy"
    assert abilities.works == {"statistic", "tbf"}
    assert abilities.lacks == {"netem": "Error: Specified qdisc kind is unknown.", "faketime": ""}

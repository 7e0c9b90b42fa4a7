"""Where replicas of a REGIONAL table stand, and which of them are out of place (R6): pure decisions.

The table says how many voters and learners each zone is to have. They get there one at a time: a zone that lacks a
voter gets a learner, which is promoted, and only then one that is out of place goes; so there are never fewer voters
than there should be, and at most one more. `zones` tells where servers stand that this master has heard of; `unfit`
are those that are to be emptied, whose replicas count for no zone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from cluster.master.records import TabletConfig
from cluster.wire.messages import Regional, Replica, Replicas
from harness.ports.api import node_of


def learners_wanted(wanted: Replicas) -> int:
    """How many learners are to stay learners."""
    return sum(wanted.learners.values()) if isinstance(wanted, Regional) else 0


def is_placed(
    config: TabletConfig, wanted: Regional, zones: Mapping[str, str], unfit: Collection[str], leader: str | None
) -> bool:
    """Whether all stands where it should, the lease too."""
    if any(name in unfit for name in config.member_ids):
        return False
    if not leads_at_home(leader, wanted, zones):
        return False
    return _count(config.voters, zones) == wanted.voters and _count(config.learners, zones) == wanted.learners


def leads_at_home(leader: str | None, wanted: Regional, zones: Mapping[str, str]) -> bool:
    """Whether the lease may stay where it is."""
    return not wanted.home or zones.get(leader or "") == wanted.home


def knows_all(config: TabletConfig, zones: Mapping[str, str]) -> bool:
    """Whether this master has heard where each member stands: else none is known to be out of place."""
    return all(name in zones for name in config.member_ids)


def lacking(
    there: Iterable[Replica], wanted: Mapping[str, int], zones: Mapping[str, str], unfit: Collection[str]
) -> list[str]:
    """Zones that have too few of these replicas."""
    counts = _count([each for each in there if each.node_id not in unfit], zones)
    return [zone for zone, count in wanted.items() if counts[zone] < count]


def misplaced(
    config: TabletConfig, wanted: Regional, zones: Mapping[str, str], unfit: Collection[str], leader: str
) -> list[Replica]:
    """Voters that are to be replaced by one elsewhere, the leader last: those in zones that are to have none, and while
    another zone lacks one those that a zone has too many of. What is too many only is not replaced."""
    found = beyond(config.voters, wanted.voters, zones, leader)
    short = lacking(config.voters, wanted.voters, zones, unfit)
    moving = [each for each in found if short or zones[each.node_id] not in wanted.voters]
    return sorted(moving, key=lambda each: each.node_id == leader)


def beyond(there: Iterable[Replica], wanted: Mapping[str, int], zones: Mapping[str, str], leader: str) -> list[Replica]:
    """Of these replicas those that their zones have too many of; the leader is the first to stay."""
    left = Counter(wanted)
    found: list[Replica] = []
    for each in sorted(there, key=lambda each: each.node_id != leader):
        zone = zones.get(each.node_id, "")
        if left[zone] > 0:
            left[zone] -= 1
        else:
            found.append(each)
    return found


def has_room(
    zone: str, config: TabletConfig, zones: Mapping[str, str], live: Collection[str], unfit: Collection[str]
) -> bool:
    """Whether a server of the zone may take another replica: a live one on whose node there is none."""
    taken = {node_of(name) for name in config.member_ids}
    return any(zones.get(name) == zone and name not in unfit and node_of(name) not in taken for name in live)


def at_home(config: TabletConfig, wanted: Regional, zones: Mapping[str, str], live: Collection[str]) -> Replica | None:
    """The voter at home that is to have the lease; None where none lives."""
    return next(
        (each for each in config.voters if zones.get(each.node_id) == wanted.home and each.node_id in live), None
    )


def _count(replicas: Iterable[Replica], zones: Mapping[str, str]) -> Counter[str]:
    return Counter(zones.get(each.node_id, "") for each in replicas)

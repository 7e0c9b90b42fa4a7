"""The cluster's knobs as keys of a simulated world: each can be told, sizes and periods are drawn small to large."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from cluster.knobs import Knobs, knob_bounds
from harness.errors import UserError
from harness.ports.sim.worlds import Between, Value, WorldKey

Choices: TypeAlias = tuple[Value, ...]

MILD_AND_HARSH: dict[str, tuple[Choices, Choices]] = {
    "election_timeout_ms": ((600, 1_000), (300, 600, 1_000)),
    "check_quorum_ms": ((0,), (0, 1_000, 5_000)),
    "max_batch_entries": ((4, 64), (1, 4, 64)),
    "max_batch_bytes": ((1 << 20,), (200, 4_096, 1 << 20)),
    "max_inflight": ((4, 32), (1, 4, 32)),
    "retained_entries": ((16, 256), (0, 16, 256)),
    "snapshot_entries": ((200, 2_000, 10_000), (2, 20, 200, 2_000, 10_000)),
    # In pieces of 100 bytes a catalog takes longer over lossy links than any recovery may.
    "snapshot_chunk_bytes": ((1 << 18,), (1_000, 4_096, 1 << 18)),
    "snapshot_window_chunks": ((4,), (1, 4)),
    "catch_up_rounds": ((10,), (2, 10)),
    "log_segment_bytes": ((1 << 16, 4 << 20), (2_000, 1 << 16, 4 << 20)),
    "log_idle_ms": ((1_000,), (50, 1_000)),
    "disk_stall_ms": ((1_000,), (300, 1_000)),
    "max_queued_proposals": ((4_096,), (8, 4_096)),
    "disk_retry_ms": ((200,), (20, 200, 1_000)),
    "tserver_heartbeat_ms": ((500,), (100, 500, 1_000)),
    "master_call_timeout_ms": ((1_000,), (500, 1_000)),
    "tablet_lease_ms": ((0,), (100, 1_000, 3_000)),
    "max_clock_offset_ms": ((500,), (500, 1_000)),
    "clock_probe_ms": ((1_000,), (200, 1_000)),
    "version_retention_ms": ((60_000,), (1_000, 60_000)),
    "closed_lag_ms": ((3_000,), (0, 200, 3_000)),
    "side_transport_ms": ((200,), (50, 200, 1_000)),
    "exact_tracker": ((0, 1), (0, 1)),
    "push_after_ms": ((100,), (10, 100, 500)),
    "hold_ms": ((10_000,), (1_000, 10_000)),
    "session_silence_ms": ((60_000,), (2_000, 60_000)),
    "max_sessions": ((10_000,), (16, 10_000)),
    "session_answers": ((1_000,), (1, 10, 1_000)),
    "heartbeat_gather_ms": ((10,), (0, 10)),
    "quiesce_after_ms": ((1_000,), (0, 20, 200, 1_000)),
    "support_ms": ((0,), (0, 100, 1_000)),
    "bulk_bytes_per_s": ((16 << 20,), (100_000, 16 << 20)),
    "bulk_queue_bytes": ((8 << 20,), (4_096, 8 << 20)),
    "bulk_patience_ms": ((2_000,), (200, 2_000)),
    "summary_cells": ((4, 32), (0, 1, 3, 32)),
    "max_requests": ((10_000,), (4, 10_000)),
    "repair_period_ms": ((0,), (0, 3_000)),
    "poll_period_ms": ((1_000,), (0, 200, 1_000)),
    "reconcile_period_ms": ((5_000,), (0, 500, 5_000)),
    "write_timeout_ms": ((2_000,), (500, 2_000)),
    "reconcile_margin_ms": ((1_000,), (0, 1_000)),
    "memtable_bytes": ((20_000, 4 << 20), (2_000, 20_000, 4 << 20)),
    "repair_tree_depth": ((10,), (0, 3, 10)),
    "block_bytes": ((16 << 10,), (500, 16 << 10)),
    "listed_ids": ((4_096,), (30, 4_096)),
    "sent_mutations": ((512,), (10, 512)),
    "sent_bytes": ((1 << 20,), (2_000, 1 << 20)),
    "read_spans": ((10_000,), (2, 50, 10_000)),
    "deletion_grace_ms": ((864_000_000,), (3_000, 864_000_000)),
    "replica_dead_ms": ((60_000,), (8_000, 60_000)),
    "tablet_creation_ms": ((15_000,), (4_000, 15_000)),
}
"""What mild and harsh worlds draw for a knob, each value equally likely."""

SHARES: dict[str, tuple[str, Choices, Choices]] = {
    "raft_heartbeat_ms": ("election_timeout_ms", (1 / 6,), (1 / 20, 1 / 6, 1 / 3)),
    "lease_ms": ("election_timeout_ms", (0,), (0, 0.5, 1)),
}
"""Knobs that are drawn as a share of another, with what mild and harsh worlds draw."""

INSTEAD = {"reconcile_period_ms": "poll_period_ms"}
"""Knobs that worlds don't draw as 0 where the other is: else nothing makes replicas of logged tables equal again."""

WAN_FACTORS = {
    "election_timeout_ms": 3,
    "check_quorum_ms": 3,
    "tablet_lease_ms": 2,
    "support_ms": 2,
    "max_clock_offset_ms": 3,
    "replica_dead_ms": 2,
    "tablet_creation_ms": 2,
}
"""How many times as long periods are where a round trip takes a quarter of a second."""

NOT_DRAWN = (
    "max_clock_drift",
    "request_timeout_ms",
)
"""Knobs that worlds leave alone: what is promised of clocks, and what only clients wait for."""

_LARGEST = 1_000_000_000


def _key(field: msgspec.structs.FieldInfo) -> WorldKey:
    name = field.name
    low, high = knob_bounds()[name]
    values = Between(low, min(high, _LARGEST))
    meaning = f"knob {name} of every node, {field.default} by default"
    if name in SHARES:
        other, mild, harsh = SHARES[name]
        return WorldKey(_kebab(name), values, meaning, mild, harsh, share_of=_kebab(other))
    mild, harsh = MILD_AND_HARSH.get(name, ((), ()))
    spared = _kebab(INSTEAD[name]) if name in INSTEAD else None
    return WorldKey(_kebab(name), values, meaning, mild, harsh, instead_of=spared, wan_factor=WAN_FACTORS.get(name, 1))


def _kebab(name: str) -> str:
    return name.replace("_", "-")


KNOB_KEYS: tuple[WorldKey, ...] = tuple(_key(field) for field in msgspec.structs.fields(Knobs))


def knobs_of(values: Mapping[str, Value]) -> Knobs:
    """The knobs of a world's values, the default where there is none; raises UserError where they contradict."""
    names = {key.name for key in KNOB_KEYS}
    given = {name.replace("-", "_"): value for name, value in values.items() if name in names}
    try:
        return msgspec.convert(given, Knobs)
    except msgspec.ValidationError as error:
        raise UserError(f"This world can't be: {error}; tell the keys that belong together.") from error

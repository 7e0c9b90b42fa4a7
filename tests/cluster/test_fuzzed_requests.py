"""Requests as nobody would send them, to every node of a whole cluster: each is answered, and no process ends.

They are drawn from the types of the wire, so that a new kind of request is among them by itself: with numbers at the
ends of their ranges, texts that name something or nothing, and lists of any length. Others are damaged on their way.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, get_args

import msgspec
import pytest

from cluster.quorum.messages import QuorumReply, QuorumRequest, decode_quorum_reply, encode_quorum_request
from cluster.wire.messages import (
    AlterTable,
    AlterTablet,
    ArmFailpoint,
    ChangeReplicas,
    CreateTablet,
    DeleteTablet,
    ErrorReply,
    PeerEnvelope,
    Reply,
    Request,
    TabletReport,
    decode_reply,
    encode,
)
from cluster.wire.operating import ChangeMasters
from harness.cell_address import CellAddress
from harness.errors import IndefiniteError
from harness.ports.api import CallLost, Refused, Unreachable
from tests.cluster.table_rig import TableRig, play

QUORUM_KINDS = get_args(QuorumRequest)
KINDS = (*(kind for kind in get_args(Request) if kind is not ArmFailpoint), *QUORUM_KINDS)
"""All that a node can be asked, but for what has it crash on purpose."""

NUMBERS = (0, 1, -1, 3, 255, 1 << 31, (1 << 63) - 1, -(1 << 63), (1 << 64) - 1)
MANAGES = (AlterTable, AlterTablet, ChangeMasters, ChangeReplicas, CreateTablet, DeleteTablet)
"""What changes something for good where it names something real: here it names nothing."""


class Drawn:
    """Values of types, drawn; `names` are texts that mean something to the cluster."""

    def __init__(self, entropy: Random, names: tuple[str, ...]) -> None:
        self._entropy, self._names = entropy, names

    def request(self) -> Any:
        kind = self._entropy.choice(KINDS)
        named = Drawn(self._entropy, ()) if kind in MANAGES else self
        return named.of(msgspec.inspect.type_info(kind))

    def payload(self) -> bytes:
        """An encoded request, damaged or not."""
        request = self.request()
        payload = encode_quorum_request(request) if type(request) in QUORUM_KINDS else encode(request)
        return damaged(self._entropy, payload) if self._entropy.random() < 0.4 else payload

    def news(self) -> bytes:
        """An encoded message between peers, from whoever, damaged or not."""
        message = encode(self.of(msgspec.inspect.type_info(PeerEnvelope)))
        return damaged(self._entropy, message) if self._entropy.random() < 0.4 else message

    def of(self, type_: Any, depth: int = 0) -> Any:
        draw, kind = self._entropy, type(type_).__name__
        if kind == "StructType":
            return type_.cls(*(self.of(each.type, depth + 1) for each in type_.fields))
        if kind == "UnionType":
            return self.of(draw.choice(type_.types), depth)
        if kind in ("VarTupleType", "ListType"):
            return tuple(self.of(type_.item_type, depth + 1) for _ in range(draw.choice((0, 0, 1, 2, 40 >> depth))))
        if kind == "TupleType":
            return tuple(self.of(each, depth + 1) for each in type_.item_types)
        if kind == "DictType":
            count = draw.choice((0, 1, 2, 9))
            return {self.of(type_.key_type, depth + 1): self.of(type_.value_type, depth + 1) for _ in range(count)}
        if kind == "LiteralType":
            return draw.choice(type_.values)
        if kind == "EnumType":
            return draw.choice(tuple(type_.cls))
        if kind == "AnyType":
            return draw.choice((None, 1 << 60, {"x": [1, {}]}, b"\xff", 0.5))
        if kind == "RawType":
            return msgspec.Raw(encode(self.of(msgspec.inspect.type_info(tuple[TabletReport, ...]), depth)))
        return self._plain(kind)

    def _plain(self, kind: str) -> Any:
        draw = self._entropy
        plain = {
            "IntType": lambda: draw.choice(NUMBERS),
            "FloatType": lambda: draw.choice((0.0, -1.0, 0.01, 1e300, float("inf"), float("nan"))),
            "StrType": lambda: draw.choice((*self._names, *self._names, "", "paper", "\x00", "x" * 3_000, "../../x")),
            "BytesType": lambda: draw.choice((b"", b"\x00", b"\xff" * 20, draw.randbytes(30))),
            "BoolType": lambda: draw.random() < 0.5,
            "NoneType": lambda: None,
        }
        return plain[kind]()


def damaged(entropy: Random, payload: bytes) -> bytes:
    """Cut off, or with some bytes changed, lost or doubled."""
    if entropy.random() < 0.2:
        return payload[: entropy.randrange(len(payload) + 1)]
    changed = bytearray(payload)
    for _ in range(entropy.choice((1, 1, 2, 8))):
        at = entropy.randrange(len(changed))
        changed[at : at + entropy.choice((0, 1, 1, 4))] = entropy.randbytes(entropy.choice((0, 1, 1, 2)))
        if not changed:
            break
    return bytes(changed)


async def names_of(rig: TableRig) -> tuple[str, ...]:
    client = rig.database.admin_client(8.0)
    (tablet,) = (await client.table_locations("registers")).tablets
    (table,) = await client.list_tables()
    return tablet.tablet_id, table.table_id, "registers", *(node.name for node in rig.database.nodes)


async def asked(rig: TableRig, address: str, payload: bytes) -> Reply | QuorumReply | None:
    """The answer; None if a request that may take its time had none."""
    try:
        answer = await rig.world.harness_ports("h").network.call(address, payload, 3.0)
    except (CallLost, Unreachable, Refused):
        return None
    try:
        reply: Reply = decode_reply(answer)
    except msgspec.ValidationError:
        quorum_reply: QuorumReply = decode_quorum_reply(answer)
        return quorum_reply
    return reply


async def incarnations(rig: TableRig) -> dict[str, int]:
    found = await rig.database.statuses()
    return {name: -1 if status is None else status.incarnation for name, status in found.items()}


def fuzz(seed: int, rounds: int) -> None:
    async def scenario(rig: TableRig) -> None:
        await rig.begin()
        lives, answers = await incarnations(rig), 0
        drawn = Drawn(Random(seed), await names_of(rig))
        for _ in range(rounds):
            payload = drawn.payload()
            news = drawn.news()
            addresses = [rig.database.address(node.name) for node in rig.database.nodes]
            for address in addresses:
                rig.world.harness_ports("h").network.notify(address, news)
            replies = await asyncio.gather(*(asked(rig, address, payload) for address in addresses))
            assert all(reply is None or not isinstance(reply, ErrorReply) or reply.message for reply in replies), (
                payload
            )
            answers += sum(reply is not None for reply in replies)
            failed = {node.name: rig.world.node(node.name).errors for node in rig.database.nodes}
            assert not any(failed.values()), (payload, news, failed)
        assert answers > rounds * len(lives) * 0.9
        assert await incarnations(rig) == lives
        client = rig.database.admin_client(20.0)
        assert "registers" in [table.name for table in await client.list_tables()]
        for key in range(3):
            try:
                await client.write("registers", CellAddress(key), 7)
            except IndefiniteError:
                continue
            assert (await client.read("registers", CellAddress(key)))[0].value == 7

    play(scenario)


@pytest.mark.parametrize("seeds", [range(1, 2), pytest.param(range(2, 40), marks=pytest.mark.campaign)], ids=str)
def test_no_request_whatever_it_holds_ends_a_node(seeds: range) -> None:
    for seed in seeds:
        fuzz(seed, 150)

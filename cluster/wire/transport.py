"""Raft messages over the network port: one one-way envelope per group and destination."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cluster.raft.types import Message
from cluster.wire.messages import RaftEnvelope, Replica, encode
from harness.ports import Address, Network


class NodeTransport:
    """Sends Raft messages to the addresses it was told of; what goes to an unknown node is dropped, as by a network."""

    def __init__(self, network: Network, replicas: Iterable[Replica] = ()) -> None:
        self._network = network
        self._addresses: dict[str, Address] = {}
        self.learn(replicas)

    @property
    def addresses(self) -> Mapping[str, Address]:
        """Address by node id, as learnt."""
        return self._addresses

    def learn(self, replicas: Iterable[Replica]) -> None:
        """Remember where nodes listen; a later address replaces an earlier one."""
        for replica in replicas:
            self._addresses[replica.node_id] = replica.address

    def send(self, group: str, messages: tuple[Message, ...]) -> None:
        """Send each message to its target, in order; messages to one target travel together."""
        if len(messages) == 1:
            self._notify(group, messages[0].target, messages)
            return
        by_target: dict[str, list[Message]] = {}
        for message in messages:
            by_target.setdefault(message.target, []).append(message)
        for target, batch in by_target.items():
            self._notify(group, target, tuple(batch))

    def _notify(self, group: str, target: str, messages: tuple[Message, ...]) -> None:
        address = self._addresses.get(target)
        if address is not None:
            self._network.notify(address, encode(RaftEnvelope(group, messages)))

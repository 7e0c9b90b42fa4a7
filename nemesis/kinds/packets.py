"""Bad links: packets that come late, or not, or twice, or out of order, or broken, or all at once.

Everything is treated alike that a node sends to other nodes. Probes send datagrams over some of those links, and
compare what becomes of them with what became of others just before the fault.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar

from harness.errors import HarnessError
from harness.ports.machines import Impairment, ProbeFlow
from harness.protocols import PacketShaping
from nemesis.grudges import Link
from nemesis.kinds.api import Claims, Family, FaultKind, FaultPlan, Moment, Variant
from nemesis.observe import MASTER, DatabaseObserver, Sight, names
from nemesis.targets import STATUS_SELECTORS, select

LINKS_PROBED = 4
DATAGRAMS, DATAGRAM_BYTES, DATAGRAMS_OVER_S = 200, 250, 0.25
"""Twice as fast as the highest rate that a link is limited to, and enough that chance seldom makes a share look half
as large as it is: where 15 % are lost beside 3 % anyway, one look of forty misses it (of 50 datagrams one of three)."""

SILENT = 0.9
"""A link that loses more of its datagrams carries nothing."""


@dataclass(frozen=True, slots=True)
class Impair:
    """What these nodes send to other nodes meets this."""

    sources: tuple[str, ...]
    impairment: Impairment

    def describe(self, nodes: tuple[str, ...]) -> str:
        return f"{describe(self.impairment)} for what {' '.join(self.sources)} sends"

    def hits(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        return self.sources


def describe(impairment: Impairment) -> str:
    """An impairment in a few words."""
    rate = impairment.rate_bytes_per_s
    words = {
        f"{impairment.delay_s * 1e3:.0f} ms of delay": impairment.delay_s,
        f"up to {impairment.jitter_s * 1e3:.0f} ms of jitter": impairment.jitter_s,
        f"{impairment.loss:.0%} lost": impairment.loss,
        f"{impairment.duplication:.0%} twice": impairment.duplication,
        f"{impairment.reorder:.0%} overtaken": impairment.reorder,
        f"{impairment.corruption:.0%} broken": impairment.corruption,
        f"{(rate or 0) / 1e3:.0f} kB a second": rate,
        "a clog": impairment.clogged,
    }
    return ", ".join(word for word, given in words.items() if given) or "nothing"


def seen(impairment: Impairment, usual: ProbeFlow, flow: ProbeFlow) -> bool:
    """Whether datagrams met all of this impairment, against what others met before; half of it is enough."""
    wanted = impairment
    if wanted.clogged:
        return flow.lost >= SILENT
    if not flow.delays_s or not usual.delays_s:
        return False
    late_s = _median(flow) - _median(usual)
    rate = wanted.rate_bytes_per_s
    return (
        (late_s >= wanted.delay_s / 2 + wanted.jitter_s / 4 or not (wanted.delay_s or wanted.jitter_s))
        and (not wanted.jitter_s or _spread_s(flow) - _spread_s(usual) >= wanted.jitter_s / 20)
        and _more(flow.lost - usual.lost, 1 - (1 - wanted.loss) * (1 - wanted.corruption))
        and _more(flow.duplicated - usual.duplicated, wanted.duplication)
        and _more(flow.overtaken - usual.overtaken, wanted.reorder / 2)
        and (rate is None or 0 < flow.rate_bytes_per_s <= 1.3 * rate < usual.rate_bytes_per_s)
    )


def _more(share: float, wanted: float) -> bool:
    return not wanted or share >= wanted / 2


def _median(flow: ProbeFlow) -> float:
    return flow.delays_s[len(flow.delays_s) // 2]


def _spread_s(flow: ProbeFlow) -> float:
    return flow.delays_s[-1] - flow.delays_s[0]


@dataclass(slots=True)
class _PacketInstance:
    """`well` are the links that were seen to be as usual since the instance was undone."""

    action: Impair
    usual: Mapping[Link, ProbeFlow]
    well: set[Link] = field(default_factory=set)


class Packets:
    """The impairments that each instance imposed; what a node sends belongs to one instance at a time."""

    actions: ClassVar[tuple[type, ...]] = (Impair,)

    def __init__(self, observer: DatabaseObserver, claims: Claims) -> None:
        self._environment, self._claims = observer.environment, claims
        self._nodes = names(observer.database.nodes)
        self._instances: dict[int, _PacketInstance] = {}
        self._gone: dict[int, _PacketInstance] = {}
        self._before: tuple[tuple[str, ...], Mapping[Link, ProbeFlow]] = ((), {})

    @property
    def _shaping(self) -> PacketShaping:
        if not isinstance(self._environment, PacketShaping):
            raise HarnessError(f"packets can't be touched on {self._environment.name}")
        return self._environment

    def instances(self) -> frozenset[int]:
        return frozenset(self._instances)

    async def prepare(self, action: Impair) -> None:
        """What the links are like that will be looked at; measuring that takes seconds where answers are slow."""
        free = self._free(action)
        self._before = (free, await self._flows(self._probed(free)) if free else {})

    async def carry_out(self, instance: int, action: Impair) -> None:
        if self._free(action) != self._before[0]:
            await self.prepare(action)
        free, usual = self._before
        self._before = ((), {})
        if free:
            self._instances[instance] = _PacketInstance(Impair(free, action.impairment), usual)
            await self._apply()

    def _free(self, action: Impair) -> tuple[str, ...]:
        taken = {name for each in self._instances.values() for name in each.action.sources}
        return tuple(name for name in action.sources if name not in taken)

    async def look(self, instance: int) -> Sight:
        """Datagrams meet it on every link that carries any, and on one at least; a clog carries none where it can be
        told from a cut. Links over which nothing comes for another reason tell nothing."""
        looked = self._instances.get(instance)
        if looked is None:
            return Sight(True)
        cut = self._claims.cut
        flows = await self._flows(looked.usual)
        cut |= self._claims.cut
        impairment = looked.action.impairment
        able = [link for link in flows if link not in cut and looked.usual[link].lost < SILENT]
        telling = [link for link in able if impairment.clogged or flows[link].lost < SILENT]
        bad = [link for link in telling if seen(impairment, looked.usual[link], flows[link])]
        return Sight(len(bad) == len(telling) if telling else None, _evidence(flows))

    async def undo(self, instance: int) -> None:
        if instance in self._instances:
            await self._apply(leaving_out=instance)
            self._gone[instance] = self._instances.pop(instance)

    async def look_gone(self, instance: int) -> Sight:
        """No link is as bad as it was made; one that carries nothing tells nothing, and is looked at again."""
        gone = self._gone.get(instance)
        if gone is None:
            return Sight(True)
        flows = await self._flows(gone.usual)
        heard = {link: flow for link, flow in flows.items() if flow.lost < SILENT}
        bad = [link for link, flow in heard.items() if seen(gone.action.impairment, gone.usual[link], flow)]
        gone.well |= heard.keys() - set(bad)
        return Sight(False if bad else True if gone.well >= flows.keys() else None, _evidence(flows))

    def forget(self, instance: int) -> None:
        self._gone.pop(instance, None)

    def _probed(self, sources: tuple[str, ...]) -> tuple[Link, ...]:
        """Some of the links, of as many sources as possible."""
        links = [
            (source, self._nodes[(self._nodes.index(source) + step) % len(self._nodes)])
            for step in range(1, len(self._nodes))
            for source in sources
        ]
        return tuple(links[:LINKS_PROBED])

    async def _flows(self, links: Mapping[Link, ProbeFlow] | tuple[Link, ...]) -> Mapping[Link, ProbeFlow]:
        return await self._shaping.flows(tuple(links), DATAGRAMS, DATAGRAM_BYTES, DATAGRAMS_OVER_S)

    async def _apply(self, leaving_out: int | None = None) -> None:
        wanted = {
            (source, target): each.action.impairment
            for instance, each in self._instances.items()
            if instance != leaving_out
            for source in each.action.sources
            for target in self._nodes
            if target != source
        }
        await self._shaping.impair(wanted)


def _evidence(flows: Mapping[Link, ProbeFlow]) -> dict[str, Any]:
    return {"flows": {f"{source}->{target}": _in_words(flow) for (source, target), flow in flows.items()}}


def _in_words(flow: ProbeFlow) -> str:
    if not flow.delays_s:
        return "nothing arrived"
    parts = {"lost": flow.lost, "twice": flow.duplicated, "overtaken": flow.overtaken}
    shares = "".join(f", {share:.0%} {word}" for word, share in parts.items() if share)
    return f"{_median(flow) * 1e3:.1f} ms{shares}, {flow.rate_bytes_per_s / 1e3:.0f} kB/s"


# ---- variants ----

Draw = Callable[[Random], Impairment]

DRAWS: Mapping[str, tuple[str, Draw]] = {
    "loss": ("packet-loss", lambda entropy: Impairment(loss=entropy.uniform(0.15, 0.5))),
    "delay": ("packet-delay", lambda entropy: Impairment(delay_s=entropy.uniform(0.05, 0.3))),
    "clog": ("packet-clog", lambda entropy: Impairment(clogged=True)),
    "rate": ("packet-rate", lambda entropy: Impairment(rate_bytes_per_s=entropy.randint(20_000, 80_000))),
    "duplication": ("packet-duplication", lambda entropy: Impairment(duplication=entropy.uniform(0.2, 0.6))),
    "reorder": ("packet-reorder", lambda entropy: Impairment(reorder=entropy.uniform(0.2, 0.6))),
    "jitter": ("packet-delay", lambda entropy: Impairment(jitter_s=entropy.uniform(0.1, 0.4))),
    "corruption": ("packet-corruption", lambda entropy: Impairment(corruption=entropy.uniform(0.15, 0.5))),
}
"""By the name of the variant: the capability it needs, and how bad links are."""

SENDERS = ("leaseholder", "one", "minority", "leader-master")


def _variant(needs: str, draw: Draw) -> Variant:
    def plan(moment: Moment) -> FaultPlan:
        view = moment.view
        led = view.statuses and (view.groups() or names(view.nodes, MASTER))
        known = [each for each in SENDERS if led or each not in STATUS_SELECTORS]
        choice = select(moment.entropy.choice(known), moment.view, (), moment.entropy)
        impairment = draw(moment.entropy)
        return FaultPlan(Impair(choice.targets, impairment) if choice.targets else None, choice.evidence, choice.roles)

    return Variant(plan, frozenset({needs}), least_nodes=2)


PACKETS = FaultKind(
    "packets",
    "makes what some nodes send come late, in part, twice, out of order, broken, slowly, or all at once after a clog",
    "#3f8f9b",
    frozenset({"packets"}),
    {name: _variant(needs, draw) for name, (needs, draw) in DRAWS.items()},
)

FAMILY = Family(Packets, (PACKETS,))

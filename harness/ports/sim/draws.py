"""Where the simulator's own choices come from: generators that are seeded, recorded, or played back.

A *stream* is what is drawn for one purpose at one place: the delays of a link on one channel, the ends of a disk's
durable writes, a clock's turns. A plain run draws many streams from one generator, all links from one, so that a
message more or less moves every later draw. Recording sorts what was drawn into streams and moves nothing. Where a
record is played the n-th draw of a stream takes its n-th recorded decision, and beyond the record one that is a
function of key, stream and n: what happens elsewhere moves it no more.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TypeAlias

from harness.ports.api import Channel

DELAY, LOST, DUPLICATED, REORDERED, BROKEN = "delay", "lost", "duplicated", "reordered", "broken"
STALLED, CLOGGED, OUTAGE, RESUMED = "stalled", "clogged", "outage", "resumed"
LINK_KINDS = (DELAY, LOST, DUPLICATED, REORDERED, BROKEN, STALLED, CLOGGED, OUTAGE, RESUMED)
"""What a link decides, of each message and on each channel."""

FSYNC_TIME, HUNG, FILLED, PENDING, TORN, FLIPPED = "fsync", "hung", "filled", "pending", "torn", "flipped"
DISK_KINDS = (FSYNC_TIME, HUNG, FILLED, PENDING, TORN, FLIPPED)
"""What a disk decides; reads have a stream of their own even in a plain run."""

CHANNELS = (*(channel.name.lower() for channel in Channel), "probes")

MOST_BITS = 53
"""A decision is a number from 0 on below 1, exact in a float of 64 bits; more bits are never asked for at once."""

Draw: TypeAlias = Callable[[], float]
LinkDraws: TypeAlias = Mapping[str, Sequence[Draw]]
"""By kind, for each channel the next decision."""


class Draws:
    """Generators for all that a simulated world decides; this one has them seeded by their keys, of which the part
    before the first slash is the world's seed. The world tells its time by `now_ns`."""

    now_ns: Callable[[], int] = staticmethod(lambda: 0)

    def generator(self, key: str) -> Random:
        """For one purpose at one place."""
        return Random(key)

    def generators(self, key: str, kinds: Sequence[str]) -> tuple[Random, ...]:
        """For several purposes that a plain run draws from one generator."""
        return (Random(key),) * len(kinds)

    def link(self, source: str, target: str, entropy: Random) -> LinkDraws:
        """For a link; all links draw from `entropy` in a plain run."""
        return dict.fromkeys(LINK_KINDS, (entropy.random,) * len(CHANNELS))


class _RecordedRandom(Random):
    """Another generator, whose every draw is kept."""

    def __init__(self, entropy: Random, keep: Callable[[float], None]) -> None:
        super().__init__(0)
        self._entropy, self._keep = entropy, keep

    def random(self) -> float:
        drawn = self._entropy.random()
        self._keep(drawn)
        return drawn

    def getrandbits(self, k: int, /) -> int:
        drawn = self._entropy.getrandbits(_few(k))
        self._keep(drawn / (1 << k))
        return drawn


class _PlayedRandom(Random):
    """A generator all of whose draws are those of a stream."""

    def __init__(self, stream: PlayedStream) -> None:
        super().__init__(0)
        self._draw = stream.draw

    def random(self) -> float:
        return self._draw()

    def getrandbits(self, k: int, /) -> int:
        return int(self._draw() * (1 << _few(k)))


def _few(bits: int) -> int:
    if bits > MOST_BITS:
        raise ValueError(f"a decision has {MOST_BITS} bits, not {bits}")
    return bits


class PlayedStream:
    """What was recorded, and then what the key draws, as from a time on, ns: `place` is how many decisions were
    taken."""

    __slots__ = ("_beyond", "_draws", "_key", "_recorded", "_until_ns", "place")

    def __init__(self, recorded: Sequence[float], key: str, draws: Draws, until_ns: int | None) -> None:
        self.place = 0
        self._draws = draws
        self._until_ns = until_ns
        self._recorded = recorded
        self._key = key
        self._beyond: Random | None = None

    def draw(self) -> float:
        place, self.place = self.place, self.place + 1
        if place < len(self._recorded) and (self._until_ns is None or self._draws.now_ns() < self._until_ns):
            return self._recorded[place]
        if self._beyond is None:
            self._beyond = Random(self._key)
            for _ in range(place):
                self._beyond.random()
        return self._beyond.random()


class _LinkStreams(dict[str, Sequence[Draw]]):
    """Streams of a link, each made when it is first drawn from."""

    def __init__(self, make: Callable[[str, int], Draw]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, kind: str) -> Sequence[Draw]:
        self[kind] = made = tuple(self._make(kind, channel) for channel in range(len(CHANNELS)))
        return made


class RecordedDraws(Draws):
    """Draws from others and keeps, by stream, what was drawn in `streams`; a stream of which nothing was is empty."""

    def __init__(self, others: Draws | None = None) -> None:
        self.streams: dict[str, array[float]] = {}
        self._others = others or Draws()
        self._others.now_ns = lambda: self.now_ns()

    def generator(self, key: str) -> Random:
        return _RecordedRandom(self._others.generator(key), self._keep(_stream_of(key)))

    def generators(self, key: str, kinds: Sequence[str]) -> tuple[Random, ...]:
        keeps = (self._keep(f"{_stream_of(key)}/{kind}") for kind in kinds)
        return tuple(map(_RecordedRandom, self._others.generators(key, kinds), keeps))

    def link(self, source: str, target: str, entropy: Random) -> LinkDraws:
        drawn = self._others.link(source, target, entropy)

        def make(kind: str, channel: int) -> Draw:
            draw, keep = drawn[kind][channel], self._keep(_link_stream(source, target, channel, kind))

            def kept() -> float:
                number = draw()
                keep(number)
                return number

            return kept

        return _LinkStreams(make)

    def _keep(self, stream: str) -> Callable[[float], None]:
        return self.streams.setdefault(stream, array("d")).append


class PlayedDraws(Draws):
    """Plays recorded streams until a virtual time, ns (None: to their ends); `key` stands for the seed of all that is
    not recorded."""

    def __init__(self, recorded: Mapping[str, Sequence[float]], key: str, until_ns: int | None = None) -> None:
        self._until_ns = until_ns
        self._recorded = recorded
        self._key = key

    def generator(self, key: str) -> Random:
        return _PlayedRandom(self._played(_stream_of(key)))

    def generators(self, key: str, kinds: Sequence[str]) -> tuple[Random, ...]:
        return tuple(_PlayedRandom(self._played(f"{_stream_of(key)}/{kind}")) for kind in kinds)

    def link(self, source: str, target: str, entropy: Random) -> LinkDraws:
        return _LinkStreams(lambda kind, channel: self._played(_link_stream(source, target, channel, kind)).draw)

    def _played(self, name: str) -> PlayedStream:
        return PlayedStream(self._recorded.get(name, ()), f"{self._key}/{name}", self, self._until_ns)


def _stream_of(key: str) -> str:
    """A stream's name: its key without the seed."""
    return key.partition("/")[2]


def _link_stream(source: str, target: str, channel: int, kind: str) -> str:
    return f"link/{source}>{target}/{CHANNELS[channel]}/{kind}"

"""Which partitions a file may hold: a Bloom filter over their tokens. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

_BITS_EACH = 10
_PROBES = 6
"""About one false "maybe" in a hundred."""

_HALF = (1 << 32) - 1


def make_filter(tokens: Sequence[int]) -> bytes:
    """A filter that holds these tokens."""
    bits = bytearray(max(8, len(tokens) * _BITS_EACH // 8 + 1))
    for token in tokens:
        for probe in _probes(token, 8 * len(bits)):
            bits[probe >> 3] |= 1 << (probe & 7)
    return bytes(bits)


def may_hold(bits: bytes, token: int) -> bool:
    """False only if the token was not put in."""
    return all(bits[probe >> 3] >> (probe & 7) & 1 for probe in _probes(token, 8 * len(bits)))


def _probes(token: int, size: int) -> Iterator[int]:
    """Two halves of the token make all probes (Kirsch and Mitzenmacher 2006): tokens are hashes already."""
    first, step = token & _HALF, token >> 32 | 1
    return ((first + number * step) % size for number in range(_PROBES))

"""Digests of replicated state: sums of the fingerprints of what it holds, so that a change costs what it changes (G10).

A multiset hash (Clarke et al., 2003) with addition modulo 2^64. It guards against bugs, not against adversaries: equal
contents give equal digests in whatever order they came, and different ones differ but for a chance of about 2^-32.
"""

from __future__ import annotations

from zlib import crc32

import msgspec

MASK = (1 << 64) - 1
ODD = 0x9E3779B97F4A7C15

_encode = msgspec.msgpack.Encoder().encode


def fingerprint(item: object) -> int:
    """64 bits of one item that MessagePack can encode; the same in every process.

    The square is what keeps sums of CRCs, which are linear over bits, from cancelling each other out.
    """
    crc = crc32(_encode(item))
    return crc * crc * ODD + crc & MASK

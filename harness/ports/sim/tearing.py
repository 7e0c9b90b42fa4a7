"""What a crash leaves of a stretch that was never synced: a prefix of it, or its pages in any order; pure.

A file system writes dirty pages when it likes, and the file's length apart from them. So of an unsynced stretch each
page may have reached the disk or not, or some of its sectors only, whatever became of those before it (ALICE, OSDI
2014). A page that did not shows zeros, as fresh blocks do.
"""

from __future__ import annotations

import random
from typing import Literal, TypeAlias

Tear: TypeAlias = Literal["prefix", "pages", "stale"]
"""`stale` is `pages`, and where a truncation had cut something off, a page that was lost may show that again."""

PAGE_BYTES = 4096
SECTOR_BYTES = 512


def torn(data: bytes, synced: int, tear: Tear, entropy: random.Random, before: bytes = b"") -> bytes:
    """What is left of a file of which the first `synced` bytes are certain; `before` is what stood there once."""
    if tear == "prefix":
        return data[: synced + entropy.randrange(len(data) - synced)]
    length = len(data) if entropy.random() < 0.5 else entropy.randint(synced, len(data))
    image = bytearray(data[:length])
    for page in range(synced - synced % PAGE_BYTES, length, PAGE_BYTES):
        fate = entropy.randrange(3)
        if fate == 0:
            continue
        step = PAGE_BYTES if fate == 1 else SECTOR_BYTES
        old = before if tear == "stale" and entropy.random() < 0.5 else b""
        for start in range(page, min(page + PAGE_BYTES, length), step):
            if fate == 1 or entropy.random() < 0.5:
                # What was synced of this page or sector is certain: it was written with the same content again.
                low, high = max(start, synced), min(start + step, length)
                image[low:high] = old[low:high].ljust(max(0, high - low), b"\0")
    return bytes(image)

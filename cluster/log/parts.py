"""Parts of a frozen state: what is too large for one message, one write or one turn of the event loop (G5). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def gathered(sized: Iterable[tuple[T, int]], limit: int) -> Iterator[list[T]]:
    """Items, each with its size, in lists of at most `limit` together; an item above it is alone. None is empty."""
    items: list[T] = []
    total = 0
    for item, size in sized:
        if items and total + size > limit:
            yield items
            items, total = [], 0
        items.append(item)
        total += size
    if items:
        yield items

"""Arrays as bytes and back: how pieces of a transactional history travel between Spark's workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np


def pack(arrays: Sequence[Any]) -> bytes:
    """Arrays as one string of bytes."""
    return msgspec.msgpack.encode(
        [(array.dtype.str, array.shape, np.ascontiguousarray(array).tobytes()) for array in arrays]
    )


def unpack(packed: bytes) -> list[Any]:
    """The arrays that were packed, to be read only."""
    parts = msgspec.msgpack.decode(packed)
    return [np.frombuffer(data, np.dtype(kind)).reshape(shape) for kind, shape, data in parts]


def address_hashes(addresses: Any) -> Any:
    """A number for each address (row of table, partition, row, column), the same everywhere."""
    mixed = np.zeros(len(addresses), np.uint64)
    with np.errstate(over="ignore"):
        for column, factor in enumerate(
            (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93)
        ):
            mixed = (mixed ^ addresses[:, column].astype(np.int64).view(np.uint64)) * np.uint64(factor)
            mixed ^= mixed >> np.uint64(31)
    return mixed.view(np.int64)

"""What register kernels read: the operations of many keys as flat columns, sorted by key and then by invocation."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

NIL: Final = -(2**63)
"""Stands for nil (unset) in value columns; histories that use this very integer are refused."""

NEVER: Final = 2**63 - 1
"""Completion index of an operation whose outcome is unknown: it may take effect at any later time."""

OK: Final = 0
INFO: Final = 1
FAIL: Final = 2
"""Outcomes of an operation, as columns have them."""

UNSUPPORTED: Final = 127
"""Kind of an operation that the model does not know."""

READ: Final = 0
WRITE: Final = 1
"""Kinds of operations; families that know others have them beside these."""

CAS: Final = 2
FAILED_CAS: Final = 3
"""A compare-and-set that completed and found another value than `expected`: a read of anything else."""
FAILED_WRITE: Final = 4
"""A write or compare-and-set that never took effect; kept only to explain who read its value."""

Ints: TypeAlias = npt.NDArray[np.int64]
Ids: TypeAlias = npt.NDArray[np.int32]
Codes: TypeAlias = npt.NDArray[np.uint8]
Words: TypeAlias = npt.NDArray[np.uint64]
Bools: TypeAlias = npt.NDArray[np.bool_]
"""What kernels and columns are made of: event indices and values, small numbers of things, codes, masks, flags."""

Int: TypeAlias = int | np.signedinteger[Any]
"""A whole number in a kernel, which numba widens to 64 bits."""


def began_as(values: Ints, initial: int | None) -> Ints:
    """The values of registers that begin as `initial` (None: unset), with NIL for that value and that value for NIL.

    What is true of registers that begin unset is then true of these, and no two values become one. Twice is never.
    """
    if initial is None:
        return values
    return np.where(values == initial, NIL, np.where(values == NIL, initial, values))


def history_value(value: int, initial: int | None) -> int | None:
    """A value of `began_as` as the history has it; None for nil."""
    if value == NIL:
        return initial
    return None if value == initial else value


def unsupported(events: npt.NDArray[Any], problem: str) -> tuple[tuple[int, str], ...]:
    """The first of these operations, which a model does not know, with what is wrong with them (for `Findings`)."""
    return tuple((int(event), problem) for event in np.unique(events)[:8])


class RegisterColumns(NamedTuple):
    """Operations on single registers; key `k` owns the rows `offsets[k]:offsets[k + 1]`, in order of `invoke`.

    `invoke` and `complete` are event indices (`complete` is NEVER for indeterminate operations); `kind` is one of the
    codes above (uint8); `value` is what was read or written, `expected` what a compare-and-set compared with. Reads
    that did not complete and failed reads are left out.
    """

    offsets: Ints
    kind: npt.NDArray[np.uint8]
    value: Ints
    expected: Ints
    invoke: Ints
    complete: Ints

    def select(self, keys: Ints) -> RegisterColumns:
        """The columns of some keys only, in the given order."""
        lengths = self.offsets[keys + 1] - self.offsets[keys]
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        rows = np.repeat(self.offsets[keys] - offsets[:-1], lengths) + np.arange(offsets[-1])
        value, expected, invoke, complete = (column[rows] for column in self[2:])
        return RegisterColumns(offsets, self.kind[rows], value, expected, invoke, complete)

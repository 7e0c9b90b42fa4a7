"""Compaction: which files are merged into one, and which deletions may be forgotten meanwhile (Q8).

Size-tiered: files of similar sizes, when there are enough of them. Which ones doesn't matter to what is read, for
timestamps decide and not the age of files. A deletion is dropped only if the caller allows it *and* nothing outside the
files that are merged may hold anything it covers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cluster.quorum.deletions import Deletion
from cluster.quorum.keys import LOWEST_KEY, KeyBytes
from cluster.quorum.partition_store import Purgeable
from cluster.quorum.rows import without_deletions
from cluster.quorum.sorted.blocks import Chunk, Place
from cluster.quorum.sorted.files import FileCursor, FileWriter, SortedFile
from cluster.quorum.sorted.live import SortedOptions
from cluster.quorum.sorted.reading import MergedCursor, Turns
from harness.ports.api import Clock

_SIMILAR = 1.5
"""A file belongs to a tier whose smallest file, times this, it does not exceed."""
_SMALL_BYTES = 1 << 16
"""Files below this are all similar."""

LOWEST_PLACE: Place = (b"", LOWEST_KEY)
HIGHEST_PLACE: Place = (b"\xff" * 9, LOWEST_KEY)
"""Above every token and key of a partition."""


def choose_inputs(files: Sequence[SortedFile], options: SortedOptions) -> tuple[SortedFile, ...]:
    """Files to be merged now, of the smallest tier that has enough; empty if none has."""
    # Invariant: the files of `tier` rise in size and are similar to its first; all smaller tiers had too few files.
    tier: list[SortedFile] = []
    for file in sorted(files, key=lambda file: (file.ref.size, file.ref.path)):
        if tier and file.ref.size > max(tier[0].ref.size * _SIMILAR, _SMALL_BYTES):
            if len(tier) >= options.fan_in:
                break
            tier = []
        tier.append(file)
    return tuple(tier[: options.most_inputs]) if len(tier) >= options.fan_in else ()


class Forgetting:
    """Which deletions of a partition need not be kept: one decision for all of the partition that is merged.

    `oldest_elsewhere` is the lowest timestamp that anything but the files being merged may hold of a partition.
    """

    def __init__(self, purgeable: Purgeable, oldest_elsewhere: Callable[[KeyBytes], int | None]) -> None:
        self._purgeable, self._oldest_elsewhere = purgeable, oldest_elsewhere
        self._partition: KeyBytes | None = None
        self._bound: int | None = None
        self._known: dict[Deletion, bool] = {}

    def less(self, chunk: Chunk) -> Chunk:
        """The chunk without them; chunks come in order."""
        if chunk.partition != self._partition:
            self._partition, self._bound = chunk.partition, self._oldest_elsewhere(chunk.partition)
            self._known = {}
        contents = without_deletions(chunk.contents, self._unneeded)
        return Chunk(chunk.partition, chunk.start, chunk.end, contents)

    def _unneeded(self, deletion: Deletion) -> bool:
        known = self._known.get(deletion)
        if known is None:
            alone = self._bound is None or deletion.timestamp < self._bound
            known = self._known[deletion] = alone and self._purgeable(self._partition or LOWEST_KEY, deletion)
        return known


async def compact(
    inputs: Sequence[SortedFile], writer: FileWriter, forgetting: Forgetting, clock: Clock
) -> SortedFile | None:
    """One file of all inputs, durable; None if nothing is left of them. Raises CorruptLog."""
    cursors = [FileCursor(file, LOWEST_PLACE, HIGHEST_PLACE) for file in inputs]
    merged = MergedCursor(cursors, LOWEST_PLACE, HIGHEST_PLACE)
    turns = Turns(clock)
    while (chunk := await merged.next()) is not None:
        await writer.add(forgetting.less(chunk))
        await turns.took(chunk)
    return await writer.finish()

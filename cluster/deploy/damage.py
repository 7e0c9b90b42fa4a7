"""What of a dead node's files can be damaged: synced data whose loss the node notices, and redundancy repairs (G7).

A bit may flip in any file. Files are cut short where that is told from a crash: snapshots, and segments of the log that
are not its last. The end of that one can not be, for what is missing there may never have been (`docs/design/log.md`).
Where there is nothing else, the second copy in a small file is cut short (`cluster.log.envelope.twice`).
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from cluster.inspection import PROBE_PATH
from cluster.log.node import ASIDE_PATH
from cluster.log.segments import parse_path
from cluster.log.snapshots import SNAPSHOTS_PATH
from harness.protocols import Damage, DamageKind

_NOT_READ = (f"{ASIDE_PATH}/", PROBE_PATH)
"""Nobody reads these."""


def choose(kind: DamageKind, sizes: Mapping[str, int], entropy: Random) -> Damage | None:
    """Where to damage a disk with these files; None if it has nothing that may be damaged so."""
    files = {path: size for path, size in sorted(sizes.items()) if size and not path.startswith(_NOT_READ)}
    if not files:
        return None
    if kind == "truncate":
        return _cut_short(files, entropy)
    path = entropy.choice(list(files))
    return Damage(kind, path, entropy.randrange(8 * files[path]))


def _cut_short(files: Mapping[str, int], entropy: Random) -> Damage | None:
    closed = [path for path in files if path in _closed(files)]
    if closed:
        path = entropy.choice(closed)
        return Damage("truncate", path, entropy.randrange(files[path]))
    doubled = [path for path in files if parse_path(path) is None]
    if not doubled:
        return None
    path = entropy.choice(doubled)
    return Damage("truncate", path, entropy.randrange(files[path] // 2, files[path]))


def _closed(files: Mapping[str, int]) -> frozenset[str]:
    segments = sorted((each.number, path) for path in files if (each := parse_path(path)) is not None)
    snapshots = (path for path in files if path.startswith(f"{SNAPSHOTS_PATH}/"))
    return frozenset((*(path for _, path in segments[:-1]), *snapshots))

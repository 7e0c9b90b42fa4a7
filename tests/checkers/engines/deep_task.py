"""`python deep_task.py FOLDER MASTER [ARCHIVE KEY=VALUE…]`: a driver of which two tasks never end.

Each makes a file in FOLDER once its worker is busy, which looks at nothing else from then on.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa

from checkers.engines.session import SparkOptions, setting_of
from checkers.engines.spark import SparkEngine, mapped


def busy(folder: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        (Path(folder) / f"begun-{batch.column('id')[0]}").touch()
        while True:
            pass
        yield batch


def main(folder: str, master: str, archive: str | None = None, *settings: str) -> None:
    where = SparkOptions(master, tuple(map(setting_of, settings)), None if archive is None else Path(archive))
    engine = SparkEngine(where)
    engine.collected(mapped(engine.numbers(2, 2), partial(busy, folder), "id long"))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""`assay new database NAME`: a folder with a plugin, a store, a test and a README, all of which work."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from assay.discovery import BUILT_IN, REFERENCE
from harness.errors import UserError

_NAME = re.compile(r"[a-z][a-z0-9]{0,30}")

FILES = {"plugin.py": "plugin.py", "store.py": "store.py", "check_store.py": "test_{name}.py", "README.md": "README.md"}
"""The kit's files, and what each is called where it is written."""

SYNCS, FORGETS = "SYNCS = True\n", "SYNCS = False\n"
PROMISE, LIE = "each change is synced before it is answered", "all of it in memory, which a kill forgets"


def new_database(name: str, to: Path, broken: bool) -> Iterator[str]:
    """Write the folder `to/NAME`, and tell what to do with it; raises UserError, with nothing written, for a name that
    can't be one and a folder that is there."""
    if not _NAME.fullmatch(name) or name in (REFERENCE, *BUILT_IN):
        raise UserError(f"{name!r} can't be the name of a new database; take small letters and digits, such as kv.")
    folder = to / name
    try:
        folder.mkdir(parents=True)
        for file, text in kit(name, broken).items():
            (folder / file).write_text(text)
    except FileExistsError:
        raise UserError(f"{folder} is there already; choose another name, or another place with --to.") from None
    except OSError as error:
        raise UserError(f"{folder} can't be written: {error.strerror}.") from error
    yield f"{folder}/: {', '.join(kit(name, broken))}"
    yield f"assay verify {folder}/plugin.py"
    yield f"assay run register --database {folder}/plugin.py --on docker --nemesis partition,kill,pause --time-limit 30"


def kit(name: str, broken: bool) -> dict[str, str]:
    """The texts of the new folder by file name; a broken store keeps everything in memory."""
    texts = {}
    for source, target in FILES.items():
        text = _text(source).replace("kv", name).replace("Kv", name.capitalize())
        texts[target.format(name=name)] = text.replace(SYNCS, FORGETS).replace(PROMISE, LIE) if broken else text
    return texts


def _text(file: str) -> str:
    return resources.files("assay.kit").joinpath(file).read_text()

"""Code of the user's own, named on the command line as FILE.py:NAME, or as FILE.py where all that it defines may be
meant: read once, carried as text, run where needed.

Nothing but the user's own words names such a file: what a saved run or a history says is never imported.
"""

from __future__ import annotations

import hashlib
import re
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from harness.errors import UserError

OWN_MODULE: Final = "own_"
"""What the names of modules begin with that files are run as."""

_SPEC: Final = re.compile(r"(?P<file>.+\.py):(?P<name>[A-Za-z_][A-Za-z_0-9]*)")
_FILE: Final = re.compile(r"(?P<file>.+\.py)(:(?P<name>[A-Za-z_][A-Za-z_0-9]*))?")


def is_own_code(spec: str) -> bool:
    """Whether a word has the form FILE.py:NAME."""
    return _SPEC.fullmatch(spec) is not None


@dataclass(frozen=True, slots=True)
class OwnCode:
    """Picklable: the text of a Python file as it was read, its SHA-256 in hexadecimal, and the name in it that is
    meant; empty if none was said."""

    file: str
    name: str
    text: str
    digest: str

    @property
    def spec(self) -> str:
        """The word that named it, FILE.py:NAME or FILE.py."""
        return f"{self.file}:{self.name}" if self.name else self.file

    @property
    def details(self) -> dict[str, str]:
        """What a verdict records of it."""
        return {"file": self.file, "name": self.name, "sha256": self.digest}

    def load(self) -> Any:
        """What the name stands for once the file is run; raises UserError, naming file and line, for a file that can't
        be run and a name that it lacks."""
        module = self.run()
        if not hasattr(module, self.name):
            raise UserError(f"{self.file} defines no {self.name}; name what it defines as FILE.py:NAME.")
        return getattr(module, self.name)

    def run(self) -> ModuleType:
        """The file, run as a module of its own; raises UserError, naming file and line, if it can't be."""
        module = ModuleType(f"{OWN_MODULE}{self.digest[:16]}")
        module.__file__ = self.file
        sys.modules[module.__name__] = module  # dataclasses look their module up
        try:
            exec(compile(self.text, self.file, "exec", dont_inherit=True), module.__dict__)
        except (Exception, SystemExit) as error:
            raise self.blamed(error) from error
        return module

    def blamed(self, error: BaseException) -> UserError:
        """A sentence with the last line of the file that led to an error, and what the error says."""
        line = next(
            (
                frame.lineno
                for frame in reversed(traceback.extract_tb(error.__traceback__))
                if frame.filename == self.file
            ),
            error.lineno if isinstance(error, SyntaxError) else None,
        )
        where = self.file if line is None else f"{self.file}, line {line}"
        said = (str(error.msg if isinstance(error, SyntaxError) else error).splitlines() or [""])[0]
        return UserError(f"{where}: {type(error).__name__}{f': {said}' if said else ''}.")


def own_code(spec: str) -> OwnCode:
    """The code that FILE.py:NAME names; raises UserError for a file that can't be read as UTF-8 text."""
    found = _SPEC.fullmatch(spec)
    if found is None:
        raise UserError(f"{spec!r} names no code; it has the form FILE.py:NAME.")
    return _read(found["file"], found["name"])


def is_own_file(spec: str) -> bool:
    """Whether a word has the form FILE.py or FILE.py:NAME."""
    return _FILE.fullmatch(spec) is not None


def own_file(spec: str) -> OwnCode:
    """The code that FILE.py or FILE.py:NAME names; raises UserError like `own_code`."""
    found = _FILE.fullmatch(spec)
    if found is None:
        raise UserError(f"{spec!r} names no code; it has the form FILE.py or FILE.py:NAME.")
    return _read(found["file"], found["name"] or "")


def _read(file: str, name: str) -> OwnCode:
    try:
        data = Path(file).read_bytes()
        text = data.decode()
    except OSError as error:
        raise UserError(f"{file} can't be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is not UTF-8 text, so it is no Python file.") from error
    return OwnCode(file, name, text, hashlib.sha256(data).hexdigest())

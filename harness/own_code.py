"""Code of the user's own, named on the command line as FILE.py:NAME: read once, carried as text, run where needed.

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

_SPEC: Final = re.compile(r"(?P<file>.+\.py):(?P<name>[A-Za-z_][A-Za-z_0-9]*)")


def is_own_code(spec: str) -> bool:
    """Whether a word has the form FILE.py:NAME."""
    return _SPEC.fullmatch(spec) is not None


@dataclass(frozen=True, slots=True)
class OwnCode:
    """Picklable: the text of a Python file as it was read, its SHA-256 in hexadecimal, and the name in it that is
    meant."""

    file: str
    name: str
    text: str
    digest: str

    @property
    def spec(self) -> str:
        """The word that named it, FILE.py:NAME."""
        return f"{self.file}:{self.name}"

    @property
    def details(self) -> dict[str, str]:
        """What a verdict records of it."""
        return {"file": self.file, "name": self.name, "sha256": self.digest}

    def load(self) -> Any:
        """What the name stands for once the file is run as a module of its own; raises UserError, naming file and line,
        for a file that can't be run and a name that it lacks."""
        module = ModuleType(f"own_{self.digest[:16]}")
        module.__file__ = self.file
        sys.modules[module.__name__] = module  # dataclasses look their module up
        try:
            exec(compile(self.text, self.file, "exec", dont_inherit=True), module.__dict__)
        except (Exception, SystemExit) as error:
            raise self.blamed(error) from error
        if not hasattr(module, self.name):
            raise UserError(f"{self.file} defines no {self.name}; name what it defines as FILE.py:NAME.")
        return getattr(module, self.name)

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
    try:
        data = Path(found["file"]).read_bytes()
        text = data.decode()
    except OSError as error:
        raise UserError(f"{found['file']} can't be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{found['file']} is not UTF-8 text, so it is no Python file.") from error
    return OwnCode(found["file"], found["name"], text, hashlib.sha256(data).hexdigest())

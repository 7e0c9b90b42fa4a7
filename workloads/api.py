"""What a workload is: what clients do, what they need of a database, and which checkers judge it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, TypeAlias

from harness.errors import UserError
from harness.generators.core import Generator

Options: TypeAlias = Mapping[str, Any]
"""Values of a workload's options by name: numbers (ints where they are whole), and words of a choice."""

Unpromised: TypeAlias = Mapping[str, str]
"""What the database does not promise as it was chosen, by the model that judges it: why, in a clause."""

MakeGenerator: TypeAlias = Callable[[Options, Random], Generator]


@dataclass(frozen=True, slots=True)
class Option:
    """A number that the user may set: its default, its range (both ends allowed), and what it is for.

    An option whose default is an int takes whole numbers only.
    """

    name: str
    default: float
    low: float
    high: float
    description: str

    @property
    def in_words(self) -> tuple[str, str]:
        """The default and the values there are, in words."""
        return f"{self.default:g}", f"{self.low:g} to {self.high:g}"


@dataclass(frozen=True, slots=True)
class WordOption:
    """A word that the user may choose among `words`, and what it is for; the first is the default."""

    name: str
    words: tuple[str, ...]
    description: str

    @property
    def default(self) -> str:
        """The word that is taken where none is given."""
        return self.words[0]

    @property
    def in_words(self) -> tuple[str, str]:
        """The default and the values there are, in words."""
        return self.default, ", ".join(self.words)


@dataclass(frozen=True, slots=True)
class Workload:
    """A generator of client operations, the final reads after recovery, and how the history is judged.

    `operations` are micro-operations the database's clients must offer; `fs` each must succeed at least once for a run
    to be adequate; `checkers` name models of `checkers.api`, the first of which is the workload's own. `each_node`:
    the final reads also go to each node that holds data. `unpromised` says what a table that is chosen so may break
    with no fault of its code: a verdict is invalid all the same, and tells it.
    """

    name: str
    description: str
    options: tuple[Option | WordOption, ...]
    generator: MakeGenerator
    final_generator: MakeGenerator
    checkers: tuple[str, ...]
    operations: frozenset[str]
    fs: tuple[str, ...]
    each_node: bool = True
    unpromised: Callable[[Options], Unpromised] = lambda _: {}


def resolve_options(workload: Workload, given: Mapping[str, object]) -> dict[str, Any]:
    """Every option's value: as given (numbers, or text that is one; words), else its default; raises UserError."""
    known = {option.name: option for option in workload.options}
    for name in given:
        if name not in known:
            options = ", ".join(known) or "none"
            raise UserError(f"The workload {workload.name!r} has no option {name!r}; it has {options}.")
    return {name: _value(option, given.get(name, option.default)) for name, option in known.items()}


def _value(option: Option | WordOption, given: object) -> float | str:
    return _word(option, given) if isinstance(option, WordOption) else _number(option, given)


def _word(option: WordOption, given: object) -> str:
    if given not in option.words:
        raise UserError(f"The option {option.name!r} is one of {', '.join(option.words)}, not {given!r}.")
    return str(given)


def _number(option: Option, given: object) -> float:
    whole = isinstance(option.default, int)
    wanted = "a whole number" if whole else "a number"
    complaint = (
        f"The option {option.name!r} must be {wanted} between {option.low:.12g} and {option.high:.12g}, not {given!r}."
    )
    try:
        value = int(str(given)) if whole else float(str(given))
    except ValueError as error:
        raise UserError(complaint) from error
    if not option.low <= value <= option.high:
        raise UserError(complaint)
    return value


def check_operations(workload: Workload, database: str, offered: frozenset[str]) -> None:
    """Raise UserError if the database's clients lack a micro-operation that the workload needs."""
    lacking = sorted(workload.operations - offered)
    if lacking:
        raise UserError(f"The workload {workload.name!r} needs {', '.join(lacking)}, which {database} does not offer.")

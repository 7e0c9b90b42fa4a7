"""What a workload is: what clients do, what they need of a database, and which checkers judge it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeAlias

from harness.errors import UserError
from harness.generators.core import Generator
from harness.history.columns import ModelSettings
from harness.verdict.adequacy import FloorOf

Options: TypeAlias = Mapping[str, Any]
"""Values of a workload's options by name: numbers (ints where they are whole), and words of a choice."""

Unpromised: TypeAlias = Mapping[str, str]
"""What the database does not promise as it was chosen, by the model that judges it: why, in a clause."""

MakeGenerator: TypeAlias = Callable[[Options, Random], Generator]

Operation: TypeAlias = str
"""What a database's clients can do: a micro-operation (`r`, `w`, `cas`, `append`, `add`, …); `transact`, to carry out
all micro-operations of an operation in one transaction; or the operation of this name (`transfer`, `watch`, …)."""


@dataclass(frozen=True, slots=True)
class Option:
    """A number that the user may set: its default, its range (both ends allowed), and what it is for.

    An option whose default is an int takes whole numbers only. `drawn` is what `--swarm` draws, each value equally
    likely; nothing leaves the default.
    """

    name: str
    default: float
    low: float
    high: float
    description: str
    drawn: tuple[float, ...] = ()

    @property
    def in_words(self) -> tuple[str, str]:
        """The default and the values there are, in words."""
        return f"{self.default:g}", f"{self.low:g} to {self.high:g}"


@dataclass(frozen=True, slots=True)
class WordOption:
    """A word that the user may choose among `words`, and what it is for; the first is the default. `drawn` is what
    `--swarm` draws, each as often as it is there; nothing leaves the default."""

    name: str
    words: tuple[str, ...]
    description: str
    drawn: tuple[str, ...] = ()

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

    `operations` are what the database's clients must offer; `fs` each must succeed at least once for a run
    to be adequate; `checkers` name models of `checkers.api`, the first of which is the workload's own, and `settings`
    how they are set, by model. `each_node`: the final reads also go to each node that holds data; None for the final
    reads is a workload that has none. `floors` are its own, where it asks for less than others do, or more, and
    `own_floors` those that only its histories can reach. `world` has keys of worlds (`--world`), and what they are
    where the user does not tell them.
    `unpromised` says what a table that is chosen so may break with no fault of its code: a verdict is invalid all the
    same, and tells it.
    """

    name: str
    description: str
    options: tuple[Option | WordOption, ...]
    generator: MakeGenerator
    final_generator: MakeGenerator | None
    checkers: tuple[str, ...]
    operations: frozenset[Operation]
    fs: tuple[str, ...]
    each_node: bool = True
    floors: Mapping[str, float] = field(default_factory=dict)
    own_floors: tuple[FloorOf, ...] = ()
    world: Mapping[str, str] = field(default_factory=dict)
    settings: Callable[[Options], ModelSettings] = lambda _: {}
    unpromised: Callable[[Options], Unpromised] = lambda _: {}


def resolve_options(workload: Workload, given: Mapping[str, object]) -> dict[str, Any]:
    """Every option's value: as given (numbers, or text that is one; words), else its default; raises UserError."""
    return resolved(f"workload {workload.name!r}", workload.options, given)


def resolved(what: str, options: Sequence[Option | WordOption], given: Mapping[str, object]) -> dict[str, Any]:
    """The settings of anything that has options; `what` names it in words."""
    known = {option.name: option for option in options}
    for name in given:
        if name not in known:
            there = ", ".join(known) or "none"
            raise UserError(f"The {what} has no option {name!r}; it has {there}.")
    return {name: _value(option, given.get(name, option.default)) for name, option in known.items()}


REDRAWS = 50
"""How often options are drawn again that a workload promises nothing with."""


def draw_options(workload: Workload, given: Mapping[str, str], seed: object) -> dict[str, str]:
    """The given options, and others as the seed draws them; of what is drawn the workload's own checker is promised
    all that it judges, unless what is given stands in the way."""
    for number in range(REDRAWS):
        drawn = {
            option.name: f"{Random(f'swarm/{seed}/options/{option.name}/{number}').choice(option.drawn)}"
            for option in workload.options
            if option.drawn and option.name not in given
        }
        found = {**given, **drawn}
        if not workload.unpromised(resolve_options(workload, found)):
            return found
    return dict(given)


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

"""What a kind of fault is made of: whom it hits, how it is done and undone, and probes that tell whether it is there.

A family is a module of this package: actions as data, an `Injector` that does and undoes them, and the kinds that a run
can ask for. `nemesis.registry` lists the families; nothing else has to know of a new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar, runtime_checkable

from harness.errors import HarnessError
from harness.protocols import Armable, Database, Disks, Tuning
from nemesis.grudges import Link
from nemesis.observe import DatabaseObserver, Sight, View
from nemesis.targets import HeldRole

T = TypeVar("T")


async def to_the_end(step: Awaitable[T]) -> T:
    """Carry a step out; who is cancelled meanwhile waits for its end first.

    A command that a machine was sent can't be called back: left alone, it might be carried out after what undoes it.
    """
    task = asyncio.ensure_future(step)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.gather(task, return_exceptions=True)
        raise


async def all_to_the_end(steps: Iterable[Awaitable[object]]) -> None:
    """Run the steps side by side, each to its end, then raise HarnessError if any failed."""
    outcomes = await asyncio.gather(*steps, return_exceptions=True)
    failures = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
    if failures:
        raise HarnessError("; ".join(f"{type(error).__name__}: {error}" for error in failures)) from failures[0]


class Action(Protocol):
    """One thing to be done to the system, as data; the injector that has its class among `actions` carries it out."""

    def describe(self, nodes: tuple[str, ...]) -> str:
        """The action in a few words for people."""

    def hits(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        """The nodes it is about, in the database's order."""


class Injector(Protocol):
    """Does one family of actions and remembers by instance what it did, so that it can be looked at and undone.

    An instance is one fault from its begin to its end. What is about to be done is remembered before it is tried, so a
    step that fails half-way is undone as well; nothing that others did is ever undone.
    """

    actions: ClassVar[tuple[type, ...]]
    """The classes of actions that it carries out."""

    def instances(self) -> Collection[int]:
        """The instances of which something is left to undo."""

    async def carry_out(self, instance: int, action: Any) -> None:
        """Do it; raises HarnessError when a part of it failed."""

    async def look(self, instance: int) -> Sight:
        """One look from inside the nodes: whether everything that the instance did is in effect now.

        Called again and again while the fault lasts, so it is cheap and changes nothing.
        """

    async def undo(self, instance: int) -> None:
        """Undo all that is left of the instance; raises HarnessError when a part failed, and may be called again."""

    async def look_gone(self, instance: int) -> Sight:
        """One look after `undo`: whether nothing is left in effect of what the instance did. Each injector is asked
        of each instance: who did nothing of it has nothing left.

        `blame` says whose failure it is where something is: ours (a rule is still there) or the database's (its
        process was started and doesn't answer). What another instance still does to the same node is not held against
        this one; what can't be looked at because another instance holds the node can't be told (`met` None), and is
        looked at again when no other is in effect.
        """

    def forget(self, instance: int) -> None:
        """It was seen to be gone, or is given up: nothing more will be asked of it."""


@runtime_checkable
class Preparing(Protocol):
    """An injector that has to look at nodes before it does something to them, for longer than they may keep a role."""

    async def prepare(self, action: Any) -> None:
        """All that `carry_out` needs to know beforehand; changes nothing."""


PAUSED = "paused"
"""A way of taking a node that leaves who asks it waiting for an answer."""


class Claims:
    """Nodes whose process an instance has taken out of service, and how; others keep off until they are released.

    `cut` are the links that faults have cut: what arrives there tells nothing of other faults.
    """

    def __init__(self) -> None:
        self._of: dict[str, tuple[int, str]] = {}
        self.cut: frozenset[Link] = frozenset()

    def down(self) -> dict[str, str]:
        """Every claimed node, with how it was taken."""
        return {name: how for name, (_, how) in self._of.items()}

    def mute(self) -> tuple[str, ...]:
        """Nodes that are not worth asking: who does waits in vain."""
        return tuple(name for name, how in self.down().items() if how == PAUSED)

    def of(self, instance: int) -> dict[str, str]:
        """The nodes that one instance has taken, and how."""
        return {name: how for name, (owner, how) in self._of.items() if owner == instance}

    def take(self, instance: int, names: Iterable[str], how: str, over: Collection[str] = ()) -> tuple[str, ...]:
        """Claim those that are free, or that the same instance holds in one of the ways `over`; these are returned."""
        own = self.of(instance)
        taken = tuple(name for name in names if name not in self._of or own.get(name) in over)
        self._of.update(dict.fromkeys(taken, (instance, how)))
        return taken

    def release(self, name: str) -> None:
        """The node's process is back in service."""
        self._of.pop(name, None)


def armable(database: Database) -> Armable:
    """The database, whose nodes have failpoints; raises HarnessError if they have none."""
    if not isinstance(database, Armable):
        raise HarnessError(f"{database.name} has no failpoints")
    return database


def disks(database: Database) -> Disks:
    """The database, whose nodes' disks can be hurt; raises HarnessError if they can't."""
    if not isinstance(database, Disks):
        raise HarnessError(f"{database.name} has no disks that can be hurt")
    return database


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """What to do (None: its targets could not be found), what the statuses said that chose the targets, and the roles
    for which they are hit; with `ends_roles` others have these by the time it is done."""

    action: Action | None
    evidence: dict[str, Any] = field(default_factory=dict)
    roles: tuple[HeldRole, ...] = ()
    ends_roles: bool = False


@dataclass(frozen=True, slots=True)
class Moment:
    """What a variant chooses by: what the nodes say now, the nodes that other faults hold (`busy`), chance, settings.

    `settings` holds a value for each of the kind's settings, `names` those that the user gave (`FaultKind.names`).
    """

    view: View
    busy: Collection[str]
    entropy: Random
    settings: Mapping[str, float] = field(default_factory=dict)
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Variant:
    """One way in which a kind hits: a pure choice, the capabilities it needs beside the kind's own, and of how many
    nodes at least.

    `named`: it is taken only by who asks for it, as it is where one of the capabilities `unless` is offered, for which
    there are better ones. `unavailable`: what it hits can't be served meanwhile, so that nothing
    but safety and recovery is asked of the run.
    """

    choose: Callable[[Moment], FaultPlan]
    needs: frozenset[str] = frozenset()
    least_nodes: int = 1
    named: bool = False
    unavailable: bool = False
    unless: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Setting:
    """A number that the user may choose for a kind, `--nemesis 'KIND(NAME=VALUE)'`; `meaning` names its unit."""

    default: float
    low: float
    high: float
    meaning: str


Suits: TypeAlias = Callable[[Tuning], bool]
"""Whether the reference cluster, as it is set up, lets a nemesis show something."""


def always(tuning: Tuning) -> bool:
    """However it is set up, and any other database."""
    return True


@dataclass(frozen=True, slots=True)
class Names:
    """A setting of a kind that takes names: `known` are those of a database; none given leaves the choice to chance."""

    meaning: str
    known: Callable[[Database], Sequence[str]]


@dataclass(frozen=True, slots=True)
class FaultKind:
    """A kind of fault that a run can ask for by name: a line about it, how it is drawn, what it needs, its variants.

    `needs` are capabilities (of the database or the environment); what lacks one refuses the kind before it starts.
    The preferred variants stand first: the first cycles of a run take them. `alone`: no other fault lasts meanwhile.
    `names` are settings that take names, `|` between several: what each means, and which names the database knows.
    """

    name: str
    description: str
    color: str
    needs: frozenset[str]
    variants: Mapping[str, Variant]
    settings: Mapping[str, Setting] = field(default_factory=dict)
    alone: bool = False
    names: Mapping[str, Names] = field(default_factory=dict)
    suits: Suits = always

    def settings_with(self, chosen: Mapping[str, float]) -> dict[str, float]:
        """A value for each setting: the chosen one, or its default."""
        return {name: chosen.get(name, setting.default) for name, setting in self.settings.items()}


NAMED: Mapping[str, bool] = {"learner": False, "one-too-many": True}
"""Targets that only who names them gets: learners come and go, one too many costs availability (True)."""

MakeInjector: TypeAlias = Callable[[DatabaseObserver, Claims], Injector]


@dataclass(frozen=True, slots=True)
class Family:
    """The kinds that one injector does; none for one that only scripts use."""

    injector: MakeInjector
    kinds: tuple[FaultKind, ...] = ()

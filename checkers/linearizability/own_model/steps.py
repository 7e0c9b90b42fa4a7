"""A model of the user's own, asked by numbers: states and calls are numbered as they appear.

A model has `init()`, `step(state, op)` and may have `partition(op)` and `describe(state)`. What it gives is checked: a
state has a hash, no step changes the state that it was handed, and asked again it gives the same.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Final

from checkers.linearizability.own_model.calls import OwnCall
from harness.errors import UserError
from harness.own_code import OwnCode

_ASKED_AGAIN: Final = 20_000
"""ModelSteps that are asked for again, spread evenly over all."""


_REFUSED: Final = 2_000
"""Steps of a partition that are tried to see whether any is refused."""


def loaded(code: OwnCode) -> Any:
    """What the code's name stands for; an instance, where it is a class."""
    named = code.load()
    try:
        return named() if isinstance(named, type) else named
    except (Exception, SystemExit) as error:
        raise code.blamed(error) from error


class ModelSteps:
    """The states of a model by number, and what its steps say; raises UserError for a model that is none."""

    def __init__(self, code: OwnCode, model: Any) -> None:
        self._code, self._model = code, model
        for name in ("init", "step"):
            if not callable(getattr(self._model, name, None)):
                raise UserError(f"{code.file}: {code.name} has no {name}, so it is no model.")
        self._numbers: dict[Hashable, int] = {}
        self._states: list[Any] = []
        self._kept: list[tuple[Any, int]] = []
        self._said: list[tuple[int, OwnCall, list[int]]] = []

    def _called(self, function: Any, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except (Exception, SystemExit) as error:
            raise self._code.blamed(error) from error

    @property
    def partitioned(self) -> bool:
        """Whether the model says which object an operation is on."""
        return hasattr(self._model, "partition")

    def first(self) -> int:
        """The number of the state that everything begins with."""
        return self._number(self._called(self._model.init), "init")

    def partition(self, call: OwnCall) -> Hashable:
        """The object that an operation is on, by the model."""
        if not self.partitioned:
            return 0
        found = self._called(self._model.partition, call)
        try:
            hash(found)
        except TypeError as error:
            raise self._wrong(f"partition gave {_short(found)}, which has no hash") from error
        return found

    def after(self, state: int, call: OwnCall) -> list[int]:
        """The numbers of the states that a call may lead to, each once."""
        found = self._after(state, call)
        self._said.append((state, call, found))
        return found

    def _after(self, state: int, call: OwnCall) -> list[int]:
        given, (kept, digest) = self._states[state], self._kept[state]
        found = self._called(self._model.step, given, call)
        if isinstance(found, str | bytes | dict | bool) or not isinstance(found, Iterable):
            raise self._wrong(f"step gave {_short(found)} instead of a list of states, empty if there is none")
        states = self._called(list, found)
        numbers = list(dict.fromkeys(self._number(each, "step") for each in states))
        if self._called(hash, given) != digest or not self._called(lambda: given == kept):
            raise self._wrong(f"step changed the state {_short(kept)} that it was handed; it gives new states instead")
        return numbers

    def _number(self, state: Any, what: str) -> int:
        try:
            number = self._numbers.get(state)
        except TypeError as error:
            raise self._wrong(f"{what} gave the state {_short(state)}, which has no hash") from error
        if number is None:
            number = self._numbers[state] = len(self._states)
            self._states.append(state)
            self._kept.append((self._called(copy.deepcopy, state), hash(state)))
        return number

    def could_refuse(self, calls: Sequence[OwnCall]) -> bool:
        """Whether a call that succeeded, of some of a partition that no search refuted, is refused in some state that
        was reached there: if not, every order of them would do, and the history says nothing.

        Of many pairs some _REFUSED are asked for, spread evenly over all.
        """
        mine = set(map(id, calls))
        asked = [said for said in self._said if id(said[1]) in mine]
        if any(not found and call.type == "ok" for _, call, found in asked):
            return True
        states = list(dict.fromkeys([0, *(state for _, _, found in asked for state in found)]))
        calls = [call for call in calls if call.type == "ok"]
        pairs = range(0, len(states) * len(calls), -(-len(states) * len(calls) // _REFUSED) or 1)
        return any(not self.after(states[pair // len(calls)], calls[pair % len(calls)]) for pair in pairs)

    def ask_again(self) -> None:
        """Raise UserError if a step that was asked for before gives something else now."""
        for state, call, found in self._said[:: -(-len(self._said) // _ASKED_AGAIN) or 1]:
            if sorted(self._after(state, call)) != sorted(found):
                raise self._wrong(f"step gave something else when it was asked again about {self.described(state)}")

    def described(self, state: int) -> str:
        """A state in the model's own words, or as Python has it."""
        describe = getattr(self._model, "describe", repr)
        return _short(self._called(describe, self._states[state]))

    def _wrong(self, words: str) -> UserError:
        return UserError(f"{self._code.file}: {self._code.name}.{words}.")


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def numbered(calls: Sequence[bytes]) -> tuple[list[int], list[int]]:
    """Numbers of equal things as they appear, and the first place of each number."""
    numbers: dict[bytes, int] = {}
    found = [numbers.setdefault(call, len(numbers)) for call in calls]
    firsts: dict[int, int] = {}
    for place, number in enumerate(found):
        firsts.setdefault(number, place)
    return found, list(firsts.values())

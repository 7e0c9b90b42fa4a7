"""Settings of single models (`-o KEY=VALUE`), read with one sentence for what can't be meant."""

from __future__ import annotations

from checkers.options import CheckOptions
from harness.errors import UserError
from harness.history.columns import FOREIGN_BASE

_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def int_setting(options: CheckOptions, name: str) -> int | None:
    """An integer, None if not given; raises UserError for anything else."""
    text = options.settings.get(name)
    if text is None:
        return None
    try:
        return int(text)
    except ValueError as error:
        raise UserError(f"-o {name} takes an integer, not {text!r}.") from error


def initial_setting(options: CheckOptions) -> int | None:
    """What registers begin as (`-o initial=0`), None for unset."""
    initial = int_setting(options, "initial")
    if initial is not None and not FOREIGN_BASE < initial < 2**63:
        raise UserError(f"-o initial takes an integer of 64 bits, and none of the lowest, not {initial}.")
    return initial


def bool_setting(options: CheckOptions, name: str, default: bool = False) -> bool:
    """Yes or no."""
    text = options.settings.get(name)
    if text is None:
        return default
    if text.lower() not in _WORDS:
        raise UserError(f"-o {name} takes true or false, not {text!r}.")
    return _WORDS[text.lower()]


def names_setting(options: CheckOptions, name: str) -> tuple[str, ...]:
    """Names separated by commas, none if not given."""
    return tuple(part.strip() for part in options.settings.get(name, "").split(",") if part.strip())

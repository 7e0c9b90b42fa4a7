"""What the user may choose about judging, and the settings of single models (`-o KEY=VALUE`), read with one sentence
for what can't be meant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from checkers.engines.session import SparkOptions
from checkers.source import FailedCas
from harness.errors import UserError
from harness.history.columns import FOREIGN_BASE
from harness.own_code import OwnCode


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """`failed_cas` says what a failed compare-and-set tells (None: what the format says); `consistency` what must hold
    (None: the model's own); `explain` how many instances of each anomaly are explained; `time_limit_s` and
    `memory_mib` bound searches, past which the answer is unknown; `debug` keeps tracebacks of crashed checkers;
    `settings` are a model's own (`ModelInfo.settings`), as text; `spark` says where Spark runs, if it judges, `cores`
    how many the in-process engine works on (None: all that this process may use), and `code` is a model of the user's
    own, which no history and no saved run ever names. `alone` says that the history has completions alone."""

    failed_cas: FailedCas | None = None
    consistency: str | None = None
    explain: int = 8
    time_limit_s: float = 60.0
    memory_mib: int = 1024
    debug: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    spark: SparkOptions = field(default_factory=SparkOptions)
    cores: int | None = None
    code: OwnCode | None = None
    alone: bool = False


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

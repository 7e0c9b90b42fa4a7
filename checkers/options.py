"""What the user may choose about judging."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from checkers.engines.session import SparkOptions
from checkers.source import FailedCas


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """`failed_cas` says what a failed compare-and-set tells (None: what the format says); `consistency` what must hold
    (None: the model's own); `explain` how many instances of each anomaly are explained; `time_limit_s` and
    `memory_mib` bound searches, past which the answer is unknown; `debug` keeps tracebacks of crashed checkers;
    `settings` are a model's own (`ModelInfo.settings`), as text; `spark` says where Spark runs, if it judges, and
    `cores` how many the in-process engine works on (None: all that this process may use)."""

    failed_cas: FailedCas | None = None
    consistency: str | None = None
    explain: int = 8
    time_limit_s: float = 60.0
    memory_mib: int = 1024
    debug: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)
    spark: SparkOptions = field(default_factory=SparkOptions)
    cores: int | None = None

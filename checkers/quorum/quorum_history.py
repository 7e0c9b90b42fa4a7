"""What is to be known of a whole history before its partitions are judged: levels, which of them bind, who served,
and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checkers.columns.batches import coded, outcomes, read_elements
from checkers.columns.codes import FAIL, READ, WRITE, Bools
from checkers.columns.mops import STRONG_MODES, MopProjection
from checkers.engines.api import Engine
from checkers.engines.flows import BatchFlow, run_batches
from checkers.findings import Findings, refuse_unsupported
from checkers.quorum.quorum_table import DELETE, PAGE, REFUSALS
from checkers.source import Source
from harness.errors import UserError
from harness.history.columns import QUORUM_COLUMNS
from harness.levels import LEVELS, binds, read_replication

Place: TypeAlias = tuple[str | None, str | None, str | None]
"""Level, data centre and replication of an operation, as the history has them."""

Answer: TypeAlias = tuple[str | None, str | None, str | None]
"""Replicas, node and level of an operation, as the history has them."""

PHASE_FINAL: Final = "final"
PHASE_EACH_NODE: Final = "each-node"
"""Final reads that went to one node each."""

_PLACE: Final = ("mode", "data_centre", "replication")
_ANSWER: Final = ("replicas", "node", "mode")
_OF_SEVERAL: Final = frozenset(LEVELS) - {"ONE", "LOCAL_ONE"}
"""Levels at which more than one replica answers, where there are more."""

_LEAST: Final = 2
"""Replicas that there are where nobody says how many: of fewer none would ask whether they agree."""


def _possible_factors(centres: tuple[str, ...]) -> tuple[dict[str, int], ...]:
    """Replication factors that stand for all that a history with these data centres may have had: more replicas change
    nothing, for what is compared are small constants and halves."""
    each = range(1, 8) if len(centres) == 1 else range(1, 4)
    return tuple(dict(zip(centres, factors, strict=True)) for factors in product(each, repeat=len(centres)))


@dataclass(frozen=True, slots=True)
class Reading:
    """`places` are those of operations that succeeded and `binding[i, j]` says whether what was done at place i must be
    seen at place j; `answers` says for each (replicas, node, level) of an operation whose answer it was, None if it may
    have been made of several, and `nodes` are all that are named so. Final reads are marked by their phase if `marked`,
    else they began after event `last`, the last of anything but reads."""

    places: tuple[Place, ...]
    binding: Bools
    nodes: tuple[str, ...]
    answers: Mapping[Answer, str | None]
    marked: bool
    last: int

    @property
    def projection(self) -> MopProjection:
        """The rows of which partitions are judged."""
        return MopProjection(
            {"r": READ, "w": WRITE, "delete": DELETE, "page": PAGE},
            extras=("session", "write_ts", "first", "last"),
            bound_kinds=frozenset({DELETE, PAGE}),
            codes={
                "level": (_PLACE, {place: code for code, place in enumerate(self.places)}),
                "node": (_ANSWER, self._node_codes()),
                "final": (("phase",), {(PHASE_FINAL,): 1, (PHASE_EACH_NODE,): 1}),
            },
        )

    def _node_codes(self) -> dict[tuple[str | None, ...], int]:
        code = {name: number for number, name in enumerate(self.nodes)}
        return {answer: code[name] for answer, name in self.answers.items() if name is not None}

    @property
    def replicas(self) -> tuple[int, ...]:
        """By place, how many replicas a partition has; two at least where the history does not say."""
        stated = [None if factors is None else read_replication(factors) for _, _, factors in self.places]
        return tuple(_LEAST if factors is None else sum(factors.values()) for factors in stated)


def is_quorum_history(source: Source) -> bool:
    """Whether any operation states a timestamp of its client's, a data centre or replication factors."""
    return source.states(sorted(QUORUM_COLUMNS))


def read_quorum_history(source: Source, engine: Engine) -> Reading | None:
    """What there is to know of a history of a quorum table; None for others. Raises UserError for levels that can't
    be."""
    if not is_quorum_history(source):
        return None
    seen = run_batches(engine, source, BatchFlow(_COLUMNS, _seen, _united))
    if not seen.quorum:
        return None
    if len({replication is None for _, _, replication in seen.places}) > 1:
        raise UserError(
            f"{source.path}: some operations state their replication and others don't, so what binds them is not known."
        )
    ordered = tuple(sorted(seen.places, key=lambda place: tuple(part or "" for part in place)))
    answers = {answer: _answerer(*answer) for answer in seen.answers}
    nodes = tuple(sorted({name for name in answers.values() if name is not None}))
    return Reading(ordered, _binding(source, ordered), nodes, answers, seen.marked, seen.last)


class _Seen(NamedTuple):
    """What some batches show: whether they are of a quorum table, and of `Reading` what does not take the whole."""

    quorum: bool = False
    places: frozenset[Place] = frozenset()
    answers: frozenset[Answer] = frozenset()
    marked: bool = False
    last: int = -1


def _seen(batch: pa.RecordBatch) -> _Seen:
    rows = batch.filter(pc.greater_equal(batch.column("process"), 0))
    quorum = any(rows.column(name).null_count < rows.num_rows for name in QUORUM_COLUMNS)
    acted = pc.greater(pc.fill_null(pc.list_value_length(rows.column("mops")), 0), 0)
    done = rows.filter(pc.and_(pc.equal(rows.column("type").cast(pa.string()), "ok"), acted))
    marked = bool(pc.any(pc.equal(done.column("phase"), PHASE_FINAL)).as_py())
    return _Seen(quorum, _distinct(done, _PLACE), _distinct(done, _ANSWER), marked, _last_write(rows))


def _united(parts: list[_Seen]) -> _Seen:
    if not parts:
        return _Seen()
    quorum, places, answers, marked, last = zip(*parts, strict=True)
    return _Seen(any(quorum), frozenset().union(*places), frozenset().union(*answers), any(marked), max(last))


def _distinct(rows: pa.RecordBatch, names: tuple[str, ...]) -> frozenset[Any]:
    """The combinations of texts that some columns have."""
    texts = pa.table([rows.column(name).cast(pa.string()) for name in names], names=list(names))
    return frozenset(tuple(row.values()) for row in texts.group_by(list(names)).aggregate([]).to_pylist())


def _answerer(replicas: str | None, node: str | None, level: str | None) -> str | None:
    """Whose replica an answer shows: the one that is stated, else the node; None if several may have made it."""
    if replicas is None:
        return None if str(level).upper() in _OF_SEVERAL else node
    return None if "," in replicas else replicas


_COLUMNS: Final = (
    *("invoke_index", "complete_index", "process", "type", "f", "mops.list.element.f", "phase", "node"),
    *_PLACE,
    *sorted(QUORUM_COLUMNS - {*_PLACE}),
)


def _last_write(rows: pa.RecordBatch) -> int:
    """The last event of an operation that states a timestamp or writes, of those that may have taken effect."""
    elements = read_elements(rows)
    reads = coded(elements.columns["f"], {"r": 1, "page": 1}, 0) == 1
    of = np.repeat(np.arange(rows.num_rows), elements.size)
    writes = (np.bincount(of[~reads], minlength=rows.num_rows) > 0) & (outcomes(rows) != FAIL)
    ended = pc.coalesce(rows.column("complete_index"), rows.column("invoke_index")).to_numpy(zero_copy_only=False)
    return int(ended[writes].max(initial=-1))


def _binding(source: Source, places: tuple[Place, ...]) -> Bools:
    possible = _possible_factors(tuple(dict.fromkeys(str(here) for _, here, _ in places)))
    try:
        matrix = [[_binds(one, other, possible) for other in places] for one in places]
    except UserError as error:
        raise UserError(f"{source.path}: an operation succeeded that could not have. {error}") from error
    return np.array(matrix, np.bool_).reshape(len(places), len(places))


def _binds(one: Place, other: Place, possible: tuple[dict[str, int], ...]) -> bool:
    """Q1's rule for two places. Operations under different replication factors don't bind each other; where none are
    stated those do that bind with all `possible` ones."""
    (level, here, replication), (level_of_other, there, replication_of_other) = one, other
    if replication is not None and replication_of_other is not None:
        if level is None or level_of_other is None:
            raise UserError("Its replication is stated, but no consistency level.")
        factors = read_replication(replication)
        if factors != read_replication(replication_of_other):
            return False
        return binds((level.upper(), here), (level_of_other.upper(), there), factors)
    levels = {None if level is None else level.upper(), None if level_of_other is None else level_of_other.upper()}
    if not levels <= set(LEVELS):
        return all(name is None or name.lower() in STRONG_MODES for name in levels)
    needed = max({"TWO": 2, "THREE": 3}.get(str(name), 1) for name in levels)
    return all(
        binds((str(level).upper(), str(here)), (str(level_of_other).upper(), str(there)), factors)
        for factors in possible
        if sum(factors.values()) >= needed
    )


def refuse(source: Source, model: str, found: Findings) -> None:
    """Raise UserError for operations that no model of quorum tables knows, and for histories that can't be judged."""
    refuse_unsupported(found, source.path, model)
    refused = [finding for finding in found.kept if finding.anomaly.startswith("refused:")]
    if refused:
        first = min(refused, key=lambda finding: (finding.order, finding.anomaly))
        events = " and ".join(str(index) for index in sorted(set(first.ops)))
        reason = REFUSALS[first.anomaly.removeprefix("refused:")]
        raise UserError(f"{source.path}, event {events}: {reason}, so the model {model} can't judge it.")

"""Pictures of `docs/mutation-tracking.md`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.quorum.lag import Lags

_MIB = 1 << 20


class Bars(NamedTuple):
    """The column that bars show, in words, whether on a logarithmic axis, and where the picture goes."""

    column: str
    label: str
    logarithmic: bool
    path: Path


def plot_lag(found: Sequence[Lags], path: Path) -> None:
    """Which share of writes some replica still lacked after how long."""
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(figsize=(7, 4))
    for lags in found:
        ordered, total = sorted(lags.seconds), len(lags.seconds) + lags.missing
        shares = [1 - (rank + 1) / total for rank in range(len(ordered))]
        label = f"{lags.design}: {lags.missing} of {total} missing after a minute"
        axes.step([*ordered, 60.0], [*shares, lags.missing / total], where="post", label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("seconds since the write was acknowledged")
    axes.set_ylabel("share of writes that some replica lacks")
    _save(figure, axes, path)


def plot_repair(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Bytes read from disks against the mutations that were missing."""
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(figsize=(7, 4))
    for design, mib in dict.fromkeys((row["design"], row["mib"]) for row in rows):
        chosen = [row for row in rows if (row["design"], row["mib"]) == (design, mib)]
        read = [row["disk_read_bytes"] / _MIB for row in chosen]
        axes.plot([row["missing"] for row in chosen], read, marker="o", label=f"{design}, {mib} MiB")
    axes.set_xscale("log")
    axes.set_xlabel("missing mutations")
    axes.set_ylabel("MiB read from the disks of three replicas")
    _save(figure, axes, path)


def plot_wire(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Bytes of a read, mutations aside, against ids that are not reconciled; a line for each number of differences."""
    pyplot = _pyplot()
    figure, panels = pyplot.subplots(1, 2, figsize=(9, 4), sharey=True)
    for axes, kind in zip(panels, ("summaries", "ids"), strict=True):
        for differences in dict.fromkeys(row["differences"] for row in rows):
            chosen = [row for row in rows if (row["kind"], row["differences"]) == (kind, differences)]
            sent = [row["wire_bytes"] - row["of_these_mutations"] for row in chosen]
            axes.plot([row["ids"] for row in chosen], sent, marker="o", label=f"{differences} differences")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_title(f"differences found by {kind}")
        axes.set_xlabel("unreconciled ids of the partition")
    panels[0].set_ylabel("bytes between nodes for a read")
    _save(figure, panels[0], path)


def plot_bars(rows: Sequence[dict[str, Any]], series: str, what: Callable[[dict[str, Any]], str], asked: Bars) -> None:
    """A group of bars for each `what` that rows are about, in it one for each `series`, a column of the rows."""
    pyplot = _pyplot()
    figure, axes = pyplot.subplots(figsize=(7, 4))
    groups = list(dict.fromkeys(what(row) for row in rows))
    names = list(dict.fromkeys(row[series] for row in rows))
    width = 0.8 / len(names)
    for place, name in enumerate(names):
        chosen = [row for row in rows if row[series] == name]
        at = [groups.index(what(row)) + (place - (len(names) - 1) / 2) * width for row in chosen]
        bars = axes.bar(at, [row[asked.column] for row in chosen], width, label=name)
        axes.bar_label(bars, fmt="%g", fontsize="small")
    axes.set_xticks(range(len(groups)), groups)
    axes.set_yscale("log" if asked.logarithmic else "linear")
    axes.set_ylabel(asked.label)
    _save(figure, axes, asked.path)


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    return pyplot


def _save(figure: Any, axes: Any, path: Path) -> None:
    axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=100)

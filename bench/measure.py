"""What benchmarks share: rows of figures and their tables, the machine in words, time, memory, pairs, pictures."""

from __future__ import annotations

import math
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, ParamSpec, TypeAlias, TypeVar

K = TypeVar("K")
P = ParamSpec("P")
R = TypeVar("R")

Row: TypeAlias = dict[str, Any]
"""Figures by name. Its leading texts say what was measured; names carry units."""

_SAMPLE_EVERY_S: Final = 0.25


def report(text: str) -> None:
    """How far a benchmark is, beside its figures."""
    print(text, file=sys.stderr, flush=True)


def machine() -> str:
    """Cores, memory and how busy the machine is."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores, {memory_gib:.0f} GiB, load {os.getloadavg()[0]:.1f}"


def chosen(asked: Sequence[str], known: Iterable[str]) -> list[str]:
    """What was asked for, all if nothing was; ends the benchmark at a name that is not known."""
    names = list(known)
    for name in asked:
        if name not in names:
            sys.exit(f"there is no {name!r}: it is one of {', '.join(names)}")
    return list(asked) or names


@contextmanager
def kept_in(folder: Path | None = None) -> Iterator[Path]:
    """The folder, or one that is removed when the block is left."""
    with tempfile.TemporaryDirectory(prefix="assay-bench-") as scratch:
        yield folder or Path(scratch)


def power(number: float) -> str:
    """A number in words: 10^6, 5·10^5, 1 600."""
    exponent = int(math.log10(number)) if number >= 1 else 0
    mantissa = number / 10**exponent
    if exponent < 4 or mantissa != int(mantissa):
        return f"{number:,.0f}".replace(",", " ")
    return f"10^{exponent}" if mantissa == 1 else f"{mantissa:.0f}·10^{exponent}"


# ---- time ----


class Spent:
    """Seconds on the clock, and of this process's threads."""

    wall_s = 0.0
    cpu_s = 0.0


@contextmanager
def spent() -> Iterator[Spent]:
    """What the block takes; the figures stand once it is left."""
    found, wall, cpu = Spent(), time.perf_counter(), time.process_time()
    try:
        yield found
    finally:
        found.wall_s, found.cpu_s = time.perf_counter() - wall, time.process_time() - cpu


def used_s(whose: int) -> float:
    """CPU seconds so far of this process (`resource.RUSAGE_SELF`), or of children that ended (`RUSAGE_CHILDREN`)."""
    usage = resource.getrusage(whose)
    return usage.ru_utime + usage.ru_stime


class FinishedProgram(NamedTuple):
    """What a program printed, and what it took with all that it started: CPU seconds, and seconds on the clock."""

    out: bytes
    cpu_s: float
    wall_s: float


def finished(*command: str | Path, cache: Path | None = None) -> FinishedProgram:
    """Carry out a module with its words, as `python -m` does; ends the benchmark if it fails. `cache`: kernels are kept
    there."""
    setting = os.environ | ({"NUMBA_CACHE_DIR": str(cache)} if cache else {})
    before = used_s(resource.RUSAGE_CHILDREN)
    with spent() as took:
        ended = subprocess.run([sys.executable, "-m", *command], env=setting, capture_output=True, check=False)
    if ended.returncode not in (0, 1, 2) or b"Traceback" in ended.stderr:  # valid, invalid, unknown; 1 is Python's too
        sys.exit(ended.stderr.decode())
    return FinishedProgram(ended.stdout, used_s(resource.RUSAGE_CHILDREN) - before, took.wall_s)


def in_turns(variants: Sequence[K], rounds: int, measured: Callable[[K, int], R]) -> dict[K, list[R]]:
    """Each variant once a round, every other round in the opposite order; rounds are numbered from 0."""
    found: dict[K, list[R]] = {variant: [] for variant in variants}
    for turn in range(rounds):
        for variant in variants if turn % 2 else tuple(reversed(variants)):
            found[variant].append(measured(variant, turn))
    return found


def shares(seconds: Sequence[float]) -> dict[str, float | None]:
    """The median, what nine in ten stay below, and the longest."""
    return {
        "median_s": round(statistics.median(seconds), 3),
        "p90_s": round(statistics.quantiles(seconds, n=10)[-1], 3) if len(seconds) > 1 else None,
        "max_s": round(max(seconds), 3),
    }


# ---- memory ----


def status_bytes(name: str) -> int:
    """A line of this process's status in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


def forget_peak() -> int:
    """Let `VmHWM` begin anew from what the process holds now, which is returned."""
    Path("/proc/self/clear_refs").write_text("5")
    return status_bytes("VmRSS")


class Peak:
    """The most memory seen, in bytes."""

    bytes = 0

    @property
    def gib(self) -> float:
        return round(self.bytes / 2**30, 2)


@contextmanager
def peak_memory() -> Iterator[Peak]:
    """Samples this process and all below it (the JVM, Python workers) while the block runs."""
    peak, stop = Peak(), threading.Event()

    def sample() -> None:
        while True:
            peak.bytes = max(peak.bytes, family_bytes(os.getpid()))
            if stop.wait(_SAMPLE_EVERY_S):
                return

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        stop.set()
        thread.join()


def family_bytes(root: int) -> int:
    """What a process and all below it hold, shared pages counted once; those that end meanwhile are left out."""
    return sum(_held(process) for process in _family(root))


def _family(root: int) -> Iterator[int]:
    yield root
    for task in Path(f"/proc/{root}/task").glob("*/children"):
        for child in _text(task).split():
            yield from _family(int(child))


def _held(process: int) -> int:
    lines = _text(Path(f"/proc/{process}/smaps_rollup")).splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # the process ended meanwhile
        return ""


def in_a_process(how: Literal["fork", "spawn"], work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """What it returns in a process of its own: `fork` has what this one loaded and compiled, `spawn` begins anew."""
    with ProcessPoolExecutor(1, multiprocessing.get_context(how)) as pool:
        return pool.submit(work, *args, **kwargs).result()


# ---- pictures ----


@contextmanager
def picture(path: Path, width: float = 7, panels: int = 1, one_scale: bool = False) -> Iterator[Any]:
    """The axes to draw on (several: in a row), saved when the block is left."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, panels, figsize=(width, 4), sharey=one_scale, layout="constrained")
    yield axes
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)


# ---- tables in documents ----


_NO_CELLS: Final = (bool, list, dict, type(None))


def mark(name: str) -> str:
    """What stands above the table of a benchmark in a document; the table ends where its lines do."""
    return f"<!-- bench: {name} -->"


def updated(text: str, name: str, rows: Sequence[Row]) -> str:
    """A document with these figures in the table of that benchmark.

    A row goes where one of the same name is, else to the end; cells that were not measured keep what they have. A table
    has no lists, no tables, and no answers to yes or no.
    """
    before, after = text.split(f"{mark(name)}\n", 1)
    lines = after.splitlines(keepends=True)
    length = next((at for at, line in enumerate(lines) if not line.startswith("|")), len(lines))
    names = next(at for at, value in enumerate(rows[0].values()) if not isinstance(value, str))
    cells = _read(lines[:length], names)
    for row in rows:
        figures = {_words(column): _cell(value) for column, value in row.items() if not isinstance(value, _NO_CELLS)}
        cells.setdefault(tuple(list(figures.values())[:names]), {}).update(figures)
    return f"{before}{mark(name)}\n{_drawn(list(cells.values()))}{''.join(lines[length:])}"


def _read(lines: Sequence[str], names: int) -> dict[tuple[str, ...], dict[str, str]]:
    table = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    return {tuple(row[:names]): dict(zip(table[0], row, strict=True)) for row in table[2:]}


def _drawn(rows: Sequence[Mapping[str, str]]) -> str:
    columns = list(dict.fromkeys(column for row in rows for column in row))
    cells = [columns, ["---"] * len(columns), *([row.get(column, "") for column in columns] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def _words(column: str) -> str:
    return column.replace("_", " ")


def _cell(value: Any) -> str:
    return f"{value:,}".replace(",", " ") if isinstance(value, int) else str(value)

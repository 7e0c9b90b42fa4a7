"""What a user sees meanwhile: of a run its stage and how much of the load is done, of other work what it is."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from assay.telling import EXIT_WITHOUT_VERDICT, say_at_once, unfinished
from checkers.compile_cache import compilation_reported
from harness.history.ops import Op
from harness.history.rundir import RunDir

if TYPE_CHECKING:
    from rich.progress import Progress

EVENTS_PER_UPDATE = 256
STAGE_SHARES = {"set up": 0.0, "load": 0.05, "heal": 0.85, "recover": 0.88, "final reads": 0.9, "logs": 0.93}
LATER_SHARES = {"save": 0.95, "judge": 0.97, "tear down": 0.99}


MOST_FAULTS = 4
"""Faults that the line names."""

LINE_GAP_S = 10.0
"""Without a terminal a line is printed now and then, this far apart at least."""

WAIT_GAP_S = 1.0
"""Lines on what the set-up waits for, which may take a minute, are this far apart at least."""


def on_terminal() -> bool:
    """Whether somebody watches standard error. Only then is rich loaded, which draws there: it takes long to load."""
    return sys.stderr is not None and sys.stderr.isatty()


class RunProgress:
    """A `harness.run.spec.RunListener` on standard error: one bar on a terminal, else a line now and then."""

    def __init__(self, time_limit_s: float) -> None:
        from harness.ports.real.ports import RealClock  # with it comes all that real nodes take

        self._bar = _StageBar() if on_terminal() else None
        self._clock = RealClock()
        self._told_ns = self._clock.monotonic_ns()
        self._limit_ns = time_limit_s * 1e9
        self._stage = "set up"
        self._events = 0
        self._stopping = False
        self._faults: dict[tuple[Any, Any], str] = {}

    def __enter__(self) -> RunProgress:
        if self._bar is not None:
            self._bar.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.bar.stop()

    def stage(self, name: str) -> None:
        self._stage = name
        self._show(name, {**STAGE_SHARES, **LATER_SHARES}.get(name, 0.0), "")

    def waits(self, what: str) -> None:
        self._show(self._stage, STAGE_SHARES.get(self._stage, 0.0), f"waiting for {what}", WAIT_GAP_S)

    def event(self, op: Op) -> None:
        self._events += 1
        changed = op.process < 0 and self._take_fault(op)
        if (changed or self._events % EVENTS_PER_UPDATE == 0) and self._stage == "load":
            low, high = STAGE_SHARES["load"], STAGE_SHARES["heal"]
            done = min(1.0, op.time / self._limit_ns)
            self._show("load", low + done * (high - low), self._of_load(op.time))

    def stopping(self, stage: str, longest_s: float | None) -> None:
        self._stopping = True
        most = "" if longest_s is None else f", {longest_s:g} s at most"
        what = "faults are healed, the history is judged, all is taken down"
        say_at_once(f"stopping ({stage}): {what}: some seconds as a rule{most}; ctrl-c once more ends it at once.")

    def given_up(self, rundir: RunDir, logs_left: str) -> NoReturn:
        if self._bar is not None:
            self._bar.bar.console.show_cursor()
        left = f"; {logs_left}" if logs_left else ""
        say_at_once(f"ended at once: {unfinished(rundir)}{left}.")
        os._exit(EXIT_WITHOUT_VERDICT)

    def _of_load(self, time_ns: int) -> str:
        """`11 of 30 s, 5,120 events, kill t2`; a load that goes on says so."""
        limit_s, faults = self._limit_ns / 1e9, list(self._faults.values())
        now = f"{time_ns / 1e9:.0f} of {limit_s:g} s, {self._events:,} events"
        return ", ".join([now, *faults[:MOST_FAULTS], *["…"] * (len(faults) > MOST_FAULTS)])

    def _take_fault(self, op: Op) -> bool:
        """Whether a fault came or went, by what the nemesis reports."""
        value = op.value if isinstance(op.value, dict) else {}
        if op.type == "invoke" or value.get("step") not in ("begin", "end"):
            return False
        name = (value.get("fault"), value.get("instance"))
        if value["step"] == "end":
            return self._faults.pop(name, None) is not None
        targets = " ".join(map(str, value.get("targets") or ()))
        self._faults[name] = f"{name[0]} {targets}".strip()
        return True

    def _show(self, stage: str, share: float, note: str, gap_s: float | None = None) -> None:
        if self._bar is not None:
            self._bar.show(stage, share, note)
            return
        now_ns = self._clock.monotonic_ns()
        if self._stopping or now_ns - self._told_ns >= (LINE_GAP_S if gap_s is None else gap_s) * 1e9:
            self._told_ns = now_ns
            print(f"{stage}: {note}" if note else stage, file=sys.stderr, flush=True)


class _StageBar:
    """The bar of a run: its stage, and how much of the whole is done."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self.bar: Progress = Progress(
            TextColumn("{task.description:<12}"),
            BarColumn(),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self.bar.add_task("set up", total=1.0, note="")

    def show(self, stage: str, share: float, note: str) -> None:
        self.bar.update(self._task, description=stage, completed=share, note=note)


@contextmanager
def working(text: str) -> Iterator[Callable[[str], None]]:
    """Shows a text on standard error where that is a terminal, and says when kernels are compiled; yields what changes
    the text."""
    shown = text
    if not on_terminal():
        yield lambda _: None
        return
    from rich.console import Console

    with Console(stderr=True).status(text) as status:

        def change(to: str) -> None:
            nonlocal shown
            shown = to
            status.update(to)

        def tell(compiling: bool) -> None:
            status.update(f"{shown} (compiling, once after each update)" if compiling else shown)

        with compilation_reported(tell):
            yield change


@contextmanager
def counting(what: str, total: int | None) -> Iterator[Callable[[], None]]:
    """A bar on standard error over a number of things (None: not known), where that is a terminal; yields what counts
    one more. It has no thread, so that processes can be forked meanwhile."""
    if not on_terminal():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True, auto_refresh=False) as bar:
        task = bar.add_task(what, total=total)
        bar.refresh()
        yield lambda: bar.update(task, advance=1, refresh=True)


@contextmanager
def live_line() -> Iterator[Callable[[str], None] | None]:
    """Yields what shows a line on standard error, in the place of the one before; None where that is no terminal. No
    thread draws it, so that processes can be forked meanwhile."""
    if not on_terminal():
        yield None
        return
    width = os.get_terminal_size(sys.stderr.fileno()).columns
    try:
        yield lambda text: print(f"\r\x1b[K{text[: width - 1]}", end="", file=sys.stderr, flush=True)
    finally:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)

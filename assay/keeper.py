"""The keeper of a run: a process between the command and the run, after which nothing that the run started is left.

    command ──fork──> keeper ──fork──> run ──> whatever it starts, and leaves

The keeper adopts all that is orphaned below it (Linux's child subreaper) and waits. When the run has ended it kills the
others, removes the run's containers, and ends as the run did. It hears of the command's death by a signal, as the run
does of its own; so a command that was killed leaves nothing, and a keeper that was killed leaves what the command, an
adopter itself, finds among its children.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NoReturn

import psutil

from harness.errors import HarnessError, UserError

END_ALL: Final = signal.SIGQUIT
"""Tells a keeper to end the run, and all that it started, at once; SIGTERM is handed on to the run alone."""

_WATCHED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, END_ALL, signal.SIGCHLD)
_SET_DEATH_SIGNAL: Final = 1
_SET_CHILD_SUBREAPER: Final = 36
_AS_LONG: Final = ctypes.c_ulong


def _prctl(option: int, value: int) -> None:
    """Linux only; elsewhere processes that a run leaves stay, and none is told of its parent's death."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, _AS_LONG(value), _AS_LONG(0), _AS_LONG(0), _AS_LONG(0))


def adopt_orphans() -> None:
    """From now on processes below this one whose parents end become its children."""
    _prctl(_SET_CHILD_SUBREAPER, 1)


def end_with(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """This process gets a signal when its parent ends, which may have happened already."""
    _prctl(_SET_DEATH_SIGNAL, number)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def keep_run(run: Callable[[], None], on: str, command: int) -> NoReturn:
    """Carry a run out in a child of this process, which is the keeper's and does nothing else, and end as it ended,
    with nothing of it left; `command` is the process that this one was forked from."""
    os.setpgrp()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    adopt_orphans()
    end_with(command, END_ALL)
    keeper = os.getpid()
    child = os.fork()
    if not child:
        end_with(keeper)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (END_ALL, signal.SIGCHLD))
        run()
        os._exit(0)
    status = _await(child)
    _end_children()
    if status and on == "docker":
        _remove_containers(child)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (number,))
        os.kill(keeper, number)
    os._exit(os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 1)


def _await(child: int) -> int:
    """How the run ended; what it left and ends meanwhile is buried."""
    while True:
        number = signal.sigwait(_WATCHED)
        if number == END_ALL:
            _kill(child)
        elif number != signal.SIGCHLD:
            _kill(child, signal.SIGTERM)
        ended = 1
        while ended:
            ended, status = os.waitpid(-1, os.WNOHANG)  # the run is there until it is seen here
            if ended == child:
                return status


def _end_children() -> None:
    """Kill all children of this process, and those that they leave to it, until there is none."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            return
        for each in psutil.Process().children(recursive=True):
            _kill(each.pid)
        with suppress(ChildProcessError):
            os.waitpid(-1, 0)


def _kill(process: int, number: signal.Signals = signal.SIGKILL) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, number)


def _remove_containers(run: int) -> None:
    """Remove what a run that did not end in peace has left in the engine, found by its process's label."""
    from harness.env.docker.engine import connect_engine
    from harness.env.docker.leftovers import clean_leftovers

    try:
        client = connect_engine()
        try:
            for failure in clean_leftovers(client, run).failures:
                print(f"assay: {failure}", file=sys.stderr)
        finally:
            client.close()
    except (UserError, HarnessError) as error:
        print(f"assay: what a run left in the engine was not removed: {error}", file=sys.stderr)


def begun_at(process: int | None) -> float | None:
    """When a process began, as the system has it, which goes by another clock than ours; None for one that is gone."""
    try:
        return float(psutil.Process(process).create_time())
    except psutil.Error:
        return None


def end_orphans(keeper: int, begun: float, others: list[int]) -> None:
    """Of a keeper that was killed: end what its run left to this process, which has adopted it: its group, and what
    has left that for a group of its own since the keeper's `begun_at`, but the `others`, keepers as well."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(keeper, signal.SIGKILL)
    for each in psutil.Process().children():
        with suppress(psutil.Error, ProcessLookupError, ChildProcessError):
            group = os.getpgid(each.pid)
            if each.pid not in others and group != os.getpgrp() and each.create_time() >= begun:
                for below in [*each.children(recursive=True), each]:
                    below.kill()
                os.waitpid(each.pid, 0)


def memory_of_run(keeper: int) -> float:
    """MiB of memory of all that a keeper keeps; of pages that several share, such as what a run was forked with, each
    has its part (PSS)."""
    total = 0
    with suppress(psutil.Error):
        for each in psutil.Process(keeper).children(recursive=True):
            with suppress(psutil.Error):
                total += each.memory_full_info().pss
    return total / (1 << 20)

"""The process in which code of the user's own runs: it is asked one thing, answers, and can be ended at any moment.

What it is asked comes pickled on its standard input; `READY` and the pickled answer go back on what was its standard
output, which the code itself finds replaced by standard error. Strings hash alike in all of them, so that the order of
a set of states is the same each time.
"""

from __future__ import annotations

import os
import pickle
import resource
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from checkers.verdict import Undecided
from harness.errors import HarnessError, UserError
from harness.own_code import OwnCode

READY: Final = b"ready\n"

_START_S: Final = 5.0
"""Beyond its limit a process may take so long to load the code and to pack its answer."""


class ChildQuestion(NamedTuple):
    """`ask(load, *arguments)` is what the process does, a function of a module of ours; `warm` compiles what it needs,
    for which no time counts."""

    code: OwnCode
    ask: Callable[..., Any]
    arguments: tuple[Any, ...]
    warm: Callable[[], Any] | None = None


def answer_of(question: ChildQuestion, time_s: float) -> Any:
    """The answer of a process of its own, which may take a quarter longer than `time_s` seconds.

    Raises UserError for what the code does wrong, and Undecided if it does not come to an end.
    """
    environment = os.environ | {"PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    limit_s = 1.25 * time_s + _START_S
    with subprocess.Popen(
        [sys.executable, "-m", __name__], 0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as process:
        try:
            data = _exchanged(process, pickle.dumps((question, limit_s)), limit_s)
        except subprocess.TimeoutExpired:
            raise Undecided(f"{question.code.file} did not come to an end within the limit of {time_s:g} s.") from None
        finally:
            process.kill()
    if not data:
        raise Undecided(f"The process that ran {question.code.file} died.")
    answer = pickle.loads(data)
    if isinstance(answer, UserError | Undecided | HarnessError):
        raise answer
    return answer


def _exchanged(process: subprocess.Popen[bytes], question: bytes, limit_s: float) -> bytes:
    assert process.stdin is not None and process.stdout is not None
    try:
        with os.fdopen(os.dup(process.stdin.fileno()), "wb") as pipe:
            pipe.write(question)
        process.stdin.close()
    except BrokenPipeError:
        return b""
    process.stdin = None
    if process.stdout.readline() != READY:
        return b""
    return process.communicate(timeout=limit_s)[0]


def main() -> None:
    """Answer the question on standard input."""
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)
        question, limit_s = pickle.load(sys.stdin.buffer)
        if question.warm is not None:
            question.warm()
        _end_by_itself(limit_s)
        out.write(READY)
        out.flush()
        try:
            answer = question.ask(question.code, *question.arguments)
        except (UserError, Undecided) as error:
            answer = error
        except Exception as error:  # noqa: BLE001 - a bug of ours, which the parent tells
            answer = HarnessError(f"{type(error).__name__}: {error}")
        pickle.dump(answer, out)


def _end_by_itself(limit_s: float) -> None:
    """End a loop that nobody waits for any more, since the parent was killed."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime + limit_s) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


if __name__ == "__main__":
    main()

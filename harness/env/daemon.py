"""A program kept on a machine as a daemon: shell text that starts, signals and observes it, with a pid file.

Pure text, so that it is the same over any shell. A pid counts only while one of its arguments is the program's marker:
a process id that was taken over by another program is not ours, nor is the shell that is about to become the program.
(That one only mentions the marker; and a process that is becoming another has no command line for a moment, so that
who counted it would then find the program dead, and start a second.) Commands that start or signal the program take
turns on its machine (`flock`), for one whose caller has given up may still be at work when the next one comes.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from harness.errors import HarnessError
from harness.protocols import ProcessState

STATE_WAIT_STEPS = 100
"""How many times a command looks again, 20 ms apart, whether a signal has taken effect."""


@dataclass(frozen=True, slots=True)
class Daemon:
    """A program on one machine: `marker` must be one of `argv`, a word that names this program alone."""

    argv: Sequence[str]
    marker: str
    pid_file: str
    log_file: str
    directory: str = "/"
    environment: Mapping[str, str] = field(default_factory=dict)


def start_command(daemon: Daemon) -> str:
    """Starts the program in a session of its own, unless it is running; prints its process id."""
    exports = "".join(f"export {name}={shlex.quote(value)}; " for name, value in sorted(daemon.environment.items()))
    launch = f"{exports}echo $$ > {shlex.quote(daemon.pid_file)}; exec {shlex.join(daemon.argv)}"
    log = shlex.quote(daemon.log_file)
    return (
        f"{_in_turn(daemon)}\n"
        f'if [ -n "$(live_pid)" ]; then live_pid; exit 0; fi\n'
        f"cd {shlex.quote(daemon.directory)} && mkdir -p $(dirname {log})\n"
        f"rm -f {shlex.quote(daemon.pid_file)}\n"
        f"setsid sh -c {shlex.quote(launch)} </dev/null >>{log} 2>&1 9>&- &\n"
        f"await_true '[ -n \"$(live_pid)\" ]' || {{ tail -n 5 {log} >&2; exit 1; }}\n"
        "live_pid"
    )


def kill_command(daemon: Daemon) -> str:
    """SIGKILL, and wait until the process is gone; no error if it was."""
    return f"{_in_turn(daemon)}\nsend KILL && await_true '[ -z \"$(live_pid)\" ]'"


def stop_command(daemon: Daemon) -> str:
    """SIGTERM (and SIGCONT, should it be paused), and SIGKILL if that does not end it in time."""
    return (
        f"{_in_turn(daemon)}\nsend TERM && send CONT && await_true '[ -z \"$(live_pid)\" ]' || "
        "{ send KILL && await_true '[ -z \"$(live_pid)\" ]'; }"
    )


def pause_command(daemon: Daemon) -> str:
    """SIGSTOP, and wait until the process is stopped."""
    return f"{_in_turn(daemon)}\nsend STOP && await_true '[ \"$(state)\" != running ]'"


def resume_command(daemon: Daemon) -> str:
    """SIGCONT, and wait until the process runs."""
    return f"{_in_turn(daemon)}\nsend CONT && await_true '[ \"$(state)\" != paused ]'"


def state_command(daemon: Daemon) -> str:
    """Prints `running`, `paused` or `dead`, from /proc."""
    return f"{_functions(daemon)}\nstate"


def parse_state(output: str) -> ProcessState:
    """The state that `state_command` printed."""
    try:
        return ProcessState(output.strip())
    except ValueError as error:
        raise HarnessError(f"a probe of a process answered {output.strip()[:80]!r}") from error


def _in_turn(daemon: Daemon) -> str:
    """The functions, once every command before this one has ended."""
    pid_file = shlex.quote(daemon.pid_file)
    return f"mkdir -p $(dirname {pid_file}); exec 9>>{pid_file}.turn; flock 9\n{_functions(daemon)}"


def _functions(daemon: Daemon) -> str:
    """`live_pid` prints the pid if the program lives (a zombie does not); `send` signals it if it does."""
    return f"""
live_pid() {{
    read -r pid 2>/dev/null <{shlex.quote(daemon.pid_file)} || return 0
    grep -qzxF -e {shlex.quote(daemon.marker)} "/proc/$pid/cmdline" 2>/dev/null && echo "$pid" || true
}}
letter() {{ sed 's/.*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null || echo X; }}
state() {{
    pid=$(live_pid)
    [ -n "$pid" ] || {{ echo dead; return; }}
    case "$(letter "$pid")" in T | t) echo paused ;; X | Z | '') echo dead ;; *) echo running ;; esac
}}
send() {{
    pid=$(live_pid)
    [ -z "$pid" ] || kill -"$1" "$pid" 2>/dev/null || true
}}
await_true() {{
    for _ in $(seq {STATE_WAIT_STEPS}); do eval "$1" && return 0; sleep 0.02; done
    return 1
}}
""".strip()

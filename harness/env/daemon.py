"""A program kept on a machine as a daemon: shell text that starts and signals it, with a pid file.

Pure text, so that it is the same over any shell. A pid counts only while one of its arguments is the program's marker:
a process id that was taken over by another program is not ours, nor is the shell that is about to become the program.
(That one only mentions the marker; and a process that is becoming another has no command line for a moment, so that
who counted it would then find the program dead, and start a second.) Commands that start or signal the program take
turns on its machine (`flock`), for one whose caller has given up may still be at work when the next one comes.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from harness.errors import HarnessError
from harness.ports.machines import ProcessState

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
        'if lives; then echo "$pid"; exit 0; fi\n'
        f"cd {shlex.quote(daemon.directory)} && {_directory_of(daemon.log_file)}\n"
        f"rm -f {shlex.quote(daemon.pid_file)}\n"
        f"setsid sh -c {shlex.quote(launch)} </dev/null >>{log} 2>&1 9>&- &\n"
        f"await_true lives || {{ tail -n 5 {log} >&2; exit 1; }}\n"
        'echo "$pid"'
    )


def kill_command(daemon: Daemon) -> str:
    """SIGKILL, and wait until the process is gone; no error if it was."""
    return f"{_in_turn(daemon)}\nsend KILL && await_true gone"


def stop_command(daemon: Daemon) -> str:
    """SIGTERM (and SIGCONT, should it be paused), and SIGKILL if that does not end it in time."""
    return f"{_in_turn(daemon)}\nsend TERM && send CONT && await_true gone || {{ send KILL && await_true gone; }}"


def pause_command(daemon: Daemon) -> str:
    """SIGSTOP, and wait until the process is stopped."""
    return f"{_in_turn(daemon)}\nsend STOP && await_true rests"


def resume_command(daemon: Daemon) -> str:
    """SIGCONT, and wait until the process runs."""
    return f"{_in_turn(daemon)}\nsend CONT && await_true goes_on"


def state_question(daemon: Daemon) -> Mapping[str, str]:
    """What a node's probe agent is asked about the program."""
    return {"process": daemon.pid_file, "marker": daemon.marker}


def parse_state(answer: str) -> ProcessState:
    """The state that it answered."""
    try:
        return ProcessState(answer)
    except ValueError as error:
        raise HarnessError(f"a probe of a process answered {answer[:80]!r}") from error


def _directory_of(file: str) -> str:
    """Shell text that makes the directory of a file, if it is not there."""
    directory = shlex.quote(posixpath.dirname(file) or "/")
    return f"{{ [ -d {directory} ] || mkdir -p {directory}; }}"


def _in_turn(daemon: Daemon) -> str:
    """The functions, once every command before this one has ended."""
    turn = shlex.quote(f"{daemon.pid_file}.turn")
    return f"{_directory_of(daemon.pid_file)}; exec 9>>{turn}; flock 9\n{_functions(daemon)}"


def _functions(daemon: Daemon) -> str:
    """`lives` and `gone` say whether the program lives (a zombie does not), and set `pid`; `send` signals it if it
    does, and `rests` and `goes_on` say whether that has stopped it, or let it go on.

    Programs are started as seldom as can be: where a node is busy each costs milliseconds.
    """
    return f"""
lives() {{
    pid=
    read -r pid 2>/dev/null <{shlex.quote(daemon.pid_file)} || pid=
    [ -n "$pid" ] && grep -qzxF -e {shlex.quote(daemon.marker)} "/proc/$pid/cmdline" 2>/dev/null && return 0
    pid=
    return 1
}}
gone() {{ ! lives; }}
send() {{ gone || kill -"$1" "$pid" 2>/dev/null || true; }}
letter() {{
    letter=X
    [ -n "$pid" ] && read -r letter 2>/dev/null <"/proc/$pid/stat" || return 0
    letter=${{letter##*) }}
    letter=${{letter%% *}}
}}
rests() {{ letter; case $letter in T | t | X | Z) ;; *) return 1 ;; esac; }}
goes_on() {{ letter; case $letter in T | t) return 1 ;; esac; }}
await_true() {{
    left={STATE_WAIT_STEPS}
    until "$1"; do
        [ "$left" -gt 0 ] || return 1
        left=$((left - 1))
        sleep 0.02
    done
}}
""".strip()

"""A program kept on a machine as a daemon (`harness.ports.machines.Daemon`): shell text that starts and signals it.

Pure text, so that it is the same over any shell. A daemon is known by its process id *and* the time at which that
process began, both noted as it is launched: an id that another program was given later is not ours, and a program may
call itself what it likes. To it belong all its children: those that descend from it, those of the session that it
leads, and those that carry its variable in their environment, so that neither a double fork nor a session of their own
(PostgreSQL's backends) takes them away. Commands that start or signal it take turns on its machine (`flock`), for one
whose caller has given up may still be at work when the next one comes.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Mapping
from typing import Any

from harness.errors import HarnessError
from harness.ports.machines import Daemon, ProcessState

OWNER_VARIABLE = "ASSAY_DAEMON"
"""By its value, the pid file's path, a process is told to be of a daemon."""

STATE_WAIT_S = 10
"""For so long a command looks again, 20 ms apart, whether a signal has taken effect."""

GRACE_S = 10
"""For so long before a program that does not end gracefully is killed. A command has to end before its time is over
(`harness.env.ssh.COMMAND_TIMEOUT_S`), and each look may be slow where the machine is busy."""


def start_command(daemon: Daemon) -> str:
    """Starts the program in a session of its own, unless it is running; prints its process id."""
    variables = {**daemon.environment, OWNER_VARIABLE: daemon.pid_file}
    exports = "".join(f"export {name}={shlex.quote(value)}; " for name, value in sorted(variables.items()))
    note = f'read -r stat </proc/$$/stat; set -- ${{stat##*) }}; echo "$$ ${{20}}" > {shlex.quote(daemon.pid_file)}; '
    run_as = "" if daemon.user == "root" else shlex.join(_run_as(daemon.user)) + " "
    launch = f"{exports}{note}exec {run_as}{shlex.join(daemon.argv)}"
    log = shlex.quote(daemon.log_file)
    return (
        f"{_in_turn(daemon)}\n"
        'if lives; then echo "$pid"; exit 0; fi\n'
        f"cd {shlex.quote(daemon.directory)} && {_directory_of(daemon.log_file)}\n"
        f"rm -f {shlex.quote(daemon.pid_file)}\n"
        f"setsid sh -c {shlex.quote(launch)} </dev/null >>{log} 2>&1 9>&- &\n"
        f"await_true noted && launched || {{ tail -n 5 {log} >&2; exit 1; }}\n"
        'echo "$pid"'
    )


def _run_as(user: str) -> tuple[str, ...]:
    return ("setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups")


def kill_command(daemon: Daemon) -> str:
    """SIGKILL to all its processes, and wait until they are gone; no error if they were."""
    return f"{_in_turn(daemon)}\nend_all KILL {STATE_WAIT_S}"


def stop_command(daemon: Daemon) -> str:
    """Its stop signal to the program (and SIGCONT, should it be paused), and SIGKILL to what has not ended in time."""
    return (
        f"{_in_turn(daemon)}\nmembers; lives && kill -{daemon.stop_signal} $pid 2>/dev/null; each CONT\n"
        f"within {GRACE_S}; until gone || late; do sleep 0.02; done\n"
        f"end_all KILL {STATE_WAIT_S}"
    )


def pause_command(daemon: Daemon) -> str:
    """SIGSTOP to all its processes, and wait until all are stopped."""
    return f"{_in_turn(daemon)}\nawait_true all_rest"


def resume_command(daemon: Daemon) -> str:
    """SIGCONT to all its processes, and wait until none is stopped."""
    return f"{_in_turn(daemon)}\nawait_true all_go_on"


def question_about(daemon: Daemon) -> Mapping[str, str]:
    """What a node's probe agent is asked about the program."""
    return {"process": daemon.pid_file, "owner": OWNER_VARIABLE}


def parse_state(answer: Any) -> ProcessState:
    """The state that it answered."""
    try:
        return ProcessState(answer["state"])
    except (KeyError, TypeError, ValueError) as error:
        raise HarnessError(f"a probe of a process answered {str(answer)[:80]!r}") from error


def parse_incarnation(answer: Any) -> int | None:
    """When the program itself began; None if it does not run."""
    began = answer.get("began") if isinstance(answer, dict) else answer
    if began is not None and not isinstance(began, int):
        raise HarnessError(f"a probe of a process answered {str(answer)[:80]!r}")
    return began


def _directory_of(file: str) -> str:
    """Shell text that makes the directory of a file, if it is not there."""
    directory = shlex.quote(posixpath.dirname(file) or "/")
    return f"{{ [ -d {directory} ] || mkdir -p {directory}; }}"


def _in_turn(daemon: Daemon) -> str:
    """The functions, once every command before this one has ended."""
    turn = shlex.quote(f"{daemon.pid_file}.turn")
    return f"{_directory_of(daemon.pid_file)}; exec 9>>{turn}; flock 9\n{_functions(daemon)}"


def _functions(daemon: Daemon) -> str:
    """What commands are made of: of `_finding` and `_signalling`. Programs are started as seldom as can be: where a
    node is busy each costs milliseconds."""
    owner = shlex.quote(f"{OWNER_VARIABLE}={daemon.pid_file}")
    return f"{_finding(shlex.quote(daemon.pid_file), owner)}\n{_signalling()}"


def _finding(pid_file: str, owner: str) -> str:
    """`lives` says whether the program itself does (a zombie does not), and sets `pid`, and `session`, which is its own
    unless its id is another's by now. `members` finds all its living processes, as `all`, those of them that are
    stopped, as `stopped`, and those that are not, as `going`, by one look at every process: a pass over those known
    grows the tree by a generation, and it is whole when a pass adds none."""
    return f"""
noted() {{ pid= began=; read -r pid began 2>/dev/null <{pid_file} || return 1; }}
lives() {{
    session=none
    noted || return 1
    session=$pid
    read -r stat 2>/dev/null <"/proc/$pid/stat" || {{ pid=; return 1; }}
    set -- ${{stat##*) }}
    [ "${{20}}" = "$began" ] || {{ pid= session=none; return 1; }}
    case $1 in X | Z) pid=; return 1 ;; esac
}}
launched() {{ sleep 0.05; lives; }}
members() {{
    lives
    all=" $(grep -lsxzF -e {owner} /proc/[0-9]*/environ | sed 's,/proc/,,; s,/environ,,' | tr '\\n' ' ')${{pid}} "
    table=
    for file in /proc/[0-9]*/stat; do
        read -r stat 2>/dev/null <"$file" || continue
        id=${{stat%% *}}
        set -- ${{stat##*) }}
        table="$table$id $1 $2
"
        [ "$4" = "$session" ] && case $all in *" $id "*) ;; *) all="$all$id " ;; esac
    done
    grown=1
    while [ -n "$grown" ]; do
        grown=
        while read -r id letter parent; do
            case $all in *" ${{id:-none}} "*) continue ;; *" ${{parent:-none}} "*) all="$all$id "; grown=1 ;; esac
        done <<TABLE
$table
TABLE
    done
    found=$all all= stopped= going=
    while read -r id letter parent; do
        case $found in *" ${{id:-none}} "*) ;; *) continue ;; esac
        case $letter in X | Z) continue ;; T | t) stopped="$stopped $id" ;; *) going="$going $id" ;; esac
        all="$all $id"
    done <<TABLE
$table
TABLE
}}
""".strip()


def _signalling() -> str:
    """`within` notes until when, and `late` says whether that is over (by the machine's seconds since its start);
    `each` signals all, `end_all` until none is left; `all_rest` and `all_go_on` stop them, and let them go on, and
    say whether all did; `await_true` asks again until a condition holds."""
    return f"""
within() {{ read -r up rest </proc/uptime; until_s=$((${{up%.*}} + $1)); }}
late() {{ read -r up rest </proc/uptime; [ "${{up%.*}}" -ge $until_s ]; }}
each() {{ [ -z "$all" ] || kill -"$1" $all 2>/dev/null || true; }}
gone() {{ members; [ -z "$all" ]; }}
end_all() {{
    within "$2"
    until gone; do
        each "$1"
        late && return 1
        sleep 0.02
    done
}}
all_rest() {{ members; [ -z "$going" ] || {{ kill -STOP $going 2>/dev/null; members; [ -z "$going" ]; }}; }}
all_go_on() {{ members; [ -z "$stopped" ] || {{ kill -CONT $stopped 2>/dev/null; members; [ -z "$stopped" ]; }}; }}
await_true() {{
    within {STATE_WAIT_S}
    until "$1"; do
        late && return 1
        sleep 0.02
    done
}}
""".strip()

"""The Spark session: on this machine, or on the cluster that the user names, with nothing set that would overrule him
but what a right verdict needs.

Spark loads some ten thousand classes, which takes most of a short session's work. So a local session's JVM writes an
archive of them as it ends, and later ones map it. It is named after the JVM and Spark; the JVM itself refuses an
archive that does not fit its jars and goes on without.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

from checkers.compile_cache import cache_base
from harness.atomic_write import scratch_file
from harness.errors import UserError

SPARK_MAJOR: Final = 4
"""The major version that the engine is written for."""

SPARK_MINOR: Final = 1
"""The first minor version that it takes: `repartitionById` came with it."""

_COMPILED_AFTER: Final = {
    "Tier4InvocationThreshold": 100_000,
    "Tier4MinInvocationThreshold": 10_000,
    "Tier4CompileThreshold": 200_000,
    "Tier4BackEdgeThreshold": 1_000_000,
}
"""The JVM's optimising compiler waits for loops over data; by default it also takes to the planning of queries, which
costs short sessions more than all their work."""

_HIDING: Final = (
    *("spark.sql.files.ignoreCorruptFiles", "spark.sql.files.ignoreMissingFiles"),
    *("spark.files.ignoreCorruptFiles", "spark.files.ignoreMissingFiles"),
)
EXECUTOR: Final = "ASSAY_EXECUTOR"
"""Set in the environment of a cluster's workers."""

_UNPACKED: Final = "assay-pack"
"""The directory in which executors find their archive."""

_ANSWER_S: Final = 10.0
_EXECUTORS_S: Final = 60.0
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """Where Spark judges: `master` as of spark-submit (None: what spark-submit says, else all cores of this machine),
    more `settings` of Spark's own, and the `archive` of `assay pack` from which executors run."""

    master: str | None = None
    settings: tuple[tuple[str, str], ...] = ()
    archive: Path | None = None

    @property
    def names_a_master(self) -> bool:
        return self.master is not None or "spark.master" in dict(self.settings)


def check_java() -> Path:
    """The Java runtime that Spark will use; raises UserError unless there is one that starts."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise UserError("The Spark engine needs a Java runtime (17 or newer): install one or use --engine local.")
    version = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    if version.returncode != 0:
        raise UserError(f"The Java runtime {java} does not start: repair it or use --engine local.")
    return Path(java)


def start_session(options: SparkOptions) -> Any:
    """A quiet session; raises UserError without Java and for a cluster or settings that can't judge."""
    if options.archive is not None and not options.archive.is_file():
        raise UserError(f"There is no archive {options.archive}; `assay pack` makes one.")
    java = check_java()
    logging.getLogger("py4j").setLevel(logging.ERROR)
    stated = _submitted() | dict(options.settings)
    master = options.master or stated.get("spark.master") or "local[*]"
    refuse_settings(master, stated)
    local = master.startswith("local")
    settings = session_settings(master, stated, options.archive, None if _is_submitted() else java)
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    else:
        _require_own_jvm()
        require_answer(master)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYSPARK_PYTHON"] = _workers_python(local, options.archive, stated)
    others = _running()
    session = _quiet_start(settings)
    context = session.sparkContext
    context._accumulatorServer.handle_error = _say_nothing
    _users[context] = _users.get(context, int(others)) + 1
    try:
        _require_version(session.version)
        refuse_hiding(dict(session.conf.getAll))  # with what spark-defaults.conf says, or who had the session before us
        if not local:
            _await_executors(session, master, settings)
    except BaseException:
        stop_session(session)
        raise
    return session


_users: Final[WeakKeyDictionary[Any, int]] = WeakKeyDictionary()
"""How many use the session of a context in this process: engines, and who had it before them."""


def _say_nothing(*_: object) -> None:
    """What PySpark's listener for accumulators says of a connection that broke, as when the JVM dies: it would be a
    traceback on standard error, beside our sentence."""


def _running() -> bool:
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None


_BIND_ADDRESS: Final = "spark.driver.bindAddress"
_LOOPBACK: Final = "127.0.0.1"


def _require_own_jvm() -> None:
    """A process has one JVM, whatever session it starts: what the first was told of addresses stays."""
    from pyspark import SparkContext

    jvm: Any = SparkContext._jvm
    if jvm is not None and not _is_submitted() and jvm.java.lang.System.getProperty(_BIND_ADDRESS) == _LOOPBACK:
        raise UserError(
            "This process has had a local Spark session, whose JVM no worker of a cluster can reach: judge there in "
            "another process."
        )


def stop_session(session: Any) -> None:
    """Stop a session once nobody uses it any more: not while another engine does, nor if it was there before us.

    One whose JVM died is over already.
    """
    from py4j.protocol import Py4JError

    context = session.sparkContext
    _users[context] -= 1
    if _users[context] <= 0:
        del _users[context]
        with suppress(OSError, Py4JError):
            session.stop()


def session_settings(master: str, stated: Mapping[str, str], archive: Path | None, java: Path | None) -> dict[str, str]:
    """The settings of a session at `master`: what was stated, for what that leaves open our defaults, and over it only
    what a right verdict takes. `java` is what its JVM will be started with, None where spark-submit has started it."""
    ours: dict[str, str] = {}
    if not master.startswith("local"):
        ours = _cluster_settings(archive)
    elif java is not None:
        ours = _local_settings(java)
    return _defaults() | ours | dict(stated) | _FIXED | {"spark.master": master}


_FIXED: Final = {
    "spark.sql.adaptive.enabled": "false",  # parts are planned by their contents, and must stay as planned
    "spark.sql.execution.arrow.maxRecordsPerBatch": "131072",
    "spark.sql.session.timeZone": "UTC",
    "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
}


def _defaults() -> dict[str, str]:
    return {
        "spark.app.name": "assay",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.shuffle.compress": "true",
        "spark.python.worker.reuse": "true",
    }


def _local_settings(java: Path) -> dict[str, str]:
    return {
        "spark.driver.memory": f"{local_heap_mib(machine_memory())}m",
        _BIND_ADDRESS: _LOOPBACK,
        "spark.driver.extraJavaOptions": _jvm_options(java),
    }


def _cluster_settings(archive: Path | None) -> dict[str, str]:
    """Python's part of an executor's memory lies outside its heap: about a GiB for each task."""
    planned = {"spark.executor.memory": "2g", "spark.executor.memoryOverheadFactor": "0.8"}
    planned |= {f"spark.executorEnv.{EXECUTOR}": "1"}
    if archive is None:
        return planned
    return planned | {"spark.archives": f"{archive.resolve()}#{_UNPACKED}"}


def _workers_python(local: bool, archive: Path | None, stated: Mapping[str, str]) -> str:
    """The interpreter of workers: the archive's, or what the user chose, or this very one."""
    if local:
        return stated.get("spark.pyspark.python") or sys.executable
    if archive is not None:
        return f"./{_UNPACKED}/bin/python3"
    return stated.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or sys.executable


def machine_memory() -> int:
    """Bytes of the machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def local_heap_mib(memory: int) -> int:
    """The JVM's heap on a machine with that much memory: the most lies in Python's processes, which hold the
    columns."""
    return max(1024, min(memory // 12 // _MIB, 8192))


def planned_task_bytes(settings: Mapping[str, str], cores: int, executors: int, memory: int) -> int:
    """Bytes for Python in one task: locally three quarters of the machine's `memory` besides the heap,
    else what an executor has outside its heap, shared by the tasks that run at once (`cores` in all)."""
    if settings.get("spark.master", "").startswith("local"):
        heap = _bytes_of(settings.get("spark.driver.memory", "1g"))
        return max(0, memory - heap) * 3 // 4 // max(1, cores)
    heap = _bytes_of(settings.get("spark.executor.memory", "1g"))
    factor = float(settings.get("spark.executor.memoryOverheadFactor", "0.1"))
    overhead = _bytes_of(settings.get("spark.executor.memoryOverhead", f"{max(384, int(heap * factor) // _MIB)}m"))
    own = _bytes_of(settings.get("spark.executor.pyspark.memory", "0"))
    each = int(settings.get("spark.executor.cores", -(-cores // max(1, executors))))
    return (overhead + own) // max(1, each)


_UNITS: Final = {"b": 1, "k": 1 << 10, "m": _MIB, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}


def _bytes_of(text: str) -> int:
    """A size as Spark's settings of memory have it: of MiB unless it says otherwise."""
    found = re.fullmatch(r"(\d+)([bkmgtp]?)b?", text.strip().lower())
    return int(found[1]) * _UNITS[found[2] or "m"] if found else 0


def _is_submitted() -> bool:
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _submitted() -> dict[str, str]:
    """What spark-submit was told, if it started this process."""
    if not _is_submitted():
        return {}
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def refuse_settings(master: str, settings: Mapping[str, str]) -> None:
    """Raise UserError for what could make a verdict wrong, or can't judge at all."""
    import pyspark

    _require_version(pyspark.__version__)
    connect = master.startswith("sc://") or "spark.remote" in settings or "SPARK_REMOTE" in os.environ
    if connect or settings.get("spark.api.mode") == "connect":
        raise UserError("Spark Connect can't judge yet; name the master itself, such as spark://HOST:7077 or yarn.")
    if not re.match(r"local(\[[\d*]+(,\d+)?\])?$|local-cluster\[|spark://.+:\d+|yarn$|k8s://", master):
        raise UserError(f"--spark-master takes local[*], spark://HOST:PORT, yarn or k8s://URL, not {master!r}.")
    refuse_hiding(settings)
    if settings.get("spark.sql.adaptive.enabled", "false").lower() == "true" and not _is_submitted():
        raise UserError("spark.sql.adaptive.enabled would move rows that have to stay together: leave it off.")


def refuse_hiding(settings: Mapping[str, str]) -> None:
    """Raise UserError for settings with which Spark passes over files that it can't read."""
    for name in _HIDING:
        if settings.get(name, "false").strip().lower() == "true":
            raise UserError(f"{name} hides damage, and what it hides could make a broken history valid: leave it off.")


def setting_of(text: str) -> tuple[str, str]:
    """KEY=VALUE of --spark-conf as a pair; raises UserError for what is none."""
    name, equals, value = text.partition("=")
    if not equals or not name.startswith("spark."):
        raise UserError(f"--spark-conf takes spark.NAME=VALUE, not {text!r}.")
    return name, value


def _require_version(version: str) -> None:
    major, minor, *_ = (*map(int, re.findall(r"\d+", version)), 0, 0)
    if major != SPARK_MAJOR or minor < SPARK_MINOR:
        least = f"{SPARK_MAJOR}.{SPARK_MINOR}"
        raise UserError(f"assay judges on Spark {least} or a later {SPARK_MAJOR}; this is Spark {version}.")


def require_answer(master: str) -> None:
    """Raise UserError if a standalone master can't be reached, for Spark itself would try for a minute, or if nothing
    says where the cluster is."""
    errors = []
    if master == "yarn" and not {"HADOOP_CONF_DIR", "YARN_CONF_DIR"} & os.environ.keys() and not _is_submitted():
        raise UserError("--spark-master yarn takes HADOOP_CONF_DIR, the folder of the cluster's yarn-site.xml.")
    if not master.startswith("spark://"):
        return
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _ANSWER_S).close()
        except (OSError, ValueError) as error:
            errors.append(f"{place}: {getattr(error, 'strerror', None) or error or type(error).__name__}")
        else:
            return
    raise UserError(f"The Spark master {master} does not answer ({'; '.join(errors)}).")


def _await_executors(session: Any, master: str, settings: Mapping[str, str]) -> None:
    """Until a worker has room for us: Spark itself would wait for ever."""
    context, end = session.sparkContext, time.monotonic() + _EXECUTORS_S
    while True:
        if context._jsc is None or context._jsc.sc().isStopped():
            raise UserError(f"The Spark master {master} does not take us on; is it of Spark {session.version}?")
        if len(context._jsc.sc().statusTracker().getExecutorInfos()) > 1:
            return
        if time.monotonic() > end:
            heap = settings["spark.executor.memory"]
            raise UserError(
                f"No worker of {master} starts an executor with a heap of {heap} within {_EXECUTORS_S:.0f} s."
            )
        time.sleep(0.1)


def _jvm_options(java: Path) -> str:
    import pyspark

    log_settings = (Path(__file__).parent / "log4j2.properties").resolve().as_uri()
    archive = archive_options(java, Path(pyspark.__file__).parent)
    compiler = [f"-XX:{name}={count}" for name, count in _COMPILED_AFTER.items()]
    return " ".join((f"-Dlog4j2.configurationFile={log_settings}", "-XX:+UseParallelGC", *compiler, *archive))


def _quiet_start(settings: Mapping[str, str]) -> Any:
    """Start with what the JVM says on standard output and error held back; it is looked at only if the start fails.

    Spark takes SIGINT for itself; it is given back, so that ctrl-c ends a run in order while Spark judges it.
    """
    from pyspark.sql import SparkSession

    on_interrupt = signal.getsignal(signal.SIGINT)
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    sys.stdout.flush()
    sys.stderr.flush()
    with scratch_file() as chatter:
        kept = {stream: os.dup(stream) for stream in (1, 2)}
        for stream in kept:
            os.dup2(chatter.fileno(), stream)
        try:
            session = builder.getOrCreate()
            session.sparkContext.setLogLevel("OFF")
            return session
        except Exception as error:
            chatter.seek(0)
            said = f"{error}\n{chatter.read().decode(errors='replace')}"
            raise UserError(f"Spark does not start on {settings['spark.master']}: {why_not_started(said)}.") from error
        finally:
            for stream, before in kept.items():
                os.dup2(before, stream)
                os.close(before)
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGINT, on_interrupt)


def why_not_started(said: str) -> str:
    """What a JVM says of why it gave up, without the places in its code: the innermost cause that has words."""
    for pattern in (
        r"^# (There is insufficient memory .+)$",
        r"^Caused by: [\w.$]+: (.+)$",
        r"^(?:Exception in thread .*?|: )[\w.$]+: (.+)$",
        r" ERROR \S+ (.+)$",
    ):
        if found := re.findall(pattern, said, re.MULTILINE):
            return str(found[-1]).strip().rstrip(".")
    lines = [line.strip() for line in said.splitlines() if line.strip() and not _CHATTER.match(line)]
    return re.sub(r"^\[[A-Z_.]+\] ", "", lines[-1]).rstrip(".") if lines else "it says nothing"


_CHATTER: Final = re.compile(
    r"\tat |Error: |\S+/spark-class: line |\s*(?:WARNING\b|.* (?:VM warning:|WARN |INFO )|Using Spark's default)"
)
"""Lines that say nothing of why a JVM died."""


_USE_ARCHIVE: Final = "give them an archive of `assay pack` with --spark-archive."

_WORKERS_FAULTS: Final[tuple[tuple[str, Callable[[re.Match[str]], str]], ...]] = (
    (
        r"Python in worker has different version: ([\d.]+).*?driver: ([\d.]+)",
        lambda found: f"The workers' Python is {found[1]}, the driver's {found[2]}; {_USE_ARCHIVE}",
    ),
    (
        r"Cannot run program \"([^\"]+)\"",
        lambda found: f"The workers have no {found[1]}; {_USE_ARCHIVE}",
    ),
    (
        r"ModuleNotFoundError: No module named '([^']+)'",
        lambda found: f"The workers' Python lacks {found[1]}; {_USE_ARCHIVE}",
    ),
    (
        r"Answer from Java side is empty|Error while sending or receiving|^\[Errno (?:32|104|111)\]",
        lambda found: "Spark's own process on this machine died, perhaps for want of memory (spark.driver.memory).",
    ),
    (r"No space left on device", lambda found: "A worker's disk for spilled data is full (spark.local.dir)."),
    (
        r"(?:PermissionError|AccessControlException|AccessDenied|[^\n]*ACCESS_DENIED)[^\n]*",
        lambda found: f"A worker may not read the history: {found[0]}.",
    ),
    (
        r"Python worker exited unexpectedly|Python worker process terminated",
        lambda found: "A worker's Python died, perhaps for want of memory (spark.executor.memoryOverhead).",
    ),
    (
        r"ExecutorLostFailure|Executor heartbeat timed out|Remote RPC client disassociated",
        lambda found: "Executors of the Spark cluster were lost again and again (their logs say why).",
    ),
    (
        r"FileNotFoundError: ([^\n]*)",
        lambda found: f"A worker can't find a part of the history: {found[1]}.",
    ),
)


def worker_fault(error: BaseException) -> UserError | None:
    """The sentence on what workers of a cluster died of, where the user can mend it."""
    text = str(error)
    for pattern, sentence in _WORKERS_FAULTS:
        if found := re.search(pattern, text, re.DOTALL):
            return UserError(sentence(found))
    if "SparkContext was shut down" in text or "stopped SparkContext" in text:
        return UserError("The Spark cluster ended our session (is the master still there?); nothing was judged.")
    if type(error).__module__.startswith(("pyspark.", "py4j.")) and "Traceback (most recent call last)" not in text:
        return UserError(f"Spark could not judge: {why_not_started(text)}.")  # none of ours: its settings, mostly
    return None


_MAGIC: Final = (0xF00BABA8).to_bytes(4, "little")
"""Begins a whole archive; the JVM writes it last."""

_ABANDONED_S: Final = 3600
"""When an archive that is not whole is taken for one that never will be."""


_ON_CLASS_PATH: Final = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR")
"""Directories that Spark puts on its class path, of which a JVM with files in them makes no archive."""


def archive_options(java: Path, spark: Path) -> list[str]:
    """Options for a JVM that runs Spark (the directory of its package): use the archive, or make it."""
    if any(os.environ.get(name) for name in _ON_CLASS_PATH):
        return ["-Xlog:disable"]
    archive = cache_base() / f"spark-{_digest(java.resolve(), spark)}.jsa"
    for part in archive.parent.glob(f"{archive.stem}.*.part"):
        _adopt(part, archive)
    if archive.exists():
        return ["-Xlog:disable", f'"-XX:SharedArchiveFile={archive}"']
    return ["-Xlog:disable", f'"-XX:ArchiveClassesAtExit={archive.with_suffix(f".{os.getpid()}.part")}"']


def _digest(*places: Path) -> str:
    stamps = [f"{place} {place.stat().st_mtime_ns}" for place in places]
    return hashlib.blake2b("\n".join(stamps).encode(), digest_size=6).hexdigest()


def _adopt(part: Path, archive: Path) -> None:
    """Put a whole archive in its place and remove an abandoned one."""
    try:
        with part.open("rb") as file:
            whole = file.read(len(_MAGIC)) == _MAGIC
        if whole:
            part.replace(archive)
        elif time.time() - part.stat().st_mtime > _ABANDONED_S:
            part.unlink()
    except FileNotFoundError:
        return  # another process took it

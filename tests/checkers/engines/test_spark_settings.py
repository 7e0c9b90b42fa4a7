"""Where Spark judges is the user's choice; what could make a verdict wrong, or can't judge, is refused."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import IllegalArgumentException, PythonException

from assay.check_command import spark_options
from checkers.api import choose_engine
from checkers.engines import session, spark
from checkers.engines.session import (
    SparkOptions,
    local_heap_mib,
    refuse_settings,
    require_answer,
    session_settings,
    setting_of,
    start_session,
    why_not_started,
    worker_fault,
)
from checkers.engines.spark import SparkEngine
from checkers.importers.detect import open_source
from checkers.made.examples import EXAMPLES
from harness.errors import UserError

GIB = 1 << 30
EXAMPLE = EXAMPLES / "register" / "stale-read.edn"


@pytest.mark.parametrize("name", ["ignoreCorruptFiles", "ignoreMissingFiles"])
@pytest.mark.parametrize("kind", ["spark.sql.files", "spark.files"])
def test_what_hides_damage_is_refused(kind: str, name: str) -> None:
    refuse_settings("local[*]", {f"{kind}.{name}": "false"})
    with pytest.raises(UserError, match="hides damage"):
        refuse_settings("local[*]", {f"{kind}.{name}": "TRUE"})


@pytest.mark.parametrize("master", ["local", "local[4]", "local[*]", "local[*,3]", "spark://a:7077,b:7077", "yarn"])
def test_masters_that_can_judge(master: str) -> None:
    refuse_settings(master, {})


@pytest.mark.parametrize(
    ("master", "settings", "sentence"),
    [
        ("sc://host:15002", {}, "Spark Connect can't judge yet"),
        ("local[*]", {"spark.remote": "sc://host"}, "Spark Connect can't judge yet"),
        ("yarn", {"spark.api.mode": "connect"}, "Spark Connect can't judge yet"),
        ("mesos://host:5050", {}, "--spark-master takes"),
        ("spark://host", {}, "--spark-master takes"),
        ("yarn", {"spark.sql.adaptive.enabled": "true"}, "have to stay together"),
    ],
)
def test_what_can_not_judge_is_refused(master: str, settings: dict[str, str], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        refuse_settings(master, settings)


def refusal(variable: str, place: Path) -> str:
    """The one sentence with which the command does not judge on Spark, where a variable of its surroundings is so."""
    command = [sys.executable, "-m", "assay.cli", "check", EXAMPLE, "--model", "register", "--engine", "spark"]
    setting = {**os.environ, variable: str(place)}
    ran = subprocess.run(command, capture_output=True, text=True, env=setting, check=False)
    assert (ran.returncode, ran.stdout) == (254, "")
    (line,) = ran.stderr.splitlines()
    return line


@pytest.mark.spark
def test_what_hides_damage_is_refused_wherever_it_is_set(tmp_path: Path) -> None:
    """Spark's own file of settings is read by its JVM, which the command line knows nothing of."""
    (tmp_path / "spark-defaults.conf").write_text("spark.sql.files.ignoreCorruptFiles true\n")
    line = refusal("SPARK_CONF_DIR", tmp_path)
    assert "spark.sql.files.ignoreCorruptFiles hides damage" in line


@pytest.mark.parametrize("version", ["3.5.1", "4.0.2", "5.1.0", "4"])
def test_another_version_of_spark_is_refused(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.__version__", version)
    with pytest.raises(UserError, match=rf"judges on Spark 4\.1 or a later 4; this is Spark {re.escape(version)}\."):
        refuse_settings("local[*]", {})


def test_later_minor_versions_of_spark_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.__version__", "4.1.0")
    refuse_settings("local[*]", {})
    monkeypatch.setattr("pyspark.__version__", "4.12.0.dev1")
    refuse_settings("local[*]", {})


def test_a_master_that_does_not_answer_is_told_at_once() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=rf"spark://127\.0\.0\.1:{port} does not answer \(.*[Rr]efused"):
            require_answer(f"spark://127.0.0.1:{port}")
        taken.listen()
        require_answer(f"spark://127.0.0.1:1,127.0.0.1:{port}")  # the other one may be the standby
    require_answer("local[*]")


def test_yarn_takes_the_settings_of_its_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.delenv("YARN_CONF_DIR", raising=False)
    with pytest.raises(UserError, match="takes HADOOP_CONF_DIR"):
        require_answer("yarn")
    monkeypatch.setenv("YARN_CONF_DIR", "/etc/hadoop")
    require_answer("yarn")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            "26/11/22 19:09:37 ERROR SparkContext: Error initializing SparkContext.\nio.k8s.Exception: An error.\n"
            "\tat io.k8s.Launder(A.java:1)\nCaused by: java.io.IOException: Connection refused: /10.0.0.1:6443\n"
            "\tat io.k8s.Wait(B.java:2)\nCaused by: java.nio.Wordless\n\tat C.java",
            "Connection refused: /10.0.0.1:6443",
        ),
        (
            'WARNING: incubator\nException in thread "main" org.apache.spark.SparkException: Master must be set.\n'
            "\tat org.apache.spark.deploy.SparkSubmit.main(SparkSubmit.scala)\n[JAVA_GATEWAY_EXITED] It exited",
            "Master must be set",
        ),
        (
            "[JAVA_GATEWAY_EXITED] It exited\nInvalid maximum heap size: -Xmxa lot\nError: A fatal exception.",
            "Invalid maximum heap size: -Xmxa lot",
        ),
        (
            "[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number.\n"
            "WARNING: Using incubator modules: jdk.incubator.vector\n"
            "OpenJDK 64-Bit Server VM warning: Sharing is only supported for boot loader classes\n"
            "26/11/22 19:09:37 WARN Utils: Your hostname resolves to a loopback address",
            "Java gateway process exited before sending its port number",
        ),
        (
            "[JAVA_GATEWAY_EXITED] It exited.\n#\n# There is insufficient memory for the Java Runtime Environment to "
            "continue.\n# Native memory allocation (mmap) failed to map 9 bytes\n# An error report file is saved as:\n"
            "# /tmp/hs_err_pid9.log",
            "There is insufficient memory for the Java Runtime Environment to continue",
        ),
        ("", "it says nothing"),
    ],
)
def test_why_spark_does_not_start_is_one_sentence(said: str, reason: str) -> None:
    assert why_not_started(said) == reason


def cluster(stopped: bool, executors: int) -> Any:
    """A session on a cluster that has taken us on, or not, with `executors` besides the driver's own."""
    tracker = SimpleNamespace(getExecutorInfos=lambda: [None] * (1 + executors))
    spark = SimpleNamespace(isStopped=lambda: stopped, statusTracker=lambda: tracker)
    return SimpleNamespace(version="4.1.0", sparkContext=SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: spark)))


def test_a_cluster_of_another_spark_or_without_room_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A master of another Spark lets the application fail; one without workers lets it wait for ever."""
    monkeypatch.setattr(session, "_EXECUTORS_S", -1.0)
    settings = {"spark.executor.memory": "2g"}
    with pytest.raises(UserError, match=r"spark://m:7077 does not take us on; is it of Spark 4\.1\.0\?"):
        session._await_executors(cluster(True, 0), "spark://m:7077", settings)
    with pytest.raises(UserError, match=r"No worker of spark://m:7077 starts an executor with a heap of 2g within"):
        session._await_executors(cluster(False, 0), "spark://m:7077", settings)
    session._await_executors(cluster(False, 1), "spark://m:7077", settings)


def test_what_a_cluster_refuses_is_not_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def refuse(options: SparkOptions) -> None:
        asked.append(options)
        raise UserError("No worker of spark://m:7077 starts an executor")

    monkeypatch.setattr(spark, "start_session", refuse)
    engine = SparkEngine(SparkOptions("spark://m:7077"))
    for _ in range(3):
        with pytest.raises(UserError, match="starts an executor"):
            assert engine.cores
    assert len(asked) == 1


JAVA_THAT_DIES = """#!/bin/sh
[ "$1" = -version ] && exit 0
case "$*" in *launcher.Main*) {launcher} ;; esac
echo "WARNING: Using incubator modules: jdk.incubator.vector" >&2
exit 134
"""


@pytest.mark.parametrize("launcher", ["", 'exec {java} "$@"'])
def test_a_jvm_that_dies_as_it_starts_is_one_sentence(launcher: str, tmp_path: Path) -> None:
    """That which finds out how to start Spark, or the one that it starts."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(JAVA_THAT_DIES.format(launcher=launcher.format(java=shutil.which("java"))))
    java.chmod(0o755)
    line = refusal("JAVA_HOME", tmp_path)
    assert "Spark does not start on local[*]: " in line and "WARNING" not in line and "exited" in line


def test_an_archive_that_is_not_there_is_told(tmp_path: Path) -> None:
    for master in ("spark://localhost:1", "local[1]"):
        with pytest.raises(UserError, match=r"There is no archive .*`assay pack` makes one"):
            start_session(SparkOptions(master, archive=tmp_path / "none.tar.gz"))


def test_a_master_among_the_settings_is_one_that_was_named() -> None:
    source = open_source(EXAMPLE)
    named = SparkOptions(settings=(("spark.master", "spark://127.0.0.1:1"),))
    assert choose_engine("auto", source, named).name == "spark"
    assert choose_engine("auto", source, SparkOptions(settings=(("spark.a", "1"),))).name == "local"


@pytest.mark.parametrize("text", ["spark.executor.memory", "executor.memory=2g", "", "=1"])
def test_settings_of_the_command_line_are_pairs(text: str) -> None:
    with pytest.raises(UserError, match=r"--spark-conf takes spark\.NAME=VALUE"):
        setting_of(text)
    assert setting_of("spark.executor.extraJavaOptions=-Da=b") == ("spark.executor.extraJavaOptions", "-Da=b")


def test_options_of_spark_go_with_spark() -> None:
    with pytest.raises(UserError, match="go with --engine spark"):
        spark_options("local", "yarn", [], None)
    asked = spark_options("auto", "yarn", ["spark.a=1", "spark.b=2"], Path("x"))
    assert asked == SparkOptions("yarn", (("spark.a", "1"), ("spark.b", "2")), Path("x"))


def test_what_spark_submit_says_stands() -> None:
    told = {"spark.app.name": "mine", "spark.driver.memory": "9g", "spark.executor.memory": "7g", "spark.x": "y"}
    for master in ("local[3]", "spark://host:7077"):
        settings = session_settings(master, told, None, None)
        assert settings | told == settings and settings["spark.master"] == master
        assert "spark.driver.extraJavaOptions" not in settings  # its JVM runs already, and with jars that it knows
        assert settings["spark.sql.adaptive.enabled"] == "false"


SUBMITTED = """
from assay.cli import main
main(["check", {history!r}, "--model", "register", "--engine", "spark"])
"""


@pytest.mark.spark
@pytest.mark.campaign
def test_spark_submit_starts_the_driver(tmp_path: Path) -> None:
    program = tmp_path / "judge.py"
    program.write_text(SUBMITTED.format(history=str(EXAMPLE)))
    command = [Path(sys.executable).with_name("spark-submit"), "--master", "local[1]", "--name", "mine", program]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 1 and ran.stdout.startswith("INVALID: ") and "engine spark" in ran.stdout, ran.stderr


def test_the_heap_fits_the_machine() -> None:
    assert local_heap_mib(4 * GIB) == 1024 and local_heap_mib(512 * GIB) == 8192
    assert 1024 < local_heap_mib(24 * GIB) <= 24 * 1024 // 8


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11, …", "3.9"),
        ('java.io.IOException: Cannot run program "./assay-pack/bin/python3": error=2', "have no ./assay-pack/bin"),
        ("ModuleNotFoundError: No module named 'checkers'", "lacks checkers"),
        ("java.io.IOException: No space left on device", "disk for spilled data is full"),
        ("PermissionError: [Errno 13] Permission denied: '/h'", "may not read the history"),
        ("OSError: When reading: AWS Error ACCESS_DENIED during HeadObject operation", "may not read the history"),
        ("FileNotFoundError: [Errno 2] /h/part-3", "can't find a part"),
        ("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)", "for want of memory"),
        ("ExecutorLostFailure (executor 3 exited caused by one of the running tasks)", "lost again and again"),
        ("Job 0 cancelled because SparkContext was shut down", "ended our session"),
    ],
)
def test_what_workers_die_of_is_one_sentence(said: str, sentence: str) -> None:
    fault = worker_fault(RuntimeError(f"Job aborted due to stage failure\n{said}\n\tat java.lang…"))
    assert fault is not None and sentence in str(fault) and "\n" not in str(fault)
    assert worker_fault(RuntimeError("IndexError: list index out of range")) is None


def test_what_spark_itself_refuses_is_one_sentence_and_a_bug_of_ours_is_none() -> None:
    refused = IllegalArgumentException("[INVALID_CONF_VALUE] The value '-1' is invalid.\n\tat org.apache…")
    assert str(worker_fault(refused)) == "Spark could not judge: The value '-1' is invalid."
    ours = PythonException('[UDF] An exception\nTraceback (most recent call last):\n  File "x.py"\nIndexError: 7')
    assert worker_fault(ours) is None


def test_a_jvm_here_that_died_is_one_sentence() -> None:
    for died in (ConnectionRefusedError(111, "Connection refused"), RuntimeError("Answer from Java side is empty")):
        assert "Spark's own process on this machine died" in str(worker_fault(died))
    assert worker_fault(RuntimeError("OSError: AWS Error NETWORK_CONNECTION: [Errno 111] Connection refused")) is None

"""Judging on a standalone Spark cluster whose machines have nothing of ours but the archive that `assay pack` made: all
tests are in one session, and what befalls its workers befalls them in mid-check."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TypeAlias

import msgspec
import pyarrow as pa
import pytest

from checkers.made.generate import BASES, MadeHistory, anomalies, made_batches
from checkers.made.registers import RegisterShape, register_batches, write_register_history
from checkers.made.transactions import TxnShape, write_txn_history
from checkers.models import MODELS
from harness.errors import UserError
from harness.history.address import Place, place_of
from harness.history.parts import write_history
from tests.support.cluster_driver import Driver, Event, judge_here
from tests.support.kernels import entered_kernels, packed_kernels
from tests.support.patience import until
from tests.support.standalone_cluster import Cluster, lacks

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(lacks() is not None, reason=f"no cluster of namespaces here: {lacks()}"),
    pytest.mark.xdist_group("spark cluster"),
]

Histories: TypeAlias = Callable[[Path], Iterator[tuple[str, bool, Place]]]
"""Made in a folder: the model, whether it is valid, where it is."""

LOGS = "logs"
OPERATIONS = 200
ROWS_EACH = 100
"""Operations of a part, and of what one task looks at: tasks on both workers have some of each history."""


def cut(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """The batches, cut into batches of at most this many rows."""
    for batch in batches:
        yield from (batch.slice(begin, rows) for begin in range(0, batch.num_rows, rows))


def made(place: Place, model: str, anomaly: str | None) -> Place:
    """A history in small parts; one operation in fifty is anomalous if an anomaly is named."""
    texts: dict[str, int] = {}
    wanted = MadeHistory(model, OPERATIONS, anomaly=anomaly, rate=0.02 if anomaly else None)
    batches = cut(made_batches(wanted, texts), ROWS_EACH)
    write_history(batches, place, part_rows=ROWS_EACH, dictionary=lambda: msgspec.json.encode(list(texts)))
    return place


def run_that_logs(folder: Path, line: str) -> Path:
    """A saved run of one node, which wrote this line."""
    (folder / "nodes" / "n1").mkdir(parents=True)
    (folder / "run.json").write_text('{"serving_nodes": ["n1"]}')
    (folder / "nodes" / "n1" / "node.log").write_text(f"started\n{line}\n")
    write_register_history(RegisterShape(OPERATIONS, keys=3), folder / "history.parquet")
    return folder / "history.parquet"


def valid_histories(folder: Path) -> Iterator[tuple[str, bool, Place]]:
    """One for every model."""
    for model in BASES:
        yield model, True, made(folder / f"{model}-valid.parquet", model, None)
    yield LOGS, True, run_that_logs(folder / "healthy", "stopped")


def refuted_histories(folder: Path, models: Iterable[str] = BASES) -> Iterator[tuple[str, bool, Place]]:
    """For every model one that has an anomaly, or a valid one where there is none that the model finds."""
    for model in models:
        anomaly = next(iter(anomalies(model)), None)
        yield model, anomaly is None, made(folder / f"{model}-{anomaly}.parquet", model, anomaly)
    yield LOGS, False, run_that_logs(folder / "broken", "panic: out of ideas")


def few_histories(folder: Path) -> Iterator[tuple[str, bool, Place]]:
    """Refuted histories of the logs, and of one model of each package of `checkers`."""
    (few := folder / "few").mkdir()
    return refuted_histories(few, {MODELS[model].function.partition(".")[0]: model for model in BASES}.values())


def jobs(driver: Driver) -> list[Event]:
    return driver.heard.of("JobStart")


def await_heard(driver: Driver, name: str, which: Callable[[Event], bool]) -> Event:
    """The first such event; fails if it does not come."""
    found: list[Event] = []

    def is_heard() -> bool:
        found.extend(event for event in driver.heard.of(name) if which(event))
        return bool(found)

    until(is_heard, every_s=0.02)
    return found[0]


@pytest.mark.parametrize(
    "histories",
    [few_histories, *(pytest.param(each, marks=pytest.mark.campaign) for each in (refuted_histories, valid_histories))],
)
def test_every_model_is_judged_as_in_process(histories: Histories, cluster: Cluster, driver: Driver) -> None:
    """The whole verdict, explanations included, and nobody compiles."""
    assert {*BASES, LOGS} == set(MODELS)
    wrong = []
    for model, valid, place in histories(cluster.lent):
        here, there = judge_here(place, model), driver.judge(place, model, ROWS_EACH).result()
        assert here.valid is valid, (model, here)
        if there != here:
            wrong.append((model, here, there))
    assert wrong == []
    assert hosts_of(driver) == {cluster.machines[role].address for role in ("worker0", "worker1")}
    assert len(list(cluster.work.glob("*/*/stderr"))) >= 2 and cluster.compilations() == []


def test_many_transactions_take_no_kernel_that_is_not_packed(cluster: Cluster, archive: Path, driver: Driver) -> None:
    """Executors compiled three at this size: what small histories do not outgrow had not been compiled ahead."""
    path = cluster.lent / "many.parquet"
    write_txn_history(TxnShape(60_000, "list-append", active_keys=30, info_share=0.05), path)
    there = driver.judge(path, "list-append").result()
    assert (there.valid, there.ops) == (True, 60_000)
    assert cluster.compilations() == []
    packed = packed_kernels(archive)
    assert {name: caller for name, caller in entered_kernels().items() if name not in packed} == {}


@pytest.fixture
def bucket(cluster: Cluster) -> Iterator[str]:
    """An address in an S3-compatible server on this machine, to which all of the cluster come."""
    from moto.server import ThreadedMotoServer
    from pyarrow import fs

    server = ThreadedMotoServer(ip_address=cluster.gateway, port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    reached = {"access_key": "k", "secret_key": "s", "scheme": "http", "endpoint_override": f"{host}:{port}"}
    fs.S3FileSystem(**reached, allow_bucket_creation=True).create_dir("histories")
    yield f"s3://k:s@histories/%s?scheme=http&endpoint_override={host}:{port}"
    server.stop()


def test_a_history_at_an_address_is_read_by_workers(bucket: str, driver: Driver) -> None:
    place = made(place_of(bucket % "lists"), "list-append", "G-single-item")
    there = driver.judge(place, "list-append", ROWS_EACH).result()
    assert there.counts == {"G-single-item": 4} and there == judge_here(place, "list-append")


PARTS = 20
LAST = f"part-{PARTS - 1:05d}.parquet"


def in_parts(folder: Path) -> Path:
    """A valid history of registers, of which a task reads one part."""
    shape = RegisterShape(10_000 * PARTS, keys=100)
    write_history(cut(register_batches(shape), 10_000), folder, part_rows=10_000)
    return folder


def test_a_part_that_vanishes_in_mid_check_is_one_sentence(cluster: Cluster, driver: Driver) -> None:
    """Once the history is verified the last part goes; twenty tasks on two cores read it last."""
    folder, before = in_parts(cluster.lent / "vanishing.parquet"), len(jobs(driver))
    judged = driver.judge(folder, "register", 10_000)
    until(lambda: len(jobs(driver)) > before)
    verified = jobs(driver)[before]["Job ID"]
    await_heard(driver, "JobEnd", lambda event: event["Job ID"] == verified)
    (folder / LAST).unlink()
    with pytest.raises(UserError) as told:
        judged.result()
    assert str(told.value) == f"{folder / LAST} is missing."
    assert len(jobs(driver)) > before + 1, "workers had begun to judge"


def test_a_part_that_vanished_before_is_one_sentence(cluster: Cluster, driver: Driver) -> None:
    folder = in_parts(cluster.lent / "vanished.parquet")
    (folder / LAST).unlink()
    with pytest.raises(UserError) as told:
        driver.judge(folder, "register").result()
    assert f"{LAST} is missing" in str(told.value) and "\n" not in str(told.value)


def test_a_worker_that_is_killed_in_mid_check_costs_no_verdict(cluster: Cluster, driver: Driver) -> None:
    """What it had shuffled is lost with it, and made again: three tasks on two cores have to come for it."""
    path, before, victim = cluster.lent / "killed.parquet", len(jobs(driver)), cluster.machines["worker0"]
    write_register_history(RegisterShape(3_000_000, keys=100, anomaly="stale-read"), path)
    judged = driver.judge(path, "register")
    until(lambda: len(jobs(driver)) > before + 1, every_s=0.02)
    judging = jobs(driver)[before + 1]
    shuffled = await_heard(
        driver, "StageCompleted", lambda event: event["Stage Info"]["Stage ID"] in judging["Stage IDs"]
    )
    victim.kill()
    try:
        verdict = judged.result()
    finally:
        cluster.boot("worker0")
        cluster.await_ready("worker0")
    assert (verdict.valid, verdict.counts, verdict.ops) == (False, {"stale-read": 1}, 3_000_000)
    stage = shuffled["Stage Info"]["Stage ID"]
    assert victim.address in hosts_of(driver, stage), "it held some of what had been shuffled"
    told = driver.heard.of("ExecutorRemoved", "JobEnd")
    lost = [place for place, event in enumerate(told) if event["Event"].endswith("ExecutorRemoved")]
    ended = [place for place, event in enumerate(told) if event.get("Job ID") == judging["Job ID"]]
    assert len(lost) == 1 and lost < ended
    tried = [event["Stage Info"] for event in driver.heard.of("StageSubmitted")]
    assert [info["Stage Attempt ID"] for info in tried if info["Stage ID"] == stage] == [0, 1]
    until(lambda: cluster.executors() == 2)


def hosts_of(driver: Driver, stage: int | None = None) -> set[str]:
    """The addresses of workers that ended tasks, of this stage if one is named."""
    ended = driver.heard.of("TaskEnd")
    return {event["Task Info"]["Host"] for event in ended if stage in (None, event["Stage ID"])}


PLAIN_CPU = "processor\t: 0\nmodel name\t: a plain one\nflags\t\t: fpu sse sse2 ssse3 sse4_1 sse4_2\n"


@pytest.fixture
def plain(cluster: Cluster) -> Iterator[None]:
    """For as long as it lasts the cluster has one worker, and that a processor without AVX2."""
    for role in ("worker0", "worker1"):
        cluster.machines[role].kill()
    cpuinfo = cluster.machines["worker1"].cpuinfo = cluster.home / "cpuinfo"
    cpuinfo.write_text(PLAIN_CPU)
    cluster.boot("worker1")
    cluster.await_ready("worker1")
    yield
    cluster.machines["worker1"].kill()
    cluster.machines["worker1"].cpuinfo = None
    for role in ("worker0", "worker1"):
        cluster.boot(role)
    for role in ("worker0", "worker1"):
        cluster.await_ready(role)


@pytest.mark.campaign
def test_another_processor_compiles_once_and_says_so(cluster: Cluster, driver: Driver, plain: None) -> None:
    """What the archive has no kernels for."""
    place = made(cluster.lent / "elsewhere.parquet", "register", "read-of-unwritten")
    here = judge_here(place, "register")
    assert cluster.compilations() == []
    assert driver.judge(place, "register", ROWS_EACH).result() == here
    said = cluster.compilations()
    assert len(said) == len(set(said)) > 3, "each kernel once"
    assert driver.judge(place, "register", ROWS_EACH).result() == here
    assert cluster.compilations() == said


def test_a_driver_that_dies_in_mid_check_leaves_nothing(cluster: Cluster, driver: Driver) -> None:
    """The last of these tests, for the session dies with it."""
    before = len(jobs(driver))
    judged = driver.judge(in_parts(cluster.lent / "unjudged.parquet"), "register", 10_000)
    until(lambda: len(jobs(driver)) > before)
    os.kill(driver.pid, signal.SIGKILL)
    with pytest.raises(BrokenProcessPool):
        judged.result()
    until(lambda: not cluster.executors() and not cluster.processes("pyspark.daemon"))

"""Every call of the metadata plane (M5) by hand, through `assay cluster call`, on node programs of this machine."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from assay.cluster_command import UP_FILE, UpCluster, UpNode
from cluster.config import NodeConfig, dump_config
from cluster.knobs import Knobs
from cluster.wire.messages import Replica
from tests.by_hand import Operator, make_every_call
from tests.support.patience import until

pytestmark = pytest.mark.xdist_group("by hand")

KNOBS = Knobs(election_timeout_ms=300, raft_heartbeat_ms=50, tserver_heartbeat_ms=200)
LARGEST_FRAME = b"\xff\xff\xff\xff"


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Programs:
    """A master and three tablet servers as processes, told of in a store as `assay cluster up` does."""

    def __init__(self, folder: Path) -> None:
        self.store = folder
        names = ("m1", "t1", "t2", "t3")
        self.addresses = {name: f"127.0.0.1:{port}" for name, port in zip(names, free_ports(4), strict=True)}
        self.running = {name: self._start(name) for name in names}
        nodes = tuple(
            UpNode(name, _role(name), f"z{number}", address)
            for number, (name, address) in enumerate(self.addresses.items())
        )
        (folder / UP_FILE).write_bytes(msgspec.json.encode(UpCluster("by-hand", nodes)))

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        config = NodeConfig(
            node_id=name,
            role=_role(name),  # type: ignore[arg-type]
            listen=self.addresses[name],
            masters=(Replica("m1", self.addresses["m1"]),),
            cluster_id="by-hand",
            data_dir=str(self.store / name),
            knobs=KNOBS,
        )
        path = self.store / f"{name}.json"
        path.write_bytes(dump_config(config))
        command = [sys.executable, "-m", "cluster.node"]
        subprocess.run([*command, "--format", path], check=True, capture_output=True)
        with (self.store / f"{name}.log").open("wb") as log:
            return subprocess.Popen([*command, path], stderr=log)

    def wait_until_all_listen(self) -> None:
        for name, address in self.addresses.items():
            while True:
                try:
                    socket.create_connection(_endpoint(address)).close()
                    break
                except ConnectionRefusedError:
                    assert self.running[name].poll() is None, name
                    time.sleep(0.05)

    def end(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()


def _endpoint(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def _role(name: str) -> str:
    return "master" if name.startswith("m") else "tserver"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    programs = Programs(tmp_path_factory.mktemp("by-hand"))
    try:
        programs.wait_until_all_listen()
        yield programs
    finally:
        programs.end()


def test_every_call_is_made_by_hand(programs: Programs, capsys: pytest.CaptureFixture[str]) -> None:
    make_every_call(Operator(programs.store, capsys))


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (("CreateTable", "name="), "refused (invalid): a table needs a name"),
        (("CreateTable", "name=a", "columns=k:paper"), "refused (invalid): the column 'k' has the type 'paper'"),
        (("CreateTable", "name=a", "replicas=2"), "refused (invalid): the replication factor must be odd"),
        (("CreateTable", "name=a", "buckets=1000000"), "use fewer buckets"),
        (("CreateTable", "name=a", "design=paper"), "refused (invalid): a table's design is one of"),
        (("AlterTable", "name=paper", "new_name=b"), "refused (not-found): there is no table named 'paper'"),
        (("DeleteTable", "name=paper"), "refused (not-found): there is no table named 'paper'"),
        (("GetTableSchema", "name=paper"), "refused (not-found): there is no table named 'paper'"),
        (
            ("ListTables", "max_staleness_ms=-1"),
            "refused (invalid): the staleness that is allowed must not",
        ),
        (("ChangeMasters",), "refused (invalid): name a server"),
        (("ChangeMasters", "remove=m1"), "refused (change-refused)"),
        (("DecommissionServer", "server=t9"), "refused (not-found)"),
        (("TransferLeadership", "group=catalog", "target=m9"), "refused (invalid): m9 is no voter of the group"),
        (("TransferLeadership", "group=paper", "target=t1"), "refused (not-found): there is no tablet paper"),
    ],
)
def test_what_cannot_be_is_refused_with_its_kind_and_reason(
    programs: Programs, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], refusal: str
) -> None:
    operator = Operator(programs.store, capsys)
    until(lambda: operator.ask("ListTables")[0] == 0)
    code, text = operator.ask(*words)
    assert code == 1 and refusal in text and text.count("\n") == 1, text
    assert operator.answer_of("ListTables")["tables"] == []


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", LARGEST_FRAME * 4, b"\x00\x00\x00\x05hello", b""])
def test_bytes_that_are_no_frames_end_their_connection_and_no_process(programs: Programs, garbage: bytes) -> None:
    for address in programs.addresses.values():
        with socket.create_connection(_endpoint(address)) as connection:
            connection.sendall(garbage)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 16):
                pass
    assert all(process.poll() is None for process in programs.running.values())

"""Histories in parts, at paths and addresses: judged as one history, refused unless all parts are the manifest's."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pyarrow import fs

from checkers.api import check
from checkers.engines.api import Engine
from checkers.importers.detect import open_source
from checkers.made.registers import RegisterShape, register_batches
from checkers.made.transactions import TxnShape, txn_batches
from harness.errors import NoScratchError, UserError
from harness.history import address
from harness.history.address import Address, place_of
from harness.history.columns import SCHEMA
from harness.history.parts import write_history
from harness.history.saved import MANIFEST, HistoryReader, open_saved
from tests.mounts import small_disk

ROWS = 3_000
FOUND = {"stale-read": 2}


def cut(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """The batches, cut into batches of at most this many rows."""
    for batch in batches:
        yield from (batch.slice(begin, rows) for begin in range(0, batch.num_rows, rows))


def written(place: Path | Address, part_rows: int = 700, seed: int = 1) -> HistoryReader:
    shape = RegisterShape(ROWS, keys=20, anomaly="stale-read", seed=seed)
    write_history(cut(register_batches(shape), 250), place, part_rows=part_rows)
    return open_saved(place)


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """An address in a local S3-compatible server, and what connects to it behind a question mark."""
    from moto.server import ThreadedMotoServer  # takes a second to load, in each worker that is to run other tests

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    s3 = fs.S3FileSystem(
        access_key="k", secret_key="s", scheme="http", endpoint_override=f"{host}:{port}", allow_bucket_creation=True
    )
    s3.create_dir("histories")
    yield f"s3a://k:s@histories/%s?scheme=http&endpoint_override={host}:{port}"
    server.stop()


def verify(place: Path | Address, engine: Engine) -> None:
    engine.verify(open_source(place, verify=False))


def test_a_history_in_parts_is_the_same_history(tmp_path: Path) -> None:
    parts, whole = written(tmp_path / "parts.parquet"), written(tmp_path / "whole.parquet", part_rows=ROWS)
    assert [part.rows for part in parts.manifest.parts] == [700, 700, 700, 700, 200]
    assert (tmp_path / "whole.parquet").is_file() and len(whole.manifest.parts) == 1
    names = SCHEMA.names
    one, other = ([row for batch in each.batches(names) for row in batch.to_pylist()] for each in (parts, whole))
    assert one == other and len(one) == ROWS
    judged = [check(tmp_path / f"{name}.parquet", "register", engine="local") for name in ("parts", "whole")]
    assert judged[0].counts == judged[1].counts == FOUND
    assert judged[0].anomalies == judged[1].anomalies


def test_pieces_cover_every_row_group_once(tmp_path: Path) -> None:
    reader = written(tmp_path / "h.parquet")
    for pieces in (1, 2, 3, 7, reader.manifest.groups):
        groups = [group for piece in range(pieces) for group in reader.groups_of(piece, pieces)]
        assert groups == list(range(reader.manifest.groups))


def test_one_part_is_no_history(tmp_path: Path) -> None:
    written(tmp_path / "h.parquet")
    with pytest.raises(UserError, match="is one part of a history"):
        open_source(tmp_path / "h.parquet" / "part-00001.parquet")


def missing(folder: Path) -> None:
    (folder / "part-00002.parquet").unlink()


def exchanged(folder: Path) -> None:
    one, other = folder / "part-00001.parquet", folder / "part-00002.parquet"
    one.rename(folder / "kept")
    other.rename(one)
    (folder / "kept").rename(other)


def doubled(folder: Path) -> None:
    shutil.copy(folder / "part-00001.parquet", folder / "part-00002.parquet")


def added(folder: Path) -> None:
    shutil.copy(folder / "part-00001.parquet", folder / "part-00007.parquet")


def of_another_run(folder: Path) -> None:
    written(folder.parent / "other.parquet", seed=2)
    shutil.copy(folder.parent / "other.parquet" / "part-00001.parquet", folder / "part-00001.parquet")


def manifest_of_another_run(folder: Path) -> None:
    written(folder.parent / "other.parquet", seed=2)
    shutil.copy(folder.parent / "other.parquet" / MANIFEST, folder / MANIFEST)


def manifest_gone(folder: Path) -> None:
    (folder / MANIFEST).unlink()


def manifest_edited(folder: Path) -> None:
    path = folder / MANIFEST
    path.write_bytes(path.read_bytes().replace(b'"rows":700', b'"rows":701', 1))


def cut_short(folder: Path) -> None:
    path = folder / "part-00003.parquet"
    path.write_bytes(path.read_bytes()[:-100])


WRONG = [
    *(missing, exchanged, doubled, added, of_another_run, manifest_of_another_run),
    *(manifest_gone, manifest_edited, cut_short),
]


@pytest.mark.parametrize("corrupt", WRONG)
def test_parts_that_are_not_the_manifests_are_refused(corrupt: object, tmp_path: Path) -> None:
    written(tmp_path / "h.parquet")
    check(tmp_path / "h.parquet", "register", engine="local")
    corrupt(tmp_path / "h.parquet")  # type: ignore[operator]
    with pytest.raises(UserError) as refused:
        check(tmp_path / "h.parquet", "register", engine="local")
    assert "\n" not in str(refused.value) and str(refused.value).endswith(".")


def test_any_flipped_bit_is_found(tmp_path: Path) -> None:
    folder, random = tmp_path / "h.parquet", Random(5)
    written(folder)
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        for place in [0, len(data) - 1, len(data) // 2, *(random.randrange(len(data)) for _ in range(30))]:
            flipped = bytearray(data)
            flipped[place] ^= 1 << random.randrange(8)
            path.write_bytes(flipped)
            try:
                judged = check(folder, "register", engine="local")
            except UserError:
                continue
            assert judged.counts == FOUND, f"byte {place} of {path.name} was changed unnoticed"
            assert path.name == MANIFEST and place == len(data) - 1, f"byte {place} of {path.name}"
        path.write_bytes(data)


@pytest.mark.spark
def test_workers_refuse_parts_too(tmp_path: Path, engines: dict[str, Engine]) -> None:
    for number, corrupt in enumerate((missing, exchanged, doubled, cut_short)):
        folder = tmp_path / f"{number}.parquet"
        written(folder)
        verify(folder, engines["spark"])
        corrupt(folder)
        told = []
        for engine in engines.values():
            with pytest.raises(UserError) as refused:
                verify(folder, engine)
            told.append(str(refused.value))
        assert told[0] == told[1]


@pytest.mark.spark
@pytest.mark.parametrize("change", ["twice", "order", "far", "first of its range"])
def test_events_that_cannot_be_are_refused_across_pieces(
    change: str, tmp_path: Path, engines: dict[str, Engine]
) -> None:
    """An event that two pieces use, far from each other, and pieces that are not in order."""
    batches = list(cut(register_batches(RegisterShape(50_000, keys=20)), 5_000))
    column = "complete_index"
    place = batches[0].schema.get_field_index(column)
    values = [batch.column(column).to_pylist() for batch in batches]
    if change == "twice":
        values[1][7] = values[8][7]
    elif change == "far":
        values[1][7] = values[8][7] = 10**9
    elif change == "first of its range":
        values[1][7] = values[8][7] = 200 << 22
    else:
        batches[3], batches[4] = batches[4], batches[3]
        values[3], values[4] = values[4], values[3]
    field = batches[0].schema.field(place)
    changed = [b.set_column(place, field, pa.array(v, field.type)) for b, v in zip(batches, values, strict=True)]
    write_history(changed, tmp_path / "h.parquet")
    for engine in engines.values():
        with pytest.raises(UserError, match="so this is not a history"):
            verify(tmp_path / "h.parquet", engine)


@pytest.mark.spark
def test_an_address_is_read_like_a_path(bucket: str, tmp_path: Path, engines: dict[str, Engine]) -> None:
    place = place_of(bucket % "registers")
    assert isinstance(place, Address)
    reader, local = written(place), written(tmp_path / "h.parquet")
    assert [part.seal.checksum for part in reader.manifest.parts] == [
        part.seal.checksum for part in local.manifest.parts
    ]
    for engine in engines.values():
        verify(place, engine)
    judged = [check(where, "register", engine=name) for where in (place, tmp_path / "h.parquet") for name in engines]
    assert all(verdict.counts == FOUND for verdict in judged)
    assert all(verdict.anomalies == judged[0].anomalies for verdict in judged)
    with pytest.raises(UserError, match="is there already"):
        written(place)


@pytest.mark.spark
@pytest.mark.usefixtures("spark_runs")
def test_transactions_at_an_address(bucket: str) -> None:
    place = place_of(bucket % "transactions")
    write_history(cut(txn_batches(TxnShape(2_000, anomaly="G-single-item")), 500), place, part_rows=600)
    one, other = (check(place, "list-append", engine=engine) for engine in ("local", "spark"))
    assert one.valid is other.valid is False and one.counts == other.counts and one.anomalies == other.anomalies


def test_addresses_that_cannot_be_read_are_told_in_a_sentence(bucket: str, tmp_path: Path) -> None:
    for place in (bucket % "nowhere", "hdfs://127.0.0.1:1/h", "ftp://there/h"):
        with pytest.raises(UserError) as refused:
            check(place, "register", engine="local")
        assert "\n" not in str(refused.value) and "k:s@" not in str(refused.value)
    gone = place_of(bucket % "gone")
    reader = written(gone)
    system, path = fs.FileSystem.from_uri(gone.text)  # type: ignore[union-attr]
    system.delete_file(f"{path}/{reader.manifest.parts[2].file}")
    with pytest.raises(UserError, match=r"part-00002\.parquet is missing"):
        check(gone, "register", engine="local")


def test_what_cannot_be_written_whole_leaves_nothing_at_an_address(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = place_of(bucket % "unfinished")
    batches = list(cut(register_batches(RegisterShape(ROWS, keys=20)), 250))

    def stopped() -> Iterator[pa.RecordBatch]:
        yield from batches[:6]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_history(stopped(), place, part_rows=700)
    assert not address.exists(place), "parts without a manifest would keep others from the place"
    with small_disk(tmp_path / "disk", "16k") as disk:
        monkeypatch.setattr(tempfile, "tempdir", str(disk))
        with pytest.raises(NoScratchError, match=r"set TMPDIR to a place for them\): No space left on device\.$"):
            write_history(batches, place, part_rows=700)
        assert not address.exists(place) and list(disk.iterdir()) == []
    monkeypatch.undo()
    written(place)


def test_what_a_file_system_says_of_itself_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing:
        def get_file_info(self, path: object) -> None:
            raise pa.ArrowException("no token error_info={reason=, domain=}\nSee its log")

    monkeypatch.setattr(address, "_connected", lambda root: (Refusing(), "b"))
    for ask in (address.info, address.names_in):
        with pytest.raises(UserError, match=r"^abfs://b/x can't be read: no token\.$"):
            ask(place_of("abfs://b/x"))


def test_google_s_file_system_does_not_try_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(address, "_connected", lambda root: (asked.append(root), "b"))
    for place in ("gs://b/x", "gs://b/x?scheme=http", "gs://b/x?retry_limit_seconds=7", "s3://b/x"):
        address.file_system(place_of(place))
    last = ("?retry_limit_seconds=30", "?scheme=http&retry_limit_seconds=30", "?retry_limit_seconds=7", "")
    assert [root.removeprefix("gs://b").removeprefix("s3://b") for root in asked] == list(last)


def test_a_path_of_a_url_keeps_its_slash() -> None:
    assert str(place_of(Path("s3a://b/x"))) == str(place_of("s3://b/x")) == "s3://b/x"
    assert str(place_of("s3://key:secret@b/x?scheme=http")) == "s3://b/x"
    assert place_of("some/where.parquet") == Path("some/where.parquet")

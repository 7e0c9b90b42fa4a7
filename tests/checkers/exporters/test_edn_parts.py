"""Long histories are exported in parts, which are one text end to end; no part can be another, or missing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from exported import rows

from assay.history_commands import export_history, import_history
from checkers.api import check
from checkers.exporters import edn
from checkers.importers import jepsen, text_parts
from checkers.importers.detect import open_source
from checkers.importers.text_parts import MANIFEST
from checkers.made.registers import RegisterShape, write_register_history
from harness.errors import UserError

PART_ROWS = 30


def exported(folder: Path, name: str = "h.edn", seed: int = 1) -> Path:
    """A hundred operations, some of unknown outcome, in four parts."""
    source = folder / f"{seed}.parquet"
    write_register_history(RegisterShape(100, keys=3, info_share=0.1, seed=seed), source)
    place = folder / name
    (told,) = export_history(source, place, "auto", overwrite=True, part_rows=PART_ROWS)
    assert told.startswith(f"{place}: 100 operations, ")
    return place


def test_parts_end_to_end_are_the_file(tmp_path: Path) -> None:
    folder = exported(tmp_path)
    parts = sorted(folder.glob("part-*.edn"))
    list(export_history(tmp_path / "1.parquet", tmp_path / "whole.edn", "auto", overwrite=False))
    assert b"".join(part.read_bytes() for part in parts) == (tmp_path / "whole.edn").read_bytes()
    told = [part.read_text().count(":type :invoke") for part in parts]
    assert told == [30, 30, 30, 10]
    assert {path.name for path in folder.iterdir()} == {MANIFEST, *(part.name for part in parts)}


@pytest.mark.parametrize("in_memory", [10, 1 << 20])
def test_parts_are_read_as_one_history(tmp_path: Path, in_memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = exported(tmp_path)
    for module in (jepsen, text_parts):
        monkeypatch.setattr(module, "IN_MEMORY_BYTES", in_memory)
    original, copy = open_source(tmp_path / "1.parquet"), open_source(folder)
    assert copy.format == "edn" and copy.rows == 100
    assert [row["mops"] for row in rows(copy)] == [row["mops"] for row in rows(original)]
    one, other = (check(path, "register", engine="local") for path in (tmp_path / "1.parquet", folder))
    assert (one.valid, one.ops) == (other.valid, other.ops) == (True, 100)
    list(import_history(folder, tmp_path / "back", "edn", 40))
    assert rows(open_source(tmp_path / "back")) == rows(copy)
    with pytest.raises(UserError, match="is a history as EDN in parts, not json"):
        open_source(folder, "json")


def test_a_folder_takes_the_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "h.edn").write_text("[]")
    assert exported(tmp_path).is_dir()
    with pytest.raises(UserError, match="is a directory"):
        exported(tmp_path)


def missing(folder: Path) -> None:
    (folder / "part-00001.edn").unlink()


def exchanged(folder: Path) -> None:
    one, other = folder / "part-00001.edn", folder / "part-00002.edn"
    first = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(first)


def added(folder: Path) -> None:
    shutil.copy(folder / "part-00001.edn", folder / "part-00007.edn")


def cut_short(folder: Path) -> None:
    path = folder / "part-00003.edn"
    path.write_bytes(path.read_bytes()[:-80])


def of_another_run(folder: Path) -> None:
    shutil.copy(exported(folder.parent, "other", seed=2) / "part-00001.edn", folder / "part-00001.edn")


def manifest_of_another_run(folder: Path) -> None:
    shutil.copy(exported(folder.parent, "other", seed=2) / MANIFEST, folder / MANIFEST)


def manifest_edited(folder: Path) -> None:
    path = folder / MANIFEST
    path.write_bytes(path.read_bytes().replace(b"part-00003", b"part-00002"))


def manifest_gone(folder: Path) -> None:
    (folder / MANIFEST).unlink()


def manifest_cut(folder: Path) -> None:
    (folder / MANIFEST).write_bytes((folder / MANIFEST).read_bytes()[:40])


WRONG = [
    *(missing, exchanged, added, cut_short, of_another_run),
    *(manifest_of_another_run, manifest_edited, manifest_gone, manifest_cut),
]


@pytest.mark.parametrize("corrupt", WRONG)
def test_parts_that_are_not_the_manifests_are_refused(corrupt: Callable[[Path], None], tmp_path: Path) -> None:
    folder = exported(tmp_path)
    corrupt(folder)
    with pytest.raises(UserError) as refused:
        open_source(folder)
    assert "\n" not in str(refused.value) and str(refused.value).endswith(".")


def test_what_does_not_read_back_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: object, written: Path) -> None:
        assert written.is_dir() and len(list(written.iterdir())) == 5
        raise UserError("it can't be said.")

    monkeypatch.setattr(edn, "check_reads_back", refuse)
    with pytest.raises(UserError, match="can't be said"):
        exported(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["1.parquet"]

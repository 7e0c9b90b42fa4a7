"""What nodes are installed from: source with bytecode that this version of Python takes for the source's."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

from cluster.deploy.node_files import code_archive

WITHOUT_WRITING = (
    "import sys; sys.path.insert(0, sys.argv[1]); import cluster.groups.group as found; print(found.__file__)"
)


def test_bytecode_in_the_archive_is_that_of_the_source_beside_it(tmp_path: Path) -> None:
    with tarfile.open(fileobj=BytesIO(code_archive())) as archive:
        archive.extractall(tmp_path, filter="data")
    sources = sorted(tmp_path.rglob("*.py"))
    assert len(sources) > 100
    for source in sources:
        compiled = Path(importlib.util.cache_from_source(str(source))).read_bytes()
        found = source.stat()
        assert compiled[:4] == importlib.util.MAGIC_NUMBER and compiled[4:8] == bytes(4), "checked by time and size"
        assert int.from_bytes(compiled[8:12], "little") == int(found.st_mtime) & 0xFFFFFFFF
        assert int.from_bytes(compiled[12:16], "little") == found.st_size & 0xFFFFFFFF
    command = [sys.executable, "-B", "-v", "-c", WITHOUT_WRITING, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env={})
    assert done.stdout.startswith(str(tmp_path))
    assert f"matches {tmp_path / 'cluster' / 'groups' / 'group.py'}" in done.stderr, "it is not compiled again"

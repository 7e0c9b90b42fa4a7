"""What is put on a machine to run a node there: the program's source as one archive, and where things lie."""

from __future__ import annotations

import compileall
import importlib.util
import io
import posixpath
import shlex
import tarfile
from dataclasses import replace
from pathlib import Path

from cluster.wire.identity import IDENTITY_FILE
from harness.ports.machines import Daemon
from harness.ports.real.ports import LOG_VARIABLE
from harness.protocols import Damage

PACKAGES = ("cluster", "harness")
CODE_DIRECTORY = "/dev/shm/assay-code"
"""In memory: a container's own file system takes long to be given hundreds of files, and to find them again."""

PYTHON_DIRECTORY = "/opt/assay-python"
CONFIG_PATH = "/etc/assay/node.json"
DATA_DIRECTORY = "/var/lib/assay/data"
LOG_PATH = "/var/log/assay/node.log"
FAILPOINT_LOG_PATH = "/var/log/assay/failpoints"

NODE_DAEMON = Daemon(
    name="node",
    argv=("python3", "-m", "cluster.node", CONFIG_PATH),
    pid_file="/run/assay/node.pid",
    log_file=LOG_PATH,
    directory=CODE_DIRECTORY,
    environment={
        "PYTHONPATH": f"{CODE_DIRECTORY}:{PYTHON_DIRECTORY}",
        "PYTHONUNBUFFERED": "1",
        LOG_VARIABLE: FAILPOINT_LOG_PATH,
    },
)

FOREIGN_CONFIG_PATH = "/etc/assay/foreign.json"
FOREIGN_DIRECTORY = "/var/lib/assay/foreign"

FOREIGN_DAEMON = replace(
    NODE_DAEMON,
    name="foreign",
    argv=("python3", "-m", "cluster.node", FOREIGN_CONFIG_PATH),
    pid_file="/run/assay/foreign.pid",
    log_file="/var/log/assay/foreign.log",
)
"""A master of another cluster, which takes the node's place."""


def format_command(directory: str) -> str:
    """Shell text that makes a data directory that of a node, whose `identity_file` (`cluster.wire.identity`) it is fed.

    The node program could do that too (`--format`), but starting it costs a node as much as its real start.
    """
    path = f"{directory}/{IDENTITY_FILE}"
    return (
        f"test -e {path} || {{ mkdir -p {directory} && cat >{path}.new && "
        f"sync {path}.new && mv {path}.new {path} && sync {directory}; }}"
    )


def install_command(code_bytes: int, config_bytes: int) -> str:
    """Shell text that puts the program, its configuration and its identity in place, fed one after the other."""
    return (
        f"set -e; mkdir -p {CODE_DIRECTORY} {posixpath.dirname(CONFIG_PATH)}\n"
        f"head -c {code_bytes} | tar -xzf - -C {CODE_DIRECTORY}\n"
        f"head -c {config_bytes} >{CONFIG_PATH}\n"
        f"{format_command(DATA_DIRECTORY)}"
    )


FILLER_PATH = f"{DATA_DIRECTORY}/../filler"
"""Takes all the room that is left on the volume of the data directory, and is none of its files."""

FILL_COMMAND = f"""
set -e
left() {{ df --output=avail -B1 {DATA_DIRECTORY} | tail -n 1; }}
fallocate -l "$(left)" {FILLER_PATH} 2>/dev/null || true
cat /dev/zero >>{FILLER_PATH} 2>/dev/null || true
test "$(left)" -lt 4096
"""

_CORRUPT_PROGRAM = """
import os, sys
kind, path, at = sys.argv[1], sys.argv[2], int(sys.argv[3])
def look():
    if kind == "truncate":
        return f"{os.path.getsize(path)} bytes"
    with open(path, "rb") as file:
        file.seek(at // 8)
        return file.read(1).hex()
before = look()
with open(path, "r+b") as file:
    if kind == "bit-flip":
        file.seek(at // 8)
        file.write(bytes([int(before, 16) ^ 1 << at % 8]))
    else:
        file.truncate(at)
    file.flush()
    os.fsync(file.fileno())
after = look()
if before == after:
    sys.exit(f"{path} can not be damaged")
print(f"{before} became {after}")
"""


def corrupt_command(damage: Damage) -> str:
    """Shell text that damages a file of the data directory, reads it back, and prints what was and is there."""
    words = ("python3", "-c", _CORRUPT_PROGRAM, damage.kind, f"{DATA_DIRECTORY}/{damage.path}", str(damage.at))
    return shlex.join(words)


def read_command(damage: Damage) -> str:
    """Shell text that prints what is at the place of some damage: a byte, or the file's length."""
    path = shlex.quote(f"{DATA_DIRECTORY}/{damage.path}")
    if damage.kind == "bit-flip":
        return f"od -An -tx1 -j {damage.at // 8} -N 1 {path} | tr -d ' '"
    return f"stat -c '%s bytes' {path}"


def code_archive() -> bytes:
    """The source of the node program's packages, as installed here, in a gzipped tar, and its bytecode.

    A node whose Python is of the same version need not compile it, which is most of what its first start costs.
    """
    root = Path(__file__).resolve().parents[2]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=4) as archive:
        for package in PACKAGES:
            for path in sorted((root / package).rglob("*.py")):
                place = path.relative_to(root)
                archive.add(path, place.as_posix())
                if (compiled := _compiled(path)) is not None:
                    archive.add(compiled, (place.parent / "__pycache__" / compiled.name).as_posix())
    return buffer.getvalue()


def _compiled(path: Path) -> Path | None:
    """The bytecode of a source file, made if it is not there or older; None where it can't be written."""
    if not compileall.compile_file(path, quiet=2):
        return None
    return Path(importlib.util.cache_from_source(str(path)))

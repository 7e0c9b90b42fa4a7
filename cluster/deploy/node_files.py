"""What is put on a machine to run a node there: the program's source as one archive, and where things lie."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from harness.env.daemon import Daemon
from harness.real.failpoints import LOG_VARIABLE

PACKAGES = ("cluster", "harness")
CODE_DIRECTORY = "/opt/assay"
PYTHON_DIRECTORY = "/opt/assay-python"
CONFIG_PATH = "/etc/assay/node.json"
DATA_DIRECTORY = "/var/lib/assay/data"
LOG_PATH = "/var/log/assay/node.log"
FAILPOINT_LOG_PATH = "/var/log/assay/failpoints"

NODE_DAEMON = Daemon(
    argv=("python3", "-m", "cluster.node", CONFIG_PATH),
    marker=CONFIG_PATH,
    pid_file="/run/assay/node.pid",
    log_file=LOG_PATH,
    directory=CODE_DIRECTORY,
    environment={
        "PYTHONPATH": f"{CODE_DIRECTORY}:{PYTHON_DIRECTORY}",
        "PYTHONUNBUFFERED": "1",
        LOG_VARIABLE: FAILPOINT_LOG_PATH,
    },
)

UNPACK_COMMAND = f"mkdir -p {CODE_DIRECTORY} && tar -xzf - -C {CODE_DIRECTORY}"

FORMAT_COMMAND = (
    f"cd {CODE_DIRECTORY} && PYTHONPATH={CODE_DIRECTORY}:{PYTHON_DIRECTORY} "
    f"python3 -m cluster.node --format {CONFIG_PATH}"
)
"""Makes the data directory that of the node named in the configuration, once."""


def code_archive() -> bytes:
    """The source of the node program's packages, as installed here, in a gzipped tar."""
    root = Path(__file__).resolve().parents[2]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=4) as archive:
        for package in PACKAGES:
            for path in sorted((root / package).rglob("*.py")):
                archive.add(path, path.relative_to(root).as_posix())
    return buffer.getvalue()

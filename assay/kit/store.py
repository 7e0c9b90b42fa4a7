"""A store of integers by key, in one process: each change is appended to a file and synced before it is answered.

`python3 store.py PORT FILE`. A request is a line, and so is its answer:
    r KEY: its value, or nil      w KEY VALUE: ok      cas KEY OLD NEW: ok, or no VALUE
"""

from __future__ import annotations

import os
import socketserver
import sys
import threading
from typing import IO

SYNCS = True
"""Whether changes are kept on the disk; else a kill loses them."""


class CellStore:
    """Cells, and the file that has every change of them."""

    def __init__(self, path: str) -> None:
        self.cells: dict[str, str] = {}
        self.one_at_a_time = threading.Lock()
        self.log: IO[str] = open(path, "a+")  # noqa: SIM115 - for as long as the process lives
        self.log.seek(0)
        whole, newline, _ = self.log.read().rpartition("\n")
        self.log.truncate(len(whole + newline))  # the last line may have been cut short, and was not answered then
        self.cells.update((key, value) for key, value in map(str.split, whole.splitlines()))

    def answer(self, command: str, key: str, *values: str) -> str:
        """Carry out one request; what it changes is on the disk before the answer leaves."""
        with self.one_at_a_time:
            found = self.cells.get(key, "nil")
            if command == "r":
                return found
            if command == "cas" and found != values[0]:
                return f"no {found}"
            if SYNCS:
                self.log.write(f"{key} {values[-1]}\n")
                self.log.flush()
                os.fsync(self.log.fileno())
            self.cells[key] = values[-1]
            return "ok"


def serve(port: int, path: str) -> None:
    """Answer everybody who connects, until the process is ended."""
    store = CellStore(path)

    class Connection(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            for line in self.rfile:
                self.wfile.write(store.answer(*line.decode().split()).encode() + b"\n")

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = daemon_threads = True
        request_queue_size = 128

    with Server(("", port), Connection) as server:
        print(f"{len(store.cells)} cells; serving on port {port}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.argv[2])

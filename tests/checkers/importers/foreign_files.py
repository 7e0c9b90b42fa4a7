"""A small history in each format: public files where there are any, else made after the layout."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

PUBLIC: Final = Path(__file__).parents[2] / "data" / "histories"

EDN: Final = b"""{:process 0 :type :invoke :f :write :value 1 :time 1}
{:process 0 :type :ok :f :write :value 1 :time 2}
{:process 1 :type :invoke :f :read :value nil :time 3}
{:process 1 :type :ok :f :read :value 1 :time 4}
"""
_JSON: Final = (
    b'{"process":0,"type":"invoke","f":"write","value":1,"time":1}',
    b'{"process":0,"type":"ok","f":"write","value":1,"time":2}',
)
_EVENTS: Final = b"0\t:invoke\t:write\t1\n0\t:ok\t:write\t1\n:nemesis\t:info\t:start\tnil\n1\t:invoke\t:read\tnil\n"

_START: Final = b"2026-01-01"


def _event(write: bool, key: int, value: int, success: bool = True) -> bytes:
    return struct.pack("<?qq?", write, key, value, success)


def _transaction(*events: bytes, committed: bool = True) -> bytes:
    return struct.pack("<q", len(events)) + b"".join(events) + struct.pack("<?", committed)


def bincode(*sessions: tuple[bytes, ...]) -> bytes:
    """The bytes of a history.bincode with the given sessions of transactions."""
    text = struct.pack("<q", len(_START)) + _START
    body = b"".join(struct.pack("<q", len(session)) + b"".join(session) for session in sessions)
    return struct.pack("<5q", 0, len(sessions), 2, 3, 4) + 3 * text + struct.pack("<q", len(sessions)) + body


BINCODE: Final = bincode(
    (_transaction(_event(True, 7, 1), _event(False, 8, 0)), _transaction(_event(True, 7, 2), committed=False)),
    (_transaction(_event(False, 7, 1), _event(True, 9, 5, success=False)),),
)

COBRA: Final = {
    "T0.log": struct.pack(">cqcqqqcq", b"S", 1, b"W", 11, -7, 100, b"C", 1),
    "T1.log": struct.pack(
        ">cqcqqqqcqqqqcq", b"S", 2, b"R", 1, 11, -7, 100, b"R", 0xBEBEEBEE, 0xBEBEEBEE, 8, 0, b"C", 2
    ),
}

FILES: Final[dict[str, bytes]] = {
    "edn": EDN,
    "json": b"[" + b",\n".join(_JSON) + b"]",
    "json-lines": b"\n".join(_JSON) + b"\n",
    "jepsen-log": b"INFO  jepsen.util - 0\t:invoke\t:write\t1\nINFO  jepsen.util - 0\t:ok\t:write\t1\n",
    "jepsen-text": _EVENTS + b"1\t:fail\t:read\tnil\t:timeout\n",
    "awdit-text": b"w 0 1\nr 1 0\n-----\nr 0 1\n=====\n",
    "plume-text": b"w(0,1,0,0)\nr(0,1,1,1)\n",
    "dbcop-json": (PUBLIC / "write-skew.json").read_bytes(),
    "hist": (PUBLIC / "write-skew.hist").read_bytes(),
    "bincode": BINCODE,
    "porcupine-json": (PUBLIC / "operations.json").read_bytes(),
}
"""By format a file."""


def cobra(folder: Path) -> Path:
    """Make a folder of logs as Cobra writes them, and return its path."""
    folder.mkdir()
    for name, data in COBRA.items():
        (folder / name).write_bytes(data)
    return folder

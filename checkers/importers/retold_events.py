"""Formats that come to Jepsen's events: history.txt, JSON lines, and operations as Porcupine and etcd's robustness
tests keep them.

An operation of Porcupine's is a JSON object with `ClientId`, `Input`, `Call`, `Output` and `Return`, one a line or in
an array. Of etcd, reads of a key and unconditional puts are reads and writes of registers, if there is nothing else;
what ended in an error is of unknown outcome. Any other operation is a `call` whose value has its input and its output,
which a model of one's own can read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

from checkers.importers.blocks import BYTE_ORDER_MARK, Data
from checkers.importers.jepsen import IN_MEMORY_BYTES, ReadingPlan, on_disk, open_edn, open_json
from checkers.source import Source
from harness.errors import UNDECODABLE, UserError


def _kept(data: Data, pieces: Iterator[bytes]) -> Data:
    return b"".join(pieces) if len(data) <= IN_MEMORY_BYTES else on_disk(pieces)


def _lines(data: Data) -> Iterator[bytes]:
    begin = len(BYTE_ORDER_MARK) if data[:3] == BYTE_ORDER_MARK else 0
    while begin < len(data):
        end = data.find(b"\n", begin)
        end = len(data) if end < 0 else end
        yield data[begin:end].rstrip(b"\r")
        begin = end + 1


def open_jepsen_text(path: Path, data: Data, plan: ReadingPlan | None = None) -> Source:
    """Jepsen's history.txt: process, type, f, value and perhaps an error, with tabs between them."""
    if data[-1:] not in (b"", b"\n"):
        line = data[:].count(b"\n") + 1
        raise UserError(f"{path}, line {line}: the last line has no end, so the text is truncated.")
    edn = _kept(data, (_text_event(path, number, line) for number, line in enumerate(_lines(data), 1)))
    return replace(open_edn(path, edn, plan), format="jepsen-text")


def _text_event(path: Path, number: int, line: bytes) -> bytes:
    if not line.strip():
        return b"\n"
    fields = line.split(b"\t")
    if not 4 <= len(fields) <= 5 or not fields[1].startswith(b":"):
        shown = line[:40].decode(errors="replace")
        raise UserError(f"{path}, line {number}: {shown!r} is no event: a process, :type, :f and a value, by tabs.")
    error = b" :error " + fields[4] if len(fields) == 5 else b""
    return b"{:process %s :type %s :f %s :value %s%s}\n" % (*fields[:4], error)


def open_json_lines(path: Path, data: Data, plan: ReadingPlan | None = None) -> Source:
    """Jepsen's events as JSON, an object a line."""

    def array() -> Iterator[bytes]:
        yield b"["
        empty = True
        for line in _lines(data):
            yield (b"" if empty or not line.strip() else b",") + line + b"\n"
            empty = empty and not line.strip()
        yield b"]"

    return replace(open_json(path, _kept(data, array()), plan), format="json-lines")


class _Operation(msgspec.Struct):
    """One of Porcupine's; times are in any unit."""

    ClientId: int
    Input: Any
    Call: int
    Output: Any
    Return: int


_ALONE: Final = msgspec.json.Decoder(_Operation)
_ARRAY: Final = msgspec.json.Decoder(list[_Operation])


def open_porcupine(path: Path, data: Data) -> Source:
    """Operations of Porcupine's, or of etcd's robustness tests; raises UserError naming the line that is none."""
    operations = list(_operations(path, data[:].removeprefix(BYTE_ORDER_MARK)))
    plain = [_etcd(operation) for operation in operations]
    events = list[tuple[int, int, int, dict[str, Any]]]()
    for place, (operation, known) in enumerate(zip(operations, plain, strict=True)):
        if operation.Return < operation.Call or operation.Call < 0:
            raise UserError(f"{path}: operation {place + 1} ends before it begins.")
        f, asked, found = known if all(plain) and known is not None else _call(operation)
        who = {"process": operation.ClientId, "f": f}
        type = "info" if _failed(operation) else "ok"
        events.append((operation.Call, 0, place, who | {"type": "invoke", "value": asked, "time": operation.Call}))
        events.append((operation.Return, 1, place, who | {"type": type, "value": found, "time": operation.Return}))
    ordered = sorted(events, key=lambda event: event[:3])
    text = b"[" + b",\n".join(msgspec.json.encode(event) for *_, event in ordered) + b"]"
    source = replace(open_json(path, text), format="porcupine-json")
    return _with_revisions(source, sorted(operations, key=lambda operation: operation.Call)) if all(plain) else source


def _with_revisions(source: Source, operations: list[_Operation]) -> Source:
    """The reads and writes of etcd with the revisions that they were told: the store's, and that of what was read or
    written."""
    if source.table is None:
        return source
    told = [(None, None) if _failed(operation) else _revisions(operation.Output) for operation in operations]
    table = source.table
    for name, column in zip(("served_ts", "write_ts"), zip(*told, strict=True), strict=True):
        table = table.set_column(table.column_names.index(name), name, pa.array(column, pa.int64()))
    return replace(source, table=table)


def _revisions(output: dict[str, Any]) -> tuple[int | None, int | None]:
    store = output.get("Revision") or None
    pairs = (output.get("Range") or {}).get("KVs")
    return store, store if pairs is None else pairs[0].get("ModRevision") if pairs else None


def _operations(path: Path, data: bytes) -> Iterable[_Operation]:
    found: list[_Operation] = []
    begin = 1
    try:
        if data.lstrip().startswith(b"["):
            return _ARRAY.decode(data)
        for begin, line in enumerate(data.split(b"\n"), 1):  # noqa: B007 - told if it can't be read
            if line.strip():
                found.append(_ALONE.decode(line))
    except UNDECODABLE as error:
        raise UserError(f"{path}, line {begin}: this is no operation of Porcupine's ({error}).") from error
    return found


def _failed(operation: _Operation) -> bool:
    output = operation.Output
    return output is None or (isinstance(output, dict) and bool(output.get("Error") or output.get("PartialResponse")))


def _call(operation: _Operation) -> tuple[str, Any, Any]:
    asked = {"input": operation.Input}
    return "call", asked, asked if _failed(operation) else asked | {"output": operation.Output}


def _etcd(operation: _Operation) -> tuple[str, Any, Any] | None:
    """A read of a key, or a put, as f and the values of invocation and completion; None for anything else."""
    try:
        asked, output = operation.Input, operation.Output
        if asked["Type"] == "range" and not asked["Range"]["End"] and not asked["Range"]["Revision"]:
            key = asked["Range"]["Start"]
            pairs = [] if _failed(operation) else output["Range"]["KVs"]
            return "read", [key, None], [key, _etcd_value(pairs[0]["Value"]) if pairs else None]
        (put,) = asked["Txn"]["OperationsOnSuccess"]
        if asked["Type"] != "txn" or asked["Txn"]["Conditions"] or put["Type"] != "put-operation":
            return None
        value = [put["Put"]["Key"], _etcd_value(put["Put"]["Value"])]
        return None if put["Put"]["LeaseID"] else ("write", value, value)
    except (KeyError, TypeError, ValueError):
        return None


def _etcd_value(value: dict[str, Any]) -> str:
    return f"hash {value['Hash']}" if value["Hash"] else str(value["Value"])

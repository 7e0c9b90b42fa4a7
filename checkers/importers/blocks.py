"""Cuts the text of a history into blocks of whole operations, so that memory does not grow with the text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from mmap import mmap
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
import numpy as np

from checkers.importers.tape import (
    CLOSED,
    COMPLETE,
    EDN_CLASSES,
    FULL,
    JSON_CLASSES,
    MOST_DEPTH,
    OPEN_BRACKET,
    OPEN_STRING,
    PROBLEMS,
    Tape,
    empty_tape,
    scan,
    skip_blanks,
)
from harness.errors import UNDECODABLE, UserError

BLOCK_BYTES: Final = 4 << 20

Data: TypeAlias = bytes | mmap

_BYTES_PER_TOKEN: Final = 2
_MOST_BYTES: Final = (1 << 31) - 16
_LISTS: Final = {ord("["): ord("]"), ord("("): ord(")")}
BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class TextBlock:
    """Whole operations in the order of the text; `final` says that nothing comes behind them."""

    tape: Tape
    final: bool


class BlockReader:
    """Reads operations one after the other, or in one list, that many bytes at a time (None: all at once).

    Raises UserError, naming file, line and reason, where the text is not well-formed.
    """

    def __init__(self, path: Path, data: Data, json: bool, block_bytes: int | None = BLOCK_BYTES) -> None:
        self._path, self._data, self._json = path, data, json
        self._classes = JSON_CLASSES if json else EDN_CLASSES
        self._block_bytes = min(len(data), block_bytes or len(data))
        self._stack, self._children = np.empty(MOST_DEPTH, np.int64), np.empty(MOST_DEPTH, np.int64)
        self._room = empty_tape(np.empty(0, np.uint8), self._block_bytes // _BYTES_PER_TOKEN + 16, 1)
        self._place, self._line, self._first = 0, 1, True
        self._closer = 0
        self._begin()

    def next(self, carried: bytes = b"") -> TextBlock:
        """The next block, with the operations of the carried text before its own."""
        size = max(self._block_bytes, 4 * len(carried))
        while True:
            stop = min(self._place + size, len(self._data))
            text = carried + self._data[self._place : stop]
            if len(text) > _MOST_BYTES:
                raise UserError(f"{self._path}, line {self._line}: more than 2 GiB have to be read in one piece here.")
            block = self._tried(text, len(carried), stop == len(self._data))
            if block is not None:
                return block
            size *= 2

    def _begin(self) -> None:
        """Go behind the bracket of the list of operations, if there is one."""
        text = np.frombuffer(self._data, np.uint8)
        begin = skip_blanks(text, len(BYTE_ORDER_MARK) if self._data[:3] == BYTE_ORDER_MARK else 0, self._classes)
        opener = int(text[begin]) if begin < len(text) else 0
        self._closer = _LISTS.get(opener, 0)
        if self._json and opener != ord("["):
            raise UserError(f"{self._path}, line 1: this is not a JSON array of operations.")
        if begin == len(text):
            raise UserError(f"{self._path} is empty: it holds not even an empty list of operations.")
        self._advance(begin + (self._closer > 0))

    def _advance(self, place: int) -> None:
        self._line += self._data[self._place : place].count(b"\n")
        self._place = place

    def _tried(self, text: bytes, carried: int, final: bool) -> TextBlock | None:
        """The whole operations of a text, None if there is none but carried ones and more has to be read."""
        array = np.frombuffer(text, np.uint8)
        if len(self._room.kind) < len(text) // _BYTES_PER_TOKEN:
            self._room = empty_tape(array, len(text) // _BYTES_PER_TOKEN + 16, 1)
        tape = self._room._replace(text=array, first_line=self._line - text.count(b"\n", 0, carried))
        problem, position, done, count = scan(tape, self._classes, self._stack, self._children, final)
        if problem == FULL and done <= carried:
            self._room = empty_tape(array, 2 * len(self._room.kind), 1)
            return None
        ended = problem == CLOSED and array[position] == self._closer
        cut = problem == FULL or (not final and problem in (COMPLETE, OPEN_STRING, OPEN_BRACKET))
        if problem == COMPLETE and final and self._closer:
            problem = OPEN_BRACKET
        if ended or cut or problem == COMPLETE:
            if cut and done <= carried:
                return None
            used = text[carried : position if ended else done]
            self._check(used, tape.line_at(carried), ended)
            self._advance(self._place + len(used))
            if ended:
                self._check_end(self._place + 1)
            return TextBlock(_shortened(tape, count), not cut)
        raise UserError(f"{self._path}, line {tape.line_at(position)}: {PROBLEMS[problem]}.")

    def _check(self, used: bytes, line: int, ended: bool) -> None:
        """Raise UserError unless a text is UTF-8 and, if it is to be, JSON."""
        if not used.isascii():
            try:
                used.decode()
            except UnicodeDecodeError as error:
                line += used.count(b"\n", 0, error.start)
                raise UserError(f"{self._path}, line {line}: this is not UTF-8 text.") from error
        if self._json:
            self._check_json(used, line, ended)
        self._first = False

    def _check_json(self, used: bytes, line: int, ended: bool) -> None:
        rest = used.lstrip()
        first = self._first or (ended and not rest)
        if not first and not rest.startswith(b","):
            raise UserError(f"{self._path}, line {line}: this is not a JSON array (a comma is missing).")
        array = b"[" + (used if first else used.replace(b",", b" ", 1)) + b"]"
        try:
            operations = msgspec.json.decode(array, type=list[msgspec.Raw])
        except UNDECODABLE as error:
            position = re.search(r"byte (\d+)", str(error))
            line += used.count(b"\n", 0, int(position[1])) if position else used.count(b"\n")
            raise UserError(f"{self._path}, line {line}: this is not a JSON array of operations ({error}).") from error
        if not first and not operations:
            raise UserError(f"{self._path}, line {line}: this is not a JSON array (a comma has nothing behind it).")

    def _check_end(self, place: int) -> None:
        text = np.frombuffer(self._data, np.uint8)
        rest = skip_blanks(text, place, self._classes)
        if rest < len(text):
            line = self._line + self._data[self._place : rest].count(b"\n")
            raise UserError(
                f"{self._path}, line {line}: something follows the list of operations, so this is not a history."
            )


def _shortened(tape: Tape, count: int) -> Tape:
    kind, start, stop = tape.kind[:count], tape.start[:count], tape.stop[:count]
    return Tape(tape.text, kind, start, stop, tape.after[:count], tape.number[:count], tape.first_line)

"""A compiled reader of EDN and JSON text: flattens it into a tape of tokens.

Token i has a kind, the byte range of its text, and `after[i]`, the index behind it and all it contains, so that the
children of a collection are i + 1, after[i + 1], … up to after[i]. Comments and `#_` forms are left out. The tag of a
collection (`#jepsen.history.Op{…}`) is ignored, that of an atom (`#inst "…"`) is part of its text.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from checkers.compiled import lean, lean_inline

NULL: Final = 0
TRUE: Final = 1
FALSE: Final = 2
INTEGER: Final = 3
STRING: Final = 4
KEYWORD: Final = 5
OTHER: Final = 6
"""Floats, ratios, symbols, characters, tagged atoms, integers beyond 64 bits."""
VECTOR: Final = 7
LIST: Final = 8
MAP: Final = 9
SET: Final = 10
DISCARD: Final = 11

MOST_DEPTH: Final = 512

COMPLETE, FULL, STRAY_CLOSER, OPEN_STRING, OPEN_BRACKET, TOO_DEEP, ODD_MAP, NO_FORM, CLOSED = 0, -1, 1, 2, 3, 4, 5, 6, 7

PROBLEMS: Final = {
    STRAY_CLOSER: "a closing bracket does not match what was opened",
    OPEN_STRING: "the text ends inside a string",
    OPEN_BRACKET: "the text ends before every bracket is closed, so it is truncated",
    TOO_DEEP: f"brackets are nested deeper than {MOST_DEPTH}",
    ODD_MAP: "a map has a key without a value",
    NO_FORM: "this is not EDN",
    CLOSED: "a closing bracket does not match what was opened",
}

Bytes = npt.NDArray[np.uint8]

# Characters that the reader knows, by their code. All are ASCII, and no byte of a longer UTF-8 character is.
_NEWLINE: Final = ord("\n")
_DOUBLE_QUOTE: Final = ord('"')
_ESCAPE: Final = ord("\\")
_SHARP: Final = ord("#")
_UNDERSCORE: Final = ord("_")
_COLON: Final = ord(":")
_PLUS: Final = ord("+")
_MINUS: Final = ord("-")
_ZERO: Final = ord("0")
_BIG: Final = ord("N")
"""Ends an integer of any size in EDN."""
_SMALL_A: Final = ord("a")
_SMALL_Z: Final = ord("z")
_CASE: Final = ord("a") - ord("A")
"""The bit that a small letter has and a capital lacks."""
_PARENTHESIS: Final = ord("(")
_END_PARENTHESIS: Final = ord(")")
_BRACKET: Final = ord("[")
_END_BRACKET: Final = ord("]")
_BRACE: Final = ord("{")
_END_BRACE: Final = ord("}")
_NIL: Final = tuple(b"nil")
_NULL: Final = tuple(b"null")
_TRUE: Final = tuple(b"true")
_FALSE: Final = tuple(b"false")

_LOWEST: Final = -(2**63)
_LOWEST_TENTH: Final = -(2**63 // 10)
"""An integer that is less than this can't take another digit; one that is equal takes up to 8, the last of _LOWEST."""
_MOST_DIGITS: Final = 18
"""Digits of which any integer fits 64 bits."""

_ATOM, _BLANK, _OPENS, _CLOSES, _QUOTE, _COMMENT, _HASH, _BACKSLASH = range(8)


def _classes(**members: bytes) -> Bytes:
    table = np.full(256, _ATOM, np.uint8)
    codes = {"blank": _BLANK, "opens": _OPENS, "closes": _CLOSES, "quote": _QUOTE, "comment": _COMMENT}
    for name, members_of in members.items():
        table[list(members_of)] = (codes | {"hash": _HASH, "backslash": _BACKSLASH})[name]
    return table


EDN_CLASSES: Final = _classes(
    blank=b" \t\n\v\f\r,\x1c\x1d\x1e\x1f",
    opens=b"([{",
    closes=b")]}",
    quote=b'"',
    comment=b";",
    hash=b"#",
    backslash=b"\\",
)
JSON_CLASSES: Final = _classes(blank=b" \t\n\r,:", opens=b"[{", closes=b"]}", quote=b'"')
"""What each byte is; the grammar of JSON is checked apart."""


class Tape(NamedTuple):
    """The tokens of `text`, which begins in line `first_line`; `number` is the value of INTEGER tokens (others: to be
    filled by who interns them)."""

    text: Bytes
    kind: npt.NDArray[np.int8]
    start: npt.NDArray[np.int32]
    stop: npt.NDArray[np.int32]
    after: npt.NDArray[np.int32]
    number: npt.NDArray[np.int64]
    first_line: int

    def bytes(self, token: int) -> bytes:
        """The token's own text as it stands."""
        return self.text[self.start[token] : self.stop[token]].tobytes()

    def raw(self, token: int) -> str:
        """The token's own text."""
        return self.bytes(token).decode("utf-8", "replace")

    def line(self, token: int) -> int:
        """The line on which the token begins, counted from 1."""
        return self.line_at(int(self.start[token]))

    def line_at(self, position: int) -> int:
        """The line of a byte position in the text."""
        return self.first_line + int(np.count_nonzero(self.text[:position] == _NEWLINE))


def empty_tape(text: Bytes, tokens: int, first_line: int) -> Tape:
    """A tape with room for that many tokens."""
    start, stop, after = (np.empty(tokens, np.int32) for _ in range(3))
    return Tape(text, np.empty(tokens, np.int8), start, stop, after, np.empty(tokens, np.int64), first_line)


@lean_inline
def _ends_atom(code):
    return code >= _BLANK and code <= _COMMENT


@lean
def _is(text, start, stop, word):
    """Whether an atom is that word."""
    place = 0
    while place < len(word) and start + place < stop and text[start + place] == word[place]:
        place += 1
    return place == len(word) and start + place == stop


@lean
def _word(text, start, stop):
    """The kind of an atom that is no integer."""
    if text[start] == _COLON:
        return KEYWORD
    if _is(text, start, stop, _NIL):
        return NULL
    if _is(text, start, stop, _TRUE):
        return TRUE
    if _is(text, start, stop, _NULL):
        return NULL
    return FALSE if _is(text, start, stop, _FALSE) else OTHER


@lean
def _classify(text, start, stop):
    """The kind of an atom and its number: the way for what is no short integer."""
    first = text[start]
    place = start + 1 if first in (_MINUS, _PLUS) else start
    end = stop - 1 if text[stop - 1] == _BIG else stop
    # Neither EDN nor JSON lets an integer begin with 0, and no integer of 64 bits has more digits than _LOWEST.
    if end <= place or end - place > _MOST_DIGITS + 1 or (text[place] == _ZERO and end - place > 1):
        return _word(text, start, stop), np.int64(0)
    # `value` is the number so far, negated: of 64-bit integers only the lowest has no counterpart of the other sign.
    value = np.int64(0)
    for i in range(place, end):
        digit = np.int64(text[i]) - _ZERO
        if digit < 0 or digit > 9:
            return _word(text, start, stop), np.int64(0)
        if value < _LOWEST_TENTH or (value == _LOWEST_TENTH and digit > 8):
            return OTHER, np.int64(0)
        value = value * 10 - digit
    if first == _MINUS:
        return INTEGER, value
    if value == np.int64(_LOWEST):
        return OTHER, np.int64(0)
    return INTEGER, -value


@lean_inline
def _atom(text, place, classes):
    """Where the atom that begins here ends, its kind and its number."""
    size = text.shape[0]
    # Nearly all atoms are short plain integers: read as one, before anything else is known of what begins here.
    first = place + 1 if text[place] == _MINUS else place
    stop, value = first, np.int64(0)
    while stop < size:
        digit = np.int64(text[stop]) - _ZERO
        if digit < 0 or digit > 9:
            break
        value = value * 10 + digit
        stop += 1
    short = stop - first
    plain = short == 1 or (short > 1 and short <= _MOST_DIGITS and text[first] != _ZERO)
    if plain and (stop == size or _ends_atom(classes[text[stop]])):
        return stop, INTEGER, -value if first > place else value
    if classes[text[place]] == _BACKSLASH:  # a character such as \( or \", which ends nothing
        stop = min(place + 2, size)
    while stop < size and not _ends_atom(classes[text[stop]]):
        stop += 1
    kind, number = _classify(text, place, stop)
    return stop, kind, number


@lean_inline
def _string_end(text, place):
    """The position behind the closing quote of the string that opens here, or -1."""
    size = text.shape[0]
    place += 1
    while place < size:
        if text[place] == _ESCAPE:
            place += 1
        elif text[place] == _DOUBLE_QUOTE:
            return place + 1
        place += 1
    return -1


@lean_inline
def _line_end(text, place):
    while place < text.shape[0] and text[place] != _NEWLINE:
        place += 1
    return place


@lean_inline
def _collection(text, place):
    """Which collection opens here and how many bytes that takes."""
    c = text[place]
    if c == _BRACKET:
        return VECTOR, 1
    if c == _BRACE:
        return MAP, 1
    if c == _PARENTHESIS:
        return LIST, 1
    return (SET, 2) if text[place + 1] == _BRACE else (DISCARD, 2)


@lean
def _close(tape, place, stack, children, depth, count):
    """A closing bracket: the problem, or COMPLETE."""
    if depth == 0:
        return CLOSED
    c, token = tape.text[place], stack[depth - 1]
    kind = tape.kind[token]
    fits = c == _END_BRACE and kind in (MAP, SET)
    fits = fits or (c == _END_BRACKET and kind == VECTOR) or (c == _END_PARENTHESIS and kind == LIST)
    if not fits:
        return STRAY_CLOSER
    if kind == MAP and children[depth - 1] % 2 == 1:
        return ODD_MAP
    tape.after[token] = count
    tape.stop[token] = place + 1
    return COMPLETE


@lean_inline
def _settle(tape, stack, children, depth, count):
    """A form has ended: drop it if it was to be discarded, else count it in its collection. (depth, tokens, kept)"""
    if depth > 0 and tape.kind[stack[depth - 1]] == DISCARD:
        return depth - 1, stack[depth - 1], False
    if depth > 0:
        children[depth - 1] += 1
    return depth, count, True


@lean
def _tag_end(text, place, classes):
    """The position behind the tag that begins here, -1 if the text ends in it, -2 if it is none."""
    size = text.shape[0]
    letter = text[place + 1] | _CASE
    if letter < _SMALL_A or letter > _SMALL_Z:
        return -2
    while place < size and not _ends_atom(classes[text[place]]):
        place += 1
    return place if place < size else -1


# The invariant of `scan`: at the head of its loop, text[:place] is on the tape. It is `count` tokens, of which
# stack[:depth] are the collections (and discards) that are open, the innermost last, with children[:depth] forms each.
# `tagged` is where a tag began whose form is still to come, else -1. text[:done] is whole forms, of done_count tokens.
@lean
def scan(tape, classes, stack, children, final):
    """Fill the tape. Returns (problem or COMPLETE, its position, behind the last whole form, tokens up to there).
    CLOSED is a closing bracket behind whole forms.

    Unless the text is `final`, its last atom counts as whole only if something follows it.
    """
    text = tape.text
    depth, count, place, size, tagged = 0, 0, 0, text.shape[0], -1
    done, done_count = 0, 0
    while True:
        while place < size and classes[text[place]] == _BLANK:
            place += 1
        if place >= size:
            return (OPEN_BRACKET if depth > 0 or tagged >= 0 else COMPLETE), place, done, done_count
        if count >= tape.kind.shape[0]:
            return FULL, place, done, done_count
        code = classes[text[place]]
        if code == _COMMENT:
            place = _line_end(text, place)
            continue
        if code == _HASH and place + 1 >= size:
            return OPEN_BRACKET, place, done, done_count
        # #{ opens a set; #_ opens a discard, which closes with the next form and takes it along.
        if code == _OPENS or (code == _HASH and (text[place + 1] == _BRACE or text[place + 1] == _UNDERSCORE)):
            kind, width = _collection(text, place)
            if depth >= MOST_DEPTH or (kind == DISCARD and tagged >= 0):
                return (TOO_DEEP if depth >= MOST_DEPTH else NO_FORM), place, done, done_count
            tape.kind[count], tape.start[count] = kind, place
            stack[depth], children[depth] = count, 0
            # The tag of a collection is forgotten: an operation is a map, whatever record Jepsen made of it.
            depth, count, place, tagged = depth + 1, count + 1, place + width, -1
            continue
        if code == _HASH and text[place + 1] != _SHARP:  # ##Inf and ##NaN are atoms, #inst and the like are tags
            end = _tag_end(text, place, classes)
            if end < 0:
                return (OPEN_BRACKET if end == -1 else NO_FORM), place, done, done_count
            tagged, place = (place if tagged < 0 else tagged), end
            continue
        if code == _CLOSES:
            problem = NO_FORM if tagged >= 0 else _close(tape, place, stack, children, depth, count)
            if problem != COMPLETE:
                return problem, place, done, done_count
            depth, place, whole = depth - 1, place + 1, True
        else:
            token, start = count, place
            if code == _QUOTE:
                place, kind, number = _string_end(text, place), STRING, np.int64(0)
                if place < 0:
                    return OPEN_STRING, start, done, done_count
            else:
                place, kind, number = _atom(text, place, classes)
            if tagged >= 0:  # an atom takes its tag into its text: what #inst "…" means is nobody's business here
                start, kind, number, tagged = tagged, OTHER, np.int64(0), -1
            tape.kind[token], tape.start[token], tape.stop[token] = kind, start, place
            tape.after[token], tape.number[token] = token + 1, number
            # An atom that the text ends with may go on in the next block of it; a string or a bracket can't.
            count, whole = count + 1, final or place < size
        depth, count, kept = _settle(tape, stack, children, depth, count)
        if depth == 0 and kept and whole:
            done, done_count = place, count


@lean
def skip_blanks(text, place, classes):
    """The next byte that is neither blank nor comment."""
    while place < text.shape[0]:
        if classes[text[place]] == _COMMENT:
            place = _line_end(text, place)
        elif classes[text[place]] != _BLANK:
            break
        else:
            place += 1
    return place

"""Four kinds of failure, four classes: definite, unknown, the user's mistake, ours (see `runs.md`, "Words")."""

from __future__ import annotations

from typing import Final

import msgspec

UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoders raise of bytes that somebody else wrote, or that were damaged: no JSON (or MessagePack) of that type;
text in it that is no UTF-8; more brackets in each other than can be read."""


ELSEWHERE = "elsewhere"
"""The error class of an operation that a node refused because others serve what it is about."""


MOST_CHARACTERS: Final = 200
"""Of a value that somebody else wrote, as it is told."""

_OF_ITS_END: Final = 40
"""Of those: values often differ at their ends."""

MOST_OF_A_SENTENCE: Final = 4_000
"""Characters of a sentence, which may name many values."""


def shortened(text: str, most: int = MOST_CHARACTERS) -> str:
    """The text, or so much of a long one, with its length: `aaa…aab (5,000,000 characters)`."""
    if len(text) <= most:
        return text
    return f"{text[: most - _OF_ITS_END]}…{text[-_OF_ITS_END:]} ({len(text):,} characters)"


class DefiniteError(Exception):
    """The operation did not take effect, for certain; it is recorded as `fail`.

    `kind` is a short stable word such as `cas-mismatch`, `not-found`, `refused`; the message is for people.
    """

    def __init__(self, kind: str, message: str = "") -> None:
        super().__init__(message or kind)
        self.kind = kind


class IndefiniteError(Exception):
    """The operation may or may not have taken effect; it is recorded as `info` (a timeout is never `fail`)."""

    def __init__(self, kind: str, message: str = "") -> None:
        super().__init__(message or kind)
        self.kind = kind


class UserError(Exception):
    """The user asked for something impossible or gave unreadable input.

    The message is one sentence that says what is wrong and what to do; the command line exits with 254.
    """

    def __init__(self, message: object = "") -> None:
        super().__init__(shortened(str(message), MOST_OF_A_SENTENCE))


class HarnessError(Exception):
    """The harness itself failed (SSH, Docker, disk, a bug of ours); never turned into a verdict; exit code 255."""


class UnwritableError(HarnessError):
    """A file can't be written: the volume is full or read-only, or something stands in its place.

    In a run it is a failure of the harness; a command that was told to write there exits with 254.
    """


class NoScratchError(UnwritableError):
    """Nothing can be kept for a while, wherever the result is to lie."""

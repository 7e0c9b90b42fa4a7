"""The trace of a run: a running blake2b over every step, message and disk write, so that two runs can be compared."""

from __future__ import annotations

from array import array
from hashlib import blake2b
from itertools import count

FLUSH_WORDS = 1024
"""Words that are hashed at once: few enough that what they are about is still in the processor's cache."""

STEP_OF_NETWORK = -1
NOTIFY, CALL, REPLY, APPEND, FSYNC, FILE, KILL, PAUSE, RESUME, START, CRASH, END = (-code for code in range(2, 14))
"""Kinds of record. Negative, and incarnations are tagged below -100: a word that is not is a time or a record."""

FIRST_INCARNATION_TAG = -100
RECORD = 1 << 62
"""A record is one word: above every time, with the incarnation's tag and its kind (`Trace.record`)."""


class Trace:
    """Collects words (times, tags, records) and payloads, and hashes them in batches.

    `words` is public so that the loop may append to it directly: the time, ns, when it advances, and the tag of the
    incarnation at every step. So is `payloads`, for the network: a message is a word of its kind and its bytes.
    """

    __slots__ = ("_length_hash", "_payload_hash", "_tags", "_word_hash", "payloads", "words")

    def __init__(self) -> None:
        self.words: list[int] = []
        self.payloads: list[bytes] = []
        self._word_hash = blake2b(digest_size=32)
        self._length_hash = blake2b(digest_size=32)
        self._payload_hash = blake2b(digest_size=32)
        self._tags = count(FIRST_INCARNATION_TAG, -1)

    def new_tag(self) -> int:
        """A tag that no other incarnation of this run has."""
        return next(self._tags)

    def record(self, kind: int, tag: int, payload: bytes) -> None:
        """A message delivered to, or a write made by, the incarnation with this tag."""
        self.words.append(RECORD - (tag << 4) - kind)
        self.payloads.append(payload)

    def flush_if_full(self) -> None:
        if len(self.words) > FLUSH_WORDS:
            self._flush()

    def digest(self) -> str:
        """The digest of everything recorded so far, in hexadecimal; recording may go on."""
        self._flush()
        parts = (self._word_hash, self._length_hash, self._payload_hash)
        return blake2b(b"".join(part.digest() for part in parts), digest_size=32).hexdigest()

    def _flush(self) -> None:
        # The list is emptied in place: the loop holds a reference to it. Three hashes, so that where a batch ends does
        # not matter; one is of the payloads' lengths, so that payloads can't be shifted against each other.
        self._word_hash.update(array("q", self.words))
        self.words.clear()
        self._length_hash.update(array("q", map(len, self.payloads)))
        self._payload_hash.update(b"".join(self.payloads))
        self.payloads.clear()

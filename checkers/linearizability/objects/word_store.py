"""States of objects as interned words: equal contents have equal numbers, so a search compares numbers only."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from checkers.columns.codes import Ids, Ints
from checkers.compiled import lean, lean_inline, make_record
from checkers.linearizability.search_loop import NO_ROOM


class WordStore(NamedTuple):
    """Word `i` is `pool[start[i]:start[i] + size[i]]`; words may share their symbols, and no two are equal."""

    pool: Ids  # symbols of all words; the first `stock.symbols` are taken
    start: Ints  # by word its place in `pool`
    size: Ids  # by word its length in symbols
    table: Ids  # open addressing: a word's number, -1: free; four times as long as there may be words
    place: Ids  # by word where it stands in `table`: table[place[i]] == i
    stock: np.record  # by the fields of STOCK
    buffer: Ids  # where a new word is written, to be interned


STOCK: Final = (
    "words",  # how many there are
    "symbols",  # how much of `pool` they take
)


def make_store(words: int, longest: int) -> WordStore:
    """Room for that many words (a power of two) of up to `longest` symbols."""
    symbols = min(words * (longest + 1), max(16 * words, 4 * longest)) + longest + 1
    pool, buffer = np.empty(symbols, np.int32), np.empty(longest + 1, np.int32)
    table, place = np.full(4 * words, -1, np.int32), np.empty(words, np.int32)
    return WordStore(
        pool, np.empty(words, np.int64), np.empty(words, np.int32), table, place, make_record(STOCK), buffer
    )


@lean
def empty(store):
    """Forget all words."""
    for word in range(store.stock.words):
        store.table[store.place[word]] = -1
    store.stock.words, store.stock.symbols = 0, 0


@lean_inline
def symbol(store, word, place):
    """One symbol of a word."""
    return store.pool[store.start[word] + place]


@lean_inline
def spell(store, word, first, last, to):
    """Copy symbols `first:last` of a word into the buffer, from place `to` on."""
    start = store.start[word]
    for i in range(last - first):
        store.buffer[to + i] = store.pool[start + first + i]


@lean_inline
def _find(store, symbols, begin, size):
    """Where in the table a word is or belongs."""
    mixed = np.uint64(0x9E3779B97F4A7C15) + np.uint64(size)
    for i in range(begin, begin + size):
        mixed = (mixed ^ np.uint64(symbols[i])) * np.uint64(0xD6E8FEB86659FD93)
        mixed ^= mixed >> np.uint64(32)
    # Linear probing. The table has four times as many places as there are words, so some place is free.
    mask = store.table.shape[0] - 1
    place = np.int64(mixed & np.uint64(mask))
    while store.table[place] >= 0:
        word = store.table[place]
        if store.size[word] == size:
            same, first = True, store.start[word]
            for i in range(size):
                if store.pool[first + i] != symbols[begin + i]:
                    same = False
                    break
            if same:
                return place
        place = (place + 1) & mask
    return place


@lean_inline
def _enter(store, place, start, size):
    word = store.stock.words
    if word >= store.start.shape[0]:
        return np.int32(NO_ROOM)
    store.start[word], store.size[word], store.place[word] = start, size, place
    store.table[place] = word
    store.stock.words += 1
    return np.int32(word)


@lean
def intern(store, size):
    """The number of the word in the first `size` symbols of the buffer, or NO_ROOM."""
    place = _find(store, store.buffer, 0, size)
    if store.table[place] >= 0:
        return store.table[place]
    start = store.stock.symbols
    if start + size > store.pool.shape[0]:
        return np.int32(NO_ROOM)
    word = _enter(store, place, start, size)
    if word >= 0:
        for i in range(size):
            store.pool[start + i] = store.buffer[i]
        store.stock.symbols += size
    return word


@lean
def without_first(store, word):
    """The number of the word without its first symbol, which takes no new symbols, or NO_ROOM."""
    start, size = store.start[word] + 1, store.size[word] - 1
    place = _find(store, store.pool, start, size)
    return store.table[place] if store.table[place] >= 0 else _enter(store, place, start, size)


@lean
def with_last(store, word, last):
    """The number of the word with a symbol more, or NO_ROOM; grows in place where the word is the pool's last."""
    start, size = store.start[word], store.size[word]
    if start + size == store.stock.symbols and start + size < store.pool.shape[0]:
        store.pool[start + size] = last
        place = _find(store, store.pool, start, size + 1)
        if store.table[place] >= 0:
            return store.table[place]
        longer = _enter(store, place, start, size + 1)
        if longer >= 0:
            store.stock.symbols += 1
        return longer
    spell(store, word, 0, size, 0)
    store.buffer[size] = last
    return intern(store, size + 1)


def kept(store: WordStore, words: list[int], room: int) -> tuple[WordStore, dict[int, int]]:
    """A store of `room` words with the given ones only, and their new numbers."""
    new, numbers = make_store(room, len(store.buffer) - 1), {}
    if room * 4 > len(store.table):
        new = new._replace(pool=np.empty(max(len(new.pool), 2 * len(store.pool)), np.int32))
    elif len(new.pool) < len(store.pool):
        new = new._replace(pool=np.empty(len(store.pool), np.int32))
    for word in words:
        start, size = int(store.start[word]), int(store.size[word])
        new.buffer[:size] = store.pool[start : start + size]
        numbers[word] = int(intern(new, size))
    return new, numbers


def word_at(store: WordStore, word: int) -> tuple[int, ...]:
    """The symbols of a word."""
    start = int(store.start[word])
    return tuple(int(x) for x in store.pool[start : start + int(store.size[word])])

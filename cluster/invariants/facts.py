"""What every replica of a Raft group has to agree on, kept by log index in bounded memory."""

from __future__ import annotations

from array import array

KEPT = 1 << 16
"""Positions kept at least: well above what a replica can be behind and still replay from its own log."""


class Positions:
    """A 64-bit fact for each log index with the number of who stated it: the first to state one is believed.

    `last` is the highest index that has a place, 0 for none. The oldest are let go of once there are more than twice
    `kept`. 0 stands for "not stated" and is never a fact.
    """

    __slots__ = ("_facts", "_kept", "_tellers", "base", "last")

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._facts = array("Q")
        self._tellers = array("H")
        self.base = 1
        self.last = 0

    def get(self, index: int) -> int:
        """The fact at `index`, or 0."""
        at = index - self.base
        return self._facts[at] if 0 <= at < len(self._facts) else 0

    def teller(self, index: int) -> int:
        """Who stated the fact at `index`, where there is one."""
        return self._tellers[index - self.base]

    def claim(self, index: int, fact: int, teller: int) -> tuple[int, int]:
        """State a fact, and learn which stands at `index` and who stated it: unless another came first and is still
        kept, it is this one."""
        facts, at = self._facts, index - self.base
        length = len(facts)
        if 0 <= at < length:
            known = facts[at]
            if known != 0:
                return known, self._tellers[at]
            facts[at], self._tellers[at] = fact, teller
            return fact, teller
        if at == length:
            facts.append(fact)
            self._tellers.append(teller)
            self.last = index
            if at >= 2 * self._kept:
                self._forget(self._kept)
            return fact, teller
        return (fact, teller) if at < 0 else self._claim_ahead(index, fact, teller)

    def _claim_ahead(self, index: int, fact: int, teller: int) -> tuple[int, int]:
        missing = index - self.base - len(self._facts)
        if missing > self._kept:
            self._forget(len(self._facts))
            self.base = index
        else:
            self._facts.extend([0] * missing)
            self._tellers.extend([0] * missing)
        return self.claim(index, fact, teller)

    def _forget(self, count: int) -> None:
        del self._facts[:count], self._tellers[:count]
        self.base += count

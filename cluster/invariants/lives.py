"""The lives of nodes, numbered in the order in which they began."""

from __future__ import annotations

from collections.abc import Iterable


class Lives:
    """A life is a node's process from its start to its end; incarnations count from 1."""

    def __init__(self) -> None:
        self._lives: list[tuple[str, int]] = []

    def begin(self, node: str, incarnation: int) -> int:
        """The number of a life that begins now."""
        self._lives.append((node, incarnation))
        return len(self._lives) - 1

    def latest(self, node: str) -> int:
        """The number of the node's last life."""
        return max(number for number, life in enumerate(self._lives) if life[0] == node)

    def node(self, life: int) -> str:
        """Whose life it is."""
        return self._lives[life][0]

    def names(self, lives: Iterable[int]) -> tuple[str, ...]:
        """Nodes by name; where two lives of one node are meant, each with its incarnation."""
        chosen = [self._lives[life] for life in dict.fromkeys(lives)]
        several = len(dict.fromkeys(node for node, _ in chosen)) < len(chosen)
        return tuple(f"{node} (incarnation {incarnation})" if several else node for node, incarnation in chosen)

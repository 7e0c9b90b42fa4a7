"""No invariant goes without a test that names it: one that nothing is compared with would never be missed."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
INVARIANTS = HERE.parents[2] / "cluster" / "invariants"


def invariants() -> dict[str, str]:
    """Names of invariants by the constants that hold them."""
    found = {}
    for path in sorted(INVARIANTS.glob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                value = node.value
                if isinstance(value, ast.Constant) and isinstance(value.value, str) and "-" in value.value:
                    found[node.targets[0].id] = value.value
    return found


def named(text: str, known: dict[str, str]) -> set[str]:
    """The invariants that a test file compares something with: by their names, or by constants beside their import."""
    constants = known if "cluster.invariants" in text else {}
    by_constant = [known[each] for each in constants if len(re.findall(rf"\b{each}\b", text)) > 1]
    return {*by_constant, *(name for name in known.values() if f'"{name}"' in text)}


def test_every_invariant_is_compared_with_by_some_test() -> None:
    """That the test breaks it can't be seen from here: an invariant that no test names has surely none that does."""
    known = invariants()
    assert {"ONE_LEADER", "COMMITTED_PREFIX", "CACHES", "CALLS_COMMITTED", "ONE_NAME", "MEMBERS_STAY"} <= set(known)
    tests = [path.read_text() for path in sorted(HERE.parent.rglob("test_*.py"))]
    assert sorted(set().union(*(named(text, known) for text in tests))) == sorted(known.values())

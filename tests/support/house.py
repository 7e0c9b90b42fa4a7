"""The measures of the house: `python -m tests.support.house [ROOT ...]` prints them, a row a package and checkout.

Code is what is left without blank lines, comments and docstrings; a package marker that holds nothing else is no
module.
"""

from __future__ import annotations

import ast
import io
import re
import statistics
import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parents[2]
PRODUCT = ("harness", "cluster", "checkers", "nemesis", "workloads", "results", "assay", "bench")
PACKAGES = (*PRODUCT, "tests")

LAYERS = (
    ("deploy", "health", "invariants"),
    ("node",),
    ("tserver", "master"),
    ("observer",),
    ("ranges", "quorum"),
    ("client", "groups"),
    ("inspection", "config"),
    ("wire",),
    ("store",),
    ("log",),
    ("raft",),
    ("knobs",),
    ("alarm", "failpoints", "flaws", "nodelog"),
)
"""The rooms of `cluster/`, the top floor first."""
FORMER_ROOMS = {
    **dict.fromkeys(("applying", "group", "group_spec", "membership", "passing", "proposals"), "groups"),
    **dict.fromkeys(("snapshot_traffic", "waiters"), "groups"),
    "clock_probes": "wire",
    "identity": "config",
}
"""The rooms of what stood at the root of `cluster/` in checkouts from before there were rooms."""

UNCLEAR = {"told", "hunt", "tops", "apart", "loose", "firm", "homes", "stretches", "crowded", "finer"}
"""Words that no name says: a reader of the field's papers would not know what is meant."""
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")

VAGUE = re.compile(r"\b(so many|such a one)\b", re.IGNORECASE)
GOES_ON = re.compile(
    r"Those\b|That (of|where|with)\b|(Also|And|But|Likewise)\b|The same( (of|for|with|where|as|in)\b|\W*$|,)"
)
"""How a sentence begins that is understood only by who has read the one before."""
GOES_ON_IF_SHORT = re.compile(r"(It|Its|They|Their|This|These|Both|The same)\b")
SHORT = 6
"""Words of a docstring; fewer that begin with a pronoun lean on what stands elsewhere."""


class Source(NamedTuple):
    """A module: its path within the checkout, and its text, parsed."""

    path: str
    text: str
    tree: ast.Module

    @property
    def is_marker(self) -> bool:
        """Whether it only marks its folder as a package."""
        return self.path.endswith("__init__.py") and all(is_docstring(node) for node in self.tree.body)


class Room(NamedTuple):
    """Modules that are measured together."""

    modules: Sequence[Source]

    @property
    def lengths(self) -> list[int]:
        """Lines of each module."""
        return [len(source.text.splitlines()) for source in self.modules]

    @property
    def median(self) -> float:
        """Lines of the median module."""
        return statistics.median(self.lengths or [0])

    @property
    def density(self) -> float:
        """Modules per 1 000 lines."""
        return 1_000 * len(self.modules) / max(1, sum(self.lengths))


def sources(root: Path, packages: Sequence[str] = PACKAGES) -> list[Source]:
    """The modules of these packages in a checkout, package markers aside."""
    paths = [path for package in packages for path in sorted((root / package).rglob("*.py"))]
    texts = [(path.relative_to(root).as_posix(), path.read_text()) for path in paths]
    found = [Source(path, text, ast.parse(text)) for path, text in texts]
    return [source for source in found if not source.is_marker]


def is_docstring(node: ast.AST) -> bool:
    """Whether a statement is a text alone: of a module, class or function, or below an attribute."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def lines_of(source: Source) -> tuple[int, int]:
    """Lines of code, and lines that hold a comment alone."""
    code: set[int] = set()
    comments: set[int] = set()
    silent = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type == tokenize.COMMENT:
            comments.add(token.start[0])
        elif token.type not in silent:
            code.update(range(token.start[0], token.end[0] + 1))
    for node in docstrings(source.tree):
        code.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(code), len(comments - code)


def docstrings(tree: ast.AST) -> Iterator[ast.Expr]:
    """The docstrings of a module, at any depth."""
    return (node for node in statements(tree) if isinstance(node, ast.Expr) and is_docstring(node))


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """All statements at any depth: a tenth of what `ast.walk` passes."""
    todo = [tree]
    while todo:
        node = todo.pop()
        yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            todo += getattr(node, name, ())


def upward_arrows(root: Path) -> list[tuple[str, str]]:
    """Pairs of modules of `cluster/` of which the first imports the second, which is in a room of a higher floor."""
    modules = {source.path.removesuffix(".py").replace("/", "."): source for source in sources(root, ("cluster",))}
    floors = {room: floor for floor, rooms in enumerate(LAYERS) for room in rooms}

    def floor(name: str) -> int:
        room = name.split(".")[1]
        return floors[FORMER_ROOMS.get(room, room)]

    pairs = sorted({(name, other) for name, source in modules.items() for other in imported(source.tree)})
    return [(name, other) for name, other in pairs if other in modules and floor(other) < floor(name)]


def imported(tree: ast.AST) -> Iterator[str]:
    """The names of modules that a module may import, and of what it takes from them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def unclear_names(source: Source) -> Iterator[str]:
    """Public names of modules, classes, functions, parameters and constants with a word of UNCLEAR; not of tests."""
    for line, name in ((1, Path(source.path).stem), *public_names(source.tree)):
        words = {word.lower() for word in WORD.findall(name)} & UNCLEAR
        if words and not name.startswith(("_", "test_")):
            yield f"{source.path}:{line}: {name} says {' and '.join(sorted(words))}"


def public_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """What a module, its classes and its functions call things, with the lines where they do."""
    for node in statements(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield from ((each.lineno, each.arg) for each in ast.walk(node.args) if isinstance(each, ast.arg))
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names = [each for target in targets if target for each in ast.walk(target) if isinstance(each, ast.Name)]
        yield from ((node.lineno, name.id) for name in names if isinstance(name.ctx, ast.Store))


def weak_docstrings(source: Source) -> Iterator[str]:
    """Docstrings that say too little, or that nobody understands who has not read the one before."""
    for node in docstrings(source.tree):
        text = " ".join(str(ast.literal_eval(node.value)).split())
        words = len(text.split())
        if words <= 2 or VAGUE.search(text) or GOES_ON.match(text) or (words < SHORT and GOES_ON_IF_SHORT.match(text)):
            yield f"{source.path}:{node.lineno}: {text}"


def table(roots: Sequence[Path]) -> Iterator[str]:
    """The measures of these checkouts, a package's rows below each other."""
    yield f"{'':12}{'code':>8}{'lines':>8}{'modules':>9}{'median':>8}{'a 1 000':>9}{'comments':>10}"
    for title, packages in (*((name, (name,)) for name in PACKAGES), ("product", PRODUCT)):
        for room in (Room(sources(root, packages)) for root in roots):
            code, comments = map(sum, zip(*map(lines_of, room.modules), strict=True))
            lines = sum(room.lengths)
            sizes = f"{code:8}{lines:8}{len(room.modules):9}{room.median:8.0f}"
            yield f"{title:12}{sizes}{room.density:9.1f}{100 * comments / lines:9.1f}%"
    for arrows in map(upward_arrows, roots):
        yield f"cluster/: {len(arrows)} pairs of modules with an arrow upwards, from {len(dict(arrows))} modules"


if __name__ == "__main__":
    print("\n".join(table([Path(name).resolve() for name in sys.argv[1:]] or [HERE])))

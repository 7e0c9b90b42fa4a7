"""Mutants of the cluster's decision code: every one-place change that a dozen operators make, and how one is put into
this process (DeMillo, Lipton and Sayward 1978; the operators are Offutt's, and some of distributed code).

`sites(path)` names them, `plant(site)` changes the running program: the changed function alone, compiled from its tree,
so that whoever holds the function runs the mutant from then on.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from types import CodeType, FunctionType
from typing import Any, Final, NamedTuple

import msgspec

ROOT: Final = Path(__file__).parents[2]
PLANTED: Final = "ASSAY_MUTANT"
AREAS: Final = ("raft", "groups", "ranges", "quorum", "store", "log", "master", "tserver", "client")
"""Folders of `cluster/` that decide something."""

_MOVED: Final = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_FLIPPED: Final = {
    ast.Lt: ast.Gt,
    ast.Gt: ast.Lt,
    ast.LtE: ast.GtE,
    ast.GtE: ast.LtE,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Site:
    """One mutant: the `number`-th change that the operator makes in the function (`Class.method`) of the file, whose
    statement stands on the lines `first` to `last`; `before` and `after` are its text."""

    path: str
    function: str
    operator: str
    number: int
    first: int
    last: int
    before: str
    after: str

    @property
    def name(self) -> str:
        """An id of twelve hex digits that other changes of the file leave as it is."""
        words = "\0".join((self.path, self.function, self.operator, self.before, self.after, str(self.number)))
        return hashlib.sha256(words.encode()).hexdigest()[:12]

    @property
    def area(self) -> str:
        return Path(self.path).parts[1]


class _Place(NamedTuple):
    """A node, how another is put in its place (an attribute of its parent, or an element of one), and the innermost
    statement that it is part of."""

    node: ast.AST
    parent: ast.AST
    field: str
    index: int | None
    statement: ast.stmt

    def put(self, node: ast.AST | list[ast.stmt]) -> None:
        if self.index is None:
            setattr(self.parent, self.field, node)
        elif isinstance(node, list):
            getattr(self.parent, self.field)[self.index : self.index + 1] = node
        else:
            getattr(self.parent, self.field)[self.index] = node


class _Change(NamedTuple):
    """What an operator puts in a place: a node, or statements."""

    operator: str
    place: _Place
    new: ast.AST | list[ast.stmt]


def _places(function: _Function) -> Iterator[_Place]:
    """Every node of the body, the outer before the inner; no annotations, no docstring."""
    first = 1 if ast.get_docstring(function) is not None else 0
    waiting = [_Place(node, function, "body", first + i, node) for i, node in enumerate(function.body[first:])]
    while waiting:
        place = waiting.pop()
        yield place
        for field, value in ast.iter_fields(place.node):
            if field in ("annotation", "returns", "decorator_list"):
                continue
            for index, inner in enumerate(value) if isinstance(value, list) else [(None, value)]:
                if isinstance(inner, ast.AST):
                    statement = inner if isinstance(inner, ast.stmt) else place.statement
                    waiting.append(_Place(inner, place.node, field, index, statement))


# ---- operators: what may stand in a place instead ----


def _comparisons(place: _Place) -> Iterator[_Change]:
    node = place.node
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        for name, table in (("comparison-moved", _MOVED), ("comparison-flipped", _FLIPPED)):
            if (other := table.get(type(node.ops[0]))) is not None:
                yield _Change(name, place, ast.Compare(node.left, [other()], node.comparators))


def _conditions(place: _Place) -> Iterator[_Change]:
    if place.field != "test" or isinstance(place.parent, ast.Assert):
        return
    assert isinstance(place.node, ast.expr)
    yield _Change("condition-negated", place, ast.UnaryOp(ast.Not(), place.node))
    if not isinstance(place.parent, ast.While):
        yield _Change("condition-true", place, ast.Constant(True))
    yield _Change("condition-false", place, ast.Constant(False))


def _connectives(place: _Place) -> Iterator[_Change]:
    node = place.node
    if isinstance(node, ast.BoolOp):
        yield _Change("and-or", place, ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values))
        for i in range(len(node.values)):
            left = node.values[:i] + node.values[i + 1 :]
            yield _Change("operand-dropped", place, left[0] if len(left) == 1 else ast.BoolOp(node.op, left))


def _extremes(place: _Place) -> Iterator[_Change]:
    node = place.node
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
        other = ast.Name("max" if node.func.id == "min" else "min", ast.Load())
        yield _Change("min-max", place, ast.Call(other, node.args, node.keywords))


def _off_by_one(place: _Place) -> Iterator[_Change]:
    node = place.node
    if isinstance(node, ast.Constant) and type(node.value) is int:
        yield _Change("off-by-one", place, ast.Constant(node.value + 1))
        if node.value > 0:
            yield _Change("off-by-one", place, ast.Constant(node.value - 1))


def _dropped(place: _Place) -> Iterator[_Change]:
    node = place.node
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await):
        yield _Change("await-dropped" if isinstance(node.value, ast.Await) else "call-dropped", place, ast.Pass())
        if isinstance(node.value, ast.Await) and isinstance(node.value.value, ast.Call):
            later = ast.parse("__import__('asyncio').ensure_future(x)", mode="eval").body
            assert isinstance(later, ast.Call)
            later.args = [node.value.value]
            yield _Change("not-awaited", place, ast.Expr(later))
    elif isinstance(node, ast.AugAssign | ast.Raise | ast.Delete | ast.Break | ast.Continue) or (
        isinstance(node, ast.Assign) and not any(isinstance(target, ast.Name) for target in node.targets)
    ):
        yield _Change("statement-dropped", place, ast.Pass())


def _exchanged(place: _Place) -> Iterator[_Change]:
    if place.index is None or not isinstance(place.node, ast.Expr | ast.Assign | ast.AugAssign):
        return
    body = getattr(place.parent, place.field)
    behind = body[place.index + 1] if place.index + 1 < len(body) else None
    if isinstance(behind, ast.Expr | ast.Assign | ast.AugAssign) and not _names_made(place.node) & _names(behind):
        # The one behind stands twice for a moment: what stood here goes to its place.
        yield _Change("statements-exchanged", place, [behind, place.node])


def _names(node: ast.AST) -> frozenset[str]:
    return frozenset(each.id for each in ast.walk(node) if isinstance(each, ast.Name))


def _names_made(node: ast.AST) -> frozenset[str]:
    return frozenset(n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))


def _other_variables(function: _Function, place: _Place) -> Iterator[_Change]:
    """Another parameter that is declared alike."""
    node = place.node
    if not (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)):
        return
    arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    kinds = {each.arg: ast.unparse(each.annotation) for each in arguments if each.annotation is not None}
    for other, kind in kinds.items():
        if other != node.id and kinds.get(node.id) == kind:
            yield _Change("another-variable", place, ast.Name(other, ast.Load()))


def _early_return(function: _Function, place: _Place) -> Iterator[_Change]:
    returns = function.returns
    if (
        place.parent is function
        and isinstance(place.node, ast.stmt)
        and not isinstance(place.node, ast.Return | ast.Pass)
        and isinstance(returns, ast.Constant)
        and returns.value is None
    ):
        yield _Change("early-return", place, [ast.Return(None), place.node])


_OPERATORS: Final[Sequence[Callable[[_Place], Iterator[_Change]]]] = (
    _comparisons,
    _conditions,
    _connectives,
    _extremes,
    _off_by_one,
    _dropped,
    _exchanged,
)


def _changes(function: _Function) -> Iterator[_Change]:
    for place in _places(function):
        for operator in _OPERATORS:
            yield from operator(place)
        yield from _other_variables(function, place)
        yield from _early_return(function, place)


# ---- files ----


def _functions(tree: ast.Module) -> Iterator[tuple[str, _Function]]:
    """The outermost functions, with their qualified names."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            bases = {ast.unparse(base) for base in node.bases}
            if "Protocol" not in bases:
                for each in node.body:
                    if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                        yield f"{node.name}.{each.name}", each


def _shown(node: ast.AST | list[ast.stmt]) -> str:
    text = "; ".join(map(ast.unparse, node)) if isinstance(node, list) else ast.unparse(node)
    return " ".join(text.split())[:120]


def sites(path: str) -> list[Site]:
    """All mutants of a file, whose path is relative to the repository, in its order."""
    found, tree = [], ast.parse((ROOT / path).read_text())
    for name, function in _functions(tree):
        counts: dict[str, int] = {}
        for change in _changes(function):
            node, number = change.place.node, counts.get(change.operator, 0)
            counts[change.operator] = number + 1
            statement = change.place.statement
            last = statement.body[0].lineno - 1 if hasattr(statement, "body") else statement.end_lineno
            found.append(
                Site(
                    *(path, name, change.operator, number, statement.lineno, max(statement.lineno, last or 0)),
                    *(_shown(node), _shown(change.new)),
                )
            )
    return found


@cache
def all_sites() -> tuple[Site, ...]:
    """All mutants of the decision code that can be planted."""
    files = sorted(each for area in AREAS for each in (ROOT / "cluster" / area).rglob("*.py"))
    paths = [str(each.relative_to(ROOT)) for each in files]
    return tuple(site for path in paths for site in sites(path) if _found(path, site.function) is not None)


def sample(count: int, seed: str) -> list[Site]:
    """That many mutants, evenly over areas and in each over operators, as the seed has them."""
    entropy, by_area = Random(seed), dict[str, dict[str, list[Site]]]()
    for site in all_sites():
        by_area.setdefault(site.area, {}).setdefault(site.operator, []).append(site)
    chosen: list[Site] = []
    while len(chosen) < count and by_area:
        area = AREAS[len(chosen) % len(AREAS)]
        operators = by_area[area]
        site = entropy.choice(operators[entropy.choice(sorted(operators))])
        if site not in chosen:
            chosen.append(site)
    return chosen


# ---- planting ----


def _mutated(site: Site) -> CodeType:
    """The code of the function with the change made."""
    tree = ast.parse((ROOT / site.path).read_text())
    function = dict(_functions(tree))[site.function]
    alike = [change for change in _changes(function) if change.operator == site.operator]
    change = alike[site.number]
    if change.operator == "statements-exchanged":
        place = change.place
        assert place.index is not None and isinstance(change.new, list)
        getattr(place.parent, place.field)[place.index : place.index + 2] = change.new
    else:
        change.place.put(change.new)
    code = compile(ast.fix_missing_locations(tree), str(ROOT / site.path), "exec", dont_inherit=True)
    found = _code_of(code, site.function)
    assert found is not None, site
    return found


def _code_of(code: CodeType, qualified: str) -> CodeType | None:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_qualname == qualified:
                return constant
            if qualified.startswith(f"{constant.co_qualname}.") and (inner := _code_of(constant, qualified)):
                return inner
    return None


def _found(path: str, qualified: str) -> FunctionType | None:
    """The function as the running program has it, below what decorates it."""
    module = importlib.import_module(path.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    holder: Any = module
    for part in qualified.split("."):
        holder = vars(holder).get(part)
        if holder is None:
            return None
    for _ in range(4):
        if isinstance(holder, FunctionType):
            return holder if holder.__code__.co_qualname == qualified else None
        for name in ("__wrapped__", "__func__", "fget", "func"):
            if hasattr(holder, name):
                holder = getattr(holder, name)
                break
    return None


def plant(site: Site) -> None:
    """Make this process run the mutant, for good."""
    function = _found(site.path, site.function)
    if function is None:
        raise ValueError(f"{site.function} of {site.path} is not a function of its module")
    function.__code__ = _mutated(site)


def pytest_configure() -> None:
    """As a plugin of pytest (`-p tests.support.mutation`): plant the mutant that the environment names, as JSON."""
    if PLANTED in os.environ:
        plant(msgspec.json.decode(os.environ[PLANTED], type=Site))

"""Databases, workloads, nemeses and models that are not ours: found in files and in installed packages, by name.

Installed packages give them as entry points of the groups in `GROUPS`; files are named by the user on the command line.
Nothing is imported before it is named there or listed, and nothing ever because a saved run names it. What was found
once stays as it is for the life of the process, and of those that it forks.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from types import ModuleType
from typing import Any, Final

from packaging.requirements import Requirement

from assay.plugin import DatabasePlugin
from harness.errors import UserError
from harness.own_code import OwnCode, is_own_file, own_file
from nemesis.kinds.api import FaultKind
from nemesis.registry import KINDS, NEMESES, SCRIPTS, ScriptInfo
from workloads.api import Workload, resolved
from workloads.registry import WORKLOADS

REFERENCE: Final = "reference"
"""The name of the cluster that is ours; a run without `--database` is of it."""

BUILT_IN: Final[Mapping[str, str]] = {
    name: f"assay.databases.{name}" for name in ("etcd", "postgresql", "redis", "mariadb")
}
"""Databases that come with assay, by the module whose `PLUGIN` each is; their clients' packages are extras."""

GROUPS: Final = {kind: f"assay.{kind}" for kind in ("databases", "workloads", "nemeses", "models")}
MOST_NODES = 50
_NAME: Final = re.compile(r"[a-z][a-z0-9-]*")


@dataclass(frozen=True, slots=True)
class Discovered:
    """What was found under a name, and where: `origin` is for `run.json`; `code` is the file, if it is of one."""

    value: Any
    origin: Mapping[str, str]
    code: OwnCode | None = None

    def blamed(self, error: BaseException) -> str:
        """A sentence about an error of its code, with file and line where that is known."""
        return str(self.code.blamed(error)) if self.code is not None else f"{type(error).__name__}: {error}."


@cache
def find_database(word: str) -> Discovered:
    """The plugin that `--database NAME` or `FILE.py[:NAME]` names; raises UserError, in one sentence, for none, for
    several, for code that can't be run, for a plugin that is not whole, and for packages that it lacks."""
    found = _in_file(word) if is_own_file(word) else _installed("databases", word)
    require_whole(found.value, word)
    require_packages(found.value.name, found.value.requires)
    return found


def require_whole(plugin: Any, word: str) -> None:
    """Raise UserError for a plugin that can't be used as it is."""
    if not isinstance(plugin, DatabasePlugin) or isinstance(plugin, type):
        raise UserError(f"{word} is no database: it has to be an object of a class that derives from DatabasePlugin.")
    if not isinstance(plugin.name, str) or not _NAME.fullmatch(plugin.name):
        raise UserError(f"{word} is named {plugin.name!r}; names are of small letters, digits and dashes.")
    if plugin.image and plugin.packages:
        raise UserError(f"{word} names both `image` and `packages`; packages are for the image that assay makes.")
    if not 1 <= plugin.default_nodes <= MOST_NODES:
        raise UserError(f"{word} has {plugin.default_nodes} nodes by default; there can be 1 to {MOST_NODES}.")


def require_packages(name: str, requires: Sequence[str]) -> None:
    """Raise UserError for a Python package that a database's client needs and that is not here, or in another
    version."""
    for text in requires:
        wanted = Requirement(text)
        try:
            there = metadata.version(wanted.name)
        except metadata.PackageNotFoundError:
            extra = f"assay[{name}]" if name in BUILT_IN else text
            raise UserError(f"The database {name!r} needs {text}; say pip install '{extra}'.") from None
        if not wanted.specifier.contains(there, prereleases=True):
            raise UserError(f"The database {name!r} needs {text}; {wanted.name} {there} is installed.")


def resolve_database_options(plugin: DatabasePlugin, given: Mapping[str, object]) -> dict[str, Any]:
    """A value for each of the plugin's options; raises UserError for an unknown one and for a value out of range."""
    return resolved(f"database {plugin.name!r}", plugin.options, given)


def _in_file(word: str) -> Discovered:
    code = own_file(word)
    module = code.run()
    if code.name:
        if not hasattr(module, code.name):
            raise UserError(f"{code.file} defines no {code.name}.")
        value = getattr(module, code.name)
        return Discovered(value, {**code.details, "name": getattr(value, "name", code.name)}, code)
    here = _defined(module, DatabasePlugin)
    if not here:
        raise UserError(f"{code.file} has no database: define an object of a class that derives from DatabasePlugin.")
    if len(here) > 1:
        names = " and ".join(here)
        raise UserError(f"{code.file} has several databases, {names}; name one as {code.file}:{next(iter(here))}.")
    value = next(iter(here.values()))
    return Discovered(value, {**code.details, "name": str(value.name)}, code)


def _defined(module: ModuleType, kind: Any) -> dict[str, Any]:
    """What a module has of a kind, by the name there, each once."""
    found: dict[str, Any] = {}
    for name, value in vars(module).items():
        new = all(value is not other for other in found.values())
        if isinstance(value, kind) and not isinstance(value, type | ModuleType) and new:
            found[name] = value
    return found


def _installed(kind: str, name: str) -> Discovered:
    if kind == "databases" and name in BUILT_IN:
        return _built_in(name)
    named = [point for point in metadata.entry_points(group=GROUPS[kind]) if point.name == name]
    if not named:
        known = ", ".join((REFERENCE, *BUILT_IN, *(point.name for point in metadata.entry_points(group=GROUPS[kind]))))
        what = kind[:-1] if kind != "nemeses" else "nemesis"
        raise UserError(f"There is no {what} {name!r}; there are {known}, and files, as FILE.py or FILE.py:NAME.")
    if len(named) > 1:
        places = " and ".join(sorted(str(point.dist.name if point.dist else point.value) for point in named))
        raise UserError(f"{name!r} is given by several packages, {places}; uninstall all but one.")
    return _loaded(named[0])


def _loaded(point: metadata.EntryPoint) -> Discovered:
    try:
        value = point.load()
    except (Exception, SystemExit) as error:
        raise UserError(f"{point.name} ({point.value}) can't be loaded: {type(error).__name__}: {error}.") from error
    dist = point.dist
    origin = {"distribution": dist.name, "version": dist.version} if dist is not None else {}
    return Discovered(value, {"name": point.name, "entry_point": point.value, **origin})


def _built_in(name: str) -> Discovered:
    try:
        module = importlib.import_module(BUILT_IN[name])
    except ModuleNotFoundError as error:
        raise UserError(f"The database {name!r} needs {error.name}; say pip install 'assay[{name}]'.") from error
    return Discovered(module.PLUGIN, {"name": name, "distribution": "assay", "version": metadata.version("assay")})


# ---- what else files and packages give ----


@cache
def load_plugins(files: tuple[str, ...]) -> None:
    """Add the workloads and nemeses of these files to those that there are; raises UserError for a file that has none,
    and for a name that is taken."""
    for word in files:
        code = own_file(word)
        module = code.run()
        kinds = (Workload, FaultKind, ScriptInfo)
        values: dict[str, Any] = {code.name: getattr(module, code.name, None)} if code.name else _defined(module, kinds)
        if not values or not all(isinstance(value, kinds) for value in values.values()):
            raise UserError(f"{code.spec} has no workload and no nemesis; databases are named with --database.")
        for name, value in values.items():
            _add(getattr(value, "name", name.lower().replace("_", "-")), value, code.spec)


def _add(name: str, value: Workload | FaultKind | ScriptInfo, where: str) -> None:
    if name in (WORKLOADS if isinstance(value, Workload) else NEMESES):
        raise UserError(f"{where} defines {name!r}, which there is already; name it otherwise.")
    if isinstance(value, Workload):
        WORKLOADS[name] = value
    elif isinstance(value, FaultKind):
        KINDS[name] = NEMESES[name] = value
    else:
        SCRIPTS[name] = NEMESES[name] = value


def load_named(kind: str, names: Iterable[str]) -> None:
    """Load those of these workloads or nemeses that an installed package gives, if they are not ours."""
    known = WORKLOADS if kind == "workloads" else NEMESES
    points = {point.name for point in metadata.entry_points(group=GROUPS[kind])}
    for name in names:
        if name not in known and name in points:
            _add(name, _installed(kind, name).value, name)


def installed_model(name: str) -> str:
    """FILE.py:NAME of the model that an installed package gives under a name; the name itself where none does."""
    points = [point for point in metadata.entry_points(group=GROUPS["models"]) if point.name == name]
    spec = importlib.util.find_spec(points[0].module) if len(points) == 1 else None
    return name if spec is None or spec.origin is None else f"{spec.origin}:{points[0].attr}"


def workload_names(wanted: str) -> list[str]:
    """The names of all workloads, that of an installed package among them if it is wanted."""
    load_named("workloads", (wanted,))
    return list(WORKLOADS)


def databases() -> Iterator[tuple[str, Discovered | str]]:
    """Every database that can be named, without those of files; instead of one that can't be used, why not."""
    names = [*BUILT_IN, *(point.name for point in metadata.entry_points(group=GROUPS["databases"]))]
    for name in dict.fromkeys(names):
        try:
            yield name, find_database(name)
        except UserError as error:
            yield name, str(error)

"""`assay cluster call`: each call of the metadata plane (M5) by hand, its arguments as NAME=VALUE."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cluster.client.catalog import CatalogClient
from cluster.store.schema import AddColumn, AlterStep, Column, DropColumn, RenameColumn
from harness.errors import UserError

Arguments = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class OperatorCall:
    """One call: its arguments, those that may be left out with what they are then (None: it must be there)."""

    arguments: Mapping[str, str | None]
    make: Callable[[CatalogClient, Arguments], Awaitable[Any]]

    def usage(self, name: str) -> str:
        words = [f"{key}=…" if default is None else f"[{key}={default}]" for key, default in self.arguments.items()]
        return " ".join([name, *words])


def columns(text: str) -> tuple[Column, ...]:
    """`k:int64:key,v:string` as columns; raises UserError."""
    return tuple(_column(part) for part in text.split(",") if part)


def _column(part: str) -> Column:
    name, _, rest = part.partition(":")
    kind, _, key = rest.partition(":")
    if not name or not kind or key not in ("", "key"):
        raise UserError(f"A column is NAME:TYPE or NAME:TYPE:key, not {part!r}.")
    return Column(-1, name, kind, nullable=key != "key", key=key == "key")


def steps(arguments: Arguments) -> tuple[AlterStep, ...]:
    """What `add`, `drop` and `rename` ask for, in this order; raises UserError."""
    made: list[AlterStep] = [AddColumn(column) for column in columns(arguments["add"])]
    made += [DropColumn(name) for name in arguments["drop"].split(",") if name]
    for pair in filter(None, arguments["rename"].split(",")):
        old, _, new = pair.partition(":")
        if not old or not new:
            raise UserError(f"A column is renamed by OLD:NEW, not {pair!r}.")
        made.append(RenameColumn(old, new))
    return tuple(made)


def _number(arguments: Arguments, name: str) -> int:
    try:
        return int(arguments[name])
    except ValueError as error:
        raise UserError(f"{name} takes a whole number, not {arguments[name]!r}.") from error


def _create(catalog: CatalogClient, given: Arguments) -> Awaitable[Any]:
    buckets, replicas = _number(given, "buckets"), _number(given, "replicas")
    return catalog.create_table(given["name"], columns(given["columns"]), buckets, replicas, given["design"])


def _alter(catalog: CatalogClient, given: Arguments) -> Awaitable[Any]:
    return catalog.alter_table(given["name"], steps(given), given["new_name"] or None)


_NAME: Final[Mapping[str, str | None]] = {"name": None}
_TABLE: Final = {"columns": "value:int64", "buckets": "1", "replicas": "3", "design": "raft"}

CALLS: Final[Mapping[str, OperatorCall]] = {
    "CreateTable": OperatorCall({**_NAME, **_TABLE}, _create),
    "IsCreateTableDone": OperatorCall(_NAME, lambda catalog, given: catalog.is_create_done(given["name"])),
    "AlterTable": OperatorCall({**_NAME, "add": "", "drop": "", "rename": "", "new_name": ""}, _alter),
    "IsAlterTableDone": OperatorCall(_NAME, lambda catalog, given: catalog.is_alter_done(given["name"])),
    "DeleteTable": OperatorCall(_NAME, lambda catalog, given: catalog.delete_table(given["name"])),
    "ListTables": OperatorCall({}, lambda catalog, given: catalog.list_tables()),
    "GetTableSchema": OperatorCall(_NAME, lambda catalog, given: catalog.table_schema(given["name"])),
    "GetTableLocations": OperatorCall(_NAME, lambda catalog, given: catalog.table_locations(given["name"])),
    "GetTabletLocations": OperatorCall(
        {"tablets": None}, lambda catalog, given: catalog.tablet_locations(given["tablets"].split(","))
    ),
    "ListTabletServers": OperatorCall({}, lambda catalog, given: catalog.tablet_servers()),
    "ListMasters": OperatorCall({}, lambda catalog, given: catalog.masters()),
}


def prepared(name: str, words: Sequence[str]) -> Callable[[CatalogClient], Awaitable[Any]]:
    """The call that the words ask for; raises UserError for what there is not, or not in this form."""
    if name not in CALLS:
        raise UserError(f"There is no call {name!r}; there are: {', '.join(CALLS)}.")
    call = CALLS[name]
    given: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or key not in call.arguments:
            raise UserError(f"{word!r} is no argument of {name}: {call.usage(name)}.")
        given[key] = value
    for key, default in call.arguments.items():
        if key not in given and default is None:
            raise UserError(f"{name} needs {key}: {call.usage(name)}.")
        given.setdefault(key, default or "")
    return lambda catalog: call.make(catalog, given)

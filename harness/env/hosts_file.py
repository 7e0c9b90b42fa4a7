"""The file of `--hosts`: machines that somebody has, and how to log in there."""

from __future__ import annotations

import ipaddress
import re
import tomllib
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from harness.errors import UserError

T = TypeVar("T")

NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")


class HostSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One machine: the node's `name`, the `address` (or DNS name) of its sshd, the IPv4 address on the network that
    faults act on (`data_address`; without it `address`), who logs in, and whether he becomes root by `sudo -n`.

    Without `key` the user's agent and own keys are tried, without `known_hosts` those of the user count.
    """

    name: str
    address: str
    data_address: str = ""
    user: str = "root"
    port: int = 22
    key: Path | None = None
    known_hosts: Path | None = None
    sudo: bool = False

    @property
    def where(self) -> str:
        return f"{self.name} ({self.address}:{self.port})"


class _HostsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    host: list[dict[str, Any]] = []
    user: str = "root"
    port: int = 22
    key: Path | None = None
    known_hosts: Path | None = None
    sudo: bool = False


def read_hosts(path: Path) -> tuple[HostSpec, ...]:
    """The machines of a hosts file: tables `[[host]]`; what stands before them holds for all that don't say otherwise.

    Paths are relative to the file; `~` is the user's home. Raises UserError, one sentence.
    """
    try:
        given = _as(tomllib.loads(path.read_text(encoding="utf-8")), _HostsFile)
        common = {name: getattr(given, name) for name in _HostsFile.__struct_fields__ if name != "host"}
        hosts = tuple(_checked(_as({**common, **each}, HostSpec), path) for each in given.host)
    except OSError as error:
        raise UserError(f"{path} can't be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is no file of hosts: {error}.") from error
    if not hosts:
        raise UserError(f"{path} names no hosts; give each a table [[host]] with name and address.")
    for what in ("name", "data_address"):
        values = [getattr(host, what) for host in hosts]
        if twice := next((value for value in values if values.count(value) > 1), None):
            raise UserError(f"{path} has two hosts with the {what} {twice}.")
    return hosts


def _as(value: object, kind: type[T]) -> T:
    return msgspec.convert(value, kind, dec_hook=lambda wanted, given: wanted(given))


def _checked(host: HostSpec, path: Path) -> HostSpec:
    if not NAME.fullmatch(host.name):
        raise UserError(f"{path}: {host.name!r} is no name of a host: small letters, digits and dashes.")
    if not 1 <= host.port <= 65_535:
        raise UserError(f"{path}: the port of {host.name} is {host.port}.")
    address = host.data_address or host.address
    try:
        ipaddress.IPv4Address(address)
    except ValueError:
        raise UserError(f"{path}: {host.name} needs a data_address, an IPv4 address; {address!r} is none.") from None
    files = {name: _resolved(getattr(host, name), path) for name in ("key", "known_hosts")}
    for name, file in files.items():
        if file is not None and not file.is_file():
            raise UserError(f"{path}: {host.name} has no {name} at {file}.")
    return msgspec.structs.replace(host, data_address=address, **files)


def _resolved(file: Path | None, path: Path) -> Path | None:
    return None if file is None else path.parent / file.expanduser()

"""The inputs of a run: its options and world, faults, client operations, and all that the simulator decided.

    inputs.json         version, options, `key`, `extend`, faults, digests of all three
    operations.jsonl    invocations of the load in their order, a line each (`harness.history.ops.Op`); process: thread
    decisions.msgpack   by stream (`harness.ports.sim.draws`) its decisions, each a little-endian float of 64 bits

Whatever is left out of them is drawn from `key` and from the options' seed. Of a run in real time they are options and
faults: nothing decides there, and its operations follow from the seed. `docs/design/reproduce.md` has the format.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from assay.options import PLACES, RunOptions
from assay.reproduce.saved_run import options_from
from harness.errors import UNDECODABLE, UserError
from harness.history.ops import Op
from harness.history.rundir import RunDir, write_atomic
from harness.history.table import nemesis_events
from harness.ports.sim.draws import PlayedDraws
from harness.run.spec import RunListener, Silent
from nemesis.kinds.api import Action
from nemesis.nemesis import FaultNemesis
from nemesis.planned import PlannedFault, as_action, as_saved, reaches_core

VERSION: Final = 1
INPUTS, OPERATIONS, DECISIONS = "inputs.json", "operations.jsonl", "decisions.msgpack"
LOAD: Final = "main"
"""The phase whose operations are inputs; what comes after it follows from the workload."""

_NODE: Final = re.compile(r"[mt]\d+")


@dataclass(frozen=True, slots=True)
class Inputs:
    """All that a run depends on beside the code. `key` seeds what is not recorded; with `extend` the load goes on while
    too little was seen, as any run's does. From virtual time `anew_ns` on no decision is a recorded one. With
    `own_load` the operations are those that the workload draws by the options' seed, and none are listed."""

    options: RunOptions
    faults: tuple[PlannedFault, ...] = ()
    operations: tuple[Op, ...] = ()
    decisions: Mapping[str, Sequence[float]] = field(default_factory=dict)
    key: str = ""
    extend: bool = True
    anew_ns: int | None = None
    own_load: bool = False

    def draws(self) -> PlayedDraws:
        """The simulator's choices."""
        return PlayedDraws(self.decisions, self.key or str(self.options.seed), self.anew_ns)

    def pinned(self, targets: str = "node") -> dict[int, Action]:
        """By instance what faults do; nothing of those that go by their role."""
        return {
            fault.instance: as_action(fault.action)
            for fault in self.faults
            if fault.action is not None and not (targets == "role" and fault.roles)
        }

    def digest(self) -> str:
        """Equal for inputs that say the same."""
        return _digest(*_encoded(self))[:32]


class _Saved(msgspec.Struct, frozen=True, omit_defaults=True):
    """What `inputs.json` holds."""

    version: int
    options: dict[str, Any]
    faults: tuple[PlannedFault, ...]
    key: str
    extend: bool
    anew_ns: int | None = None
    own_load: bool = False
    digests: dict[str, str] | None = None


def save_inputs(inputs: Inputs, folder: Path) -> None:
    """Write them into a folder, which is made; raises HarnessError."""
    saved, operations, decisions = _encoded(inputs)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / OPERATIONS, operations)
    write_atomic(folder / DECISIONS, decisions)
    whole = msgspec.json.decode(saved)
    digests = {INPUTS: _digest(_canonical(whole)), OPERATIONS: _digest(operations), DECISIONS: _digest(decisions)}
    text = msgspec.json.encode({**whole, "digests": digests})
    write_atomic(folder / INPUTS, msgspec.json.format(text, indent=1) + b"\n")


def load_inputs(folder: Path) -> Inputs:
    """What was saved; raises UserError for what is none, newer, edited, or contradicts itself."""
    path = folder / INPUTS
    try:
        raw = path.read_bytes()
        whole = msgspec.json.decode(raw, type=dict[str, Any])
        version = whole.get("version")
        if version != VERSION:
            raise UserError(f"{path} has version {version} of the format; this program reads version {VERSION}.")
        saved = msgspec.json.decode(raw, type=_Saved)
        operations, decisions = (folder / OPERATIONS).read_bytes(), (folder / DECISIONS).read_bytes()
    except OSError as error:
        raise UserError(f"{folder} has no inputs of a run: {Path(error.filename).name}: {error.strerror}.") from error
    except UNDECODABLE as error:
        raise UserError(f"{path} can't be read: {error}.") from error
    try:
        inputs = Inputs(
            options_from(saved.options),
            saved.faults,
            tuple(msgspec.json.Decoder(Op).decode_lines(operations)),
            {name: np.frombuffer(each, "<f8").tolist() for name, each in _streams(decisions).items()},
            saved.key,
            saved.extend,
            saved.anew_ns,
            saved.own_load,
        )
    except (*UNDECODABLE, ValueError, TypeError) as error:
        raise UserError(f"{folder} can't be read: {error}.") from error
    if saved.digests is not None:
        files = {INPUTS: _canonical(whole), OPERATIONS: operations, DECISIONS: decisions}
        _require_unedited(folder, saved.digests, files)
    _require_sound(folder, inputs)
    return inputs


def _encoded(inputs: Inputs) -> tuple[bytes, bytes, bytes]:
    left_out = {*PLACES, "targets"} - ({"hosts"} if inputs.options.hosts is not None else set())
    options = {name: value for name, value in inputs.options.as_dict().items() if name not in left_out}
    saved = _Saved(VERSION, options, inputs.faults, inputs.key, inputs.extend, inputs.anew_ns, inputs.own_load)
    operations = b"".join(msgspec.json.encode(op) + b"\n" for op in inputs.operations)
    kept = {name: each for name, each in sorted(inputs.decisions.items()) if len(each)}
    decisions = msgspec.msgpack.encode({name: np.asarray(each, "<f8").tobytes() for name, each in kept.items()})
    return msgspec.json.encode(saved, order="deterministic"), operations, decisions


def _digest(*parts: bytes) -> str:
    return blake2b(b"".join(blake2b(part).digest() for part in parts), digest_size=16).hexdigest()


def _streams(decisions: bytes) -> dict[str, bytes]:
    return msgspec.msgpack.decode(decisions, type=dict[str, bytes])


def _canonical(whole: Mapping[str, Any]) -> bytes:
    """What `inputs.json` says, however it is laid out, but for the digests."""
    said = {name: value for name, value in whole.items() if name != "digests"}
    return msgspec.json.encode(said, order="sorted")


def _require_unedited(folder: Path, digests: Mapping[str, str], files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        if digests.get(name) != _digest(data):
            how = f"leave `digests` out of {INPUTS} if that was meant"
            raise UserError(f"{folder / name} was edited since it was saved; {how}.")


def _require_sound(folder: Path, inputs: Inputs) -> None:
    """Raise UserError for what no run could carry out."""
    options = inputs.options
    if options.on != "sim" and inputs.decisions:
        raise UserError(f"{folder / DECISIONS} is of the simulator, and {options.on} decides for itself.")
    if inputs.own_load and inputs.operations:
        raise UserError(f"{path_of(folder)} leaves the operations to the workload, and {OPERATIONS} has some.")
    for before, after in zip(inputs.operations, inputs.operations[1:], strict=False):
        if after.time < before.time:
            raise UserError(f"{folder / OPERATIONS} goes back in time, from {before.time} to {after.time} ns.")
    for op in inputs.operations:
        if not 0 <= op.process < options.concurrency or op.type != "invoke" or op.time < 0:
            raise UserError(f"{folder / OPERATIONS} has an operation of thread {op.process} that no client can begin.")
    if len({fault.instance for fault in inputs.faults}) < len(inputs.faults):
        raise UserError(f"{path_of(folder)} has two faults of one instance number.")
    for fault in inputs.faults:
        _require_sound_fault(path_of(folder), fault, options)


def path_of(folder: Path) -> Path:
    """The file that has options and faults."""
    return folder / INPUTS


def _require_sound_fault(path: Path, fault: PlannedFault, options: RunOptions) -> None:
    from nemesis.registry import KINDS

    if not fault.scripted and fault.variant not in getattr(KINDS.get(fault.kind), "variants", ()):
        raise UserError(f"{path} has a fault {fault.kind} {fault.variant} that there is none of.")
    if fault.end_ns is not None and fault.end_ns < fault.begin_ns:
        raise UserError(f"{path} has fault {fault.instance} end before it begins.")
    for name in nodes_of(fault):
        if not 0 < int(name[1:]) <= (options.masters if name[0] == "m" else options.nodes):
            raise UserError(f"{path} has fault {fault.instance} hit {name}, a node that the run does not have.")
    if fault.action is not None:
        as_action(fault.action)


def nodes_of(fault: PlannedFault) -> Iterator[str]:
    """The nodes that a fault names."""
    return _nodes_in(fault.action)


def _nodes_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from (value,) if _NODE.fullmatch(value) else ()
    elif isinstance(value, Mapping):
        yield from (name for key, each in value.items() if key != "do" for name in _nodes_in(each))
    elif isinstance(value, (list, tuple)):
        yield from (name for each in value for name in _nodes_in(each))


def inputs_in_real_time(rundir: RunDir, options: RunOptions) -> Inputs:
    """The inputs of a saved run in real time: the faults that its history has, each of which chooses whom it hits, and
    the workload's own load. Raises UserError for a history that can't be read."""
    heard = Recording(Silent())
    for op in nemesis_events(rundir.history_parquet):
        heard.event(op)
    hosts = None if options.hosts is None else options.hosts.absolute()
    return Inputs(replace(options, hosts=hosts), heard.faults, own_load=True)


class Recording:
    """Hears a run and keeps its operations and faults. Implements `RunListener`; all is told to another as well."""

    def __init__(self, listener: RunListener) -> None:
        self._listener = listener
        self._threads = 1
        self._operations: list[Op] = []
        self._faults: dict[int, PlannedFault] = {}

    def event(self, op: Op) -> None:
        self._listener.event(op)
        if op.type == "invoke" and op.phase == LOAD and op.process >= 0:
            self._operations.append(msgspec.structs.replace(op, index=-1, phase=None))
        elif isinstance(op.value, dict) and "instance" in op.value and op.phase == LOAD:
            self._step(op, op.value)

    def _step(self, op: Op, told: Mapping[str, Any]) -> None:
        number = told["instance"]
        if op.type == "invoke" and told["step"] == "begin":
            settings, names = told.get("settings") or {}, told.get("names") or {}
            self._faults[number] = PlannedFault(
                number, told["fault"], told["variant"], told["seed"], op.time, settings=settings, names=names
            )
        elif (fault := self._faults.get(number)) is not None:
            ends = {"end_ns": op.time} if op.type == "invoke" and told["step"] == "end" else {}
            core = fault.core or (op.type != "invoke" and reaches_core(told))
            roles = tuple(f"{each['role']} of {each['group']}" for each in told.get("roles") or ())
            self._faults[number] = msgspec.structs.replace(fault, core=core, roles=roles or fault.roles, **ends)

    @property
    def faults(self) -> tuple[PlannedFault, ...]:
        """What was begun, with nothing said of what each did."""
        return tuple(self._faults.values())

    def inputs(
        self, options: RunOptions, nemesis: FaultNemesis, decisions: Mapping[str, Sequence[float]], extend: bool
    ) -> Inputs:
        """What was heard, with what else the run depended on; `options` have its whole world."""
        threads = options.concurrency
        operations = (msgspec.structs.replace(op, process=op.process % threads) for op in self._operations)
        done = {number: as_saved(action) for number, action in nemesis.chosen.items()}
        faults = (msgspec.structs.replace(each, action=done.get(each.instance)) for each in self.faults)
        return Inputs(options, tuple(faults), tuple(operations), decisions, "", extend)

    def stage(self, name: str) -> None:
        self._listener.stage(name)

    def waits(self, what: str) -> None:
        self._listener.waits(what)

    def stopping(self, stage: str, longest_s: float | None) -> None:
        self._listener.stopping(stage, longest_s)

    def given_up(self, rundir: RunDir, logs_left: str) -> None:
        self._listener.given_up(rundir, logs_left)

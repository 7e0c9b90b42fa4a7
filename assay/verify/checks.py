"""The checks: each tries one promise of a plugin on its running database, and tells in sentences where it is broken.

A sentence begins with the method that is to be looked at. A check leaves the database running as it found it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from assay.verify.machines import LosingProxy, Process, ProxiedEnvironment, own_addresses, ports, processes
from assay.verify.subject import Subject
from harness.capabilities import Capability
from harness.ports.machines import ProcessState, Skew
from harness.protocols import Client, ClockControl, Directed, GroupStatus, NodeStatus, failover_of
from harness.run.system_state import insist

Sentences = AsyncIterator[str]
Processes = dict[str, frozenset[Process]]

LOOK_S = 0.1
SKEW_S = 60.0
KEYS = range(7001, 7007)
"""Of them the nodes of a database that spreads its keys each hold some, most likely."""


class Untried(Exception):
    """There is nothing to be tried, and why."""


class Checks:
    """A database that was just started. `before` are the processes that each node had when nothing was."""

    def __init__(self, subject: Subject, before: Processes) -> None:
        self._subject = subject
        self._database = subject.database
        self._waits = subject.waits
        self._before = before

    # ---- at rest ----

    async def served_at_once(self) -> Sentences:
        """Serves as soon as `await_ready` returns."""
        self._needs(self._subject.way, "its clients neither read nor write registers, lists or sets")
        for sentence in await self._first_reads():
            yield sentence

    async def _first_reads(self) -> list[str]:
        """Of each key one, at once and all at a time."""
        if self._subject.way is None:
            return []
        found = await asyncio.gather(*(self._subject.fresh(self._subject.reading(key)) for key in KEYS))
        bad = [outcome for outcome in found if outcome.word != "ok"]
        return [f"await_ready: it returned, and the first read failed ({bad[0].why})."] if bad else []

    async def states(self) -> Sentences:
        """Says truly that its processes run, and answers its status."""
        for name in self._subject.names:
            if (state := await self._database.process_state(name)) is not ProcessState.RUNNING:
                yield f"process_state: {name} is called {state} while it serves."
        for name in await self._silent():
            yield f"status: {name} serves, and does not answer."

    async def second_start(self) -> Sentences:
        """Starting what runs changes nothing."""
        lives, were = await self._lives(), await self._all_processes()
        await self._each(self._database.start)
        await asyncio.sleep(self._waits.second_start)
        for name, found in (await self._own_processes()).items():
            known = _ids(were[name])
            new = [
                each for each in found if each.pid not in known and each.parent not in known - _ids(self._before[name])
            ]
            if new:
                yield f"start: a second one started {min(new, key=str)} on {name} beside what ran there."
        for name, life in (await self._lives()).items():
            if None not in (life, lives[name]) and life != lives[name]:
                yield f"start: a second one began another life of {name}, though it ran."

    async def seen_by_others(self) -> Sentences:
        """One client reads what another wrote."""
        self._needs(self._subject.way, "its clients neither read nor write registers, lists or sets")
        for key in KEYS:
            value = next(iter(self._subject.values))
            written = await self._subject.fresh(self._subject.writing(key, value))
            if written.word != "ok":
                yield f"Client.invoke: a write without any fault ended {written.word} ({written.why})."
            elif not await self._subject.appears(key, value):
                yield f"Client.invoke: a client wrote {value} to {key}, and another never read it."

    async def nothing_tried_again(self) -> Sentences:
        """A write whose answer is lost is unknown, and is not tried again behind our back."""
        self._needs(self._subject.way and self._subject.behind, "its clients can't be led through a proxy")
        assert self._subject.behind is not None
        proxy, names = LosingProxy(), self._subject.names
        addresses, environment = own_addresses(names), self._subject.environment
        try:
            for name in names:
                numbers = await ports(environment.fleet, name)
                await proxy.stand_before(environment.data_address(name), addresses[name], numbers)
            view = ProxiedEnvironment(environment, addresses)
            for silently in (False, True):
                client = await self._subject.client(self._subject.behind(view))
                try:
                    wrong = await self._lose_one(client, proxy, silently)
                finally:
                    await client.close()
                self._needs(proxy.seen, "its clients did not go through the proxy, at `data_address`")
                self._needs(proxy.lost, "no write came to an answer through the proxy that could be lost")
                if wrong is not None:
                    yield wrong
        finally:
            await proxy.close()

    async def _lose_one(self, client: Client, proxy: LosingProxy, silently: bool) -> str | None:
        """What is wrong once the last answer is lost of a write like one before it, with its connection or silently."""
        subject, key, values = self._subject, KEYS[0], iter(self._subject.values)
        for _ in range(2):  # the second has no handshake of a first connection
            proxy.arm(0)
            if (await self._subject.attempt(client, subject.writing(key, next(values)))).word != "ok":
                return None
        if not (rounds := proxy.rounds):
            return None
        proxy.arm(rounds, silently)
        value = next(values)
        outcome = await self._subject.attempt(client, subject.writing(key, value))
        if proxy.lost and outcome.word == "ok":
            return "Client.invoke: a write whose answer was lost is called ok: something tries again; turn retries off."
        if proxy.lost and outcome.word == "fail" and await subject.appears(key, value):
            return f"Client.invoke: a write whose answer was lost is called definite ({outcome.why}), and took effect."
        return None

    async def directed_reads(self) -> Sentences:
        """A read that names a node is answered by that node."""
        database, subject = self._database, self._subject
        able = Capability.DIRECTED_READS in database.capabilities and isinstance(database, Directed)
        self._needs(able and subject.way, "it does not name directed-reads")
        for name in database.serving_nodes if isinstance(database, Directed) else ():
            answers = [await subject.fresh(subject.reading(key, name)) for key in KEYS]
            if all(outcome.op is None for outcome in answers):
                yield f"Client.invoke: no read sent to {name} is answered ({answers[0].why})."
            for outcome in answers:
                if outcome.op is not None and outcome.op.node != name:
                    yield f"Client.invoke: a read sent to {name} was answered by {outcome.op.node}."
            await database.pause(name)
            try:
                found = await asyncio.gather(*(subject.fresh(subject.reading(key, name)) for key in KEYS))
                if any(outcome.word == "ok" for outcome in found):
                    yield f"Client.invoke: a read sent to {name} is answered while {name} is paused: by another node."
            finally:
                await database.resume(name)

    # ---- faults ----

    async def pause(self) -> Sentences:
        """While all is paused nothing completes on any connection, old or new; then all goes on."""
        subject, database = self._subject, self._database
        self._needs(Capability.PAUSE in database.capabilities, "it does not name pause")
        old = await subject.client(), await subject.client()
        if subject.way is not None:
            await asyncio.gather(*(subject.attempt(client, subject.reading(KEYS[0])) for client in old))
        await self._each(database.pause)
        try:
            async for sentence in self._while_paused(*old):
                yield sentence
        finally:
            await self._each(database.resume)
            await asyncio.gather(*(client.close() for client in old))
        for name in subject.names:
            if not await self._comes(name, ProcessState.RUNNING):
                yield f"resume: {name} does not run afterwards."
        async for sentence in self._back("resume"):
            yield sentence

    async def _while_paused(self, reader: Client, writer: Client) -> Sentences:
        """What two clients see that were there before, and new ones."""
        subject = self._subject
        for name in subject.names:
            if not await self._comes(name, ProcessState.PAUSED):
                yield f"process_state: {name} is paused, and is called {await self._database.process_state(name)}."
        for name, found in (await self._own_processes()).items():
            if going := [each for each in found if each.letter not in "Tt"]:
                yield f"pause: {going[0]} on {name} goes on."
        if subject.way is None:
            return
        values = iter(subject.values)
        written = {key: next(values) for key in KEYS[2:4]}
        old_write, new_write = (subject.writing(key, value) for key, value in written.items())
        old_found = await asyncio.gather(
            subject.attempt(reader, subject.reading(KEYS[0])), subject.attempt(writer, old_write)
        )
        new_found = await asyncio.gather(subject.fresh(subject.reading(KEYS[1])), subject.fresh(new_write))
        if any(outcome.word == "ok" for outcome in old_found):
            yield "pause: a connection that was there before is served while all is paused."
        if any(outcome.word == "ok" for outcome in new_found):
            yield "pause: clients are served while all is paused."
        refused = {
            key: outcome.why
            for key, outcome in zip(written, (old_found[1], new_found[1]), strict=True)
            if outcome.word == "fail"
        }
        if refused:
            await self._each(self._database.resume)
        for key, why in refused.items():
            if await subject.appears(key, written[key]):
                yield f"Client.invoke: a write to a frozen server is called definite ({why}), and took effect."

    async def kill(self) -> Sentences:
        """A kill ends all, and what comes back is another life with the same data."""
        self._needs(Capability.KILL in self._database.capabilities, "it does not name kill")
        async for sentence in self._ended("kill", self._database.kill):
            yield sentence

    async def stop(self) -> Sentences:
        """So does a stop."""
        self._needs(Capability.STOP in self._database.capabilities, "it does not name stop")
        async for sentence in self._ended("stop", self._database.stop):
            yield sentence

    async def _ended(self, method: str, end: Callable[[str], Awaitable[None]]) -> Sentences:
        subject, lives, value = self._subject, await self._lives(), next(iter(self._subject.values))
        kept = subject.way is not None and (await subject.fresh(subject.writing(KEYS[3], value))).word == "ok"
        old = await subject.client()
        if subject.way is not None:
            await self._subject.attempt(old, subject.reading(KEYS[0]))
        await self._each(end)
        async for sentence in self._while_dead(method, old):
            yield sentence
        await old.close()
        await self._each(self._database.start)
        async for sentence in self._back("start"):
            yield sentence
            return
        for sentence in await self._first_reads():
            yield sentence
        for name in await self._silent():
            yield f"status: {name} serves after {method} and start, and does not answer."
        for name, life in (await self._lives()).items():
            before = lives[name]
            if life is not None and before is not None and life <= before:
                yield f"status: the incarnation of {name} stands at {before} though it was ended and started."
        if kept and not await subject.appears(KEYS[3], value):
            yield f"{method}: a write that was acknowledged is gone after {method} and start."

    async def _while_dead(self, method: str, old: Client) -> Sentences:
        subject = self._subject
        states = {name: await self._comes(name, ProcessState.DEAD) for name in subject.names}
        for name, dead in states.items():
            if not dead:
                yield f"process_state: {name} is not called dead after {method}."
        for name, left in (await self._own_processes(self._waits.settle)).items():
            if left:
                yield f"{method}: {min(left, key=str)} on {name} was spared."
        if subject.way is None:
            return
        asks = (subject.attempt(old, subject.reading(KEYS[0])), subject.fresh(subject.reading(KEYS[1])))
        if any(outcome.word == "ok" for outcome in await asyncio.gather(*asks)):
            yield f"process_state: all is called dead after {method} while clients are served."
        refused = await subject.fresh(subject.writing(KEYS[2], next(iter(subject.values))))
        if refused.word == "info":
            yield f"Client.invoke: a write that nobody was there to take is called unknown ({refused.why})."

    async def terms(self) -> Sentences:
        """Another leader leads in a later term."""
        database, names = self._database, self._subject.names
        self._needs(Capability.TERMS in database.capabilities, "it does not name terms")
        self._needs(len(names) > 1, "it has one node")
        led = _leaders(await self._statuses())
        if not led:
            yield "groups: no node says that it leads, though the database has terms."
            return
        group, (node, before) = sorted(led.items())[0]
        await database.kill(node)
        try:
            after = await self._next_leader(group, node, self._waits.election + failover_of(database))
        finally:
            await database.start(node)
        if after is not None and after[1].term <= before.term:
            yield f"groups: the term of {group} stands at {before.term} though {after[0]} leads instead of {node}."
        async for sentence in self._back("start"):
            yield sentence
        self._needs(after, f"no other node led {group} in time after {node} was killed")

    async def _next_leader(self, group: str, but: str, within_s: float) -> tuple[str, GroupStatus] | None:
        end_s = asyncio.get_running_loop().time() + within_s
        while asyncio.get_running_loop().time() < end_s:
            found = _leaders(await self._statuses()).get(group)
            if found is not None and found[0] != but:
                return found
            await asyncio.sleep(LOOK_S)
        return None

    async def clock(self) -> Sentences:
        """A wrong clock is the program's clock, and it lives with it."""
        environment, name = self._subject.environment, self._subject.names[0]
        self._needs(Capability.WALL_CLOCK in self._database.capabilities, "it does not name wall-clock")
        self._needs("clock" in environment.capabilities, "no clock can be set here")
        assert isinstance(environment, ClockControl)
        await environment.skew_clock(name, Skew(int(SKEW_S * 1e9)))
        try:
            await asyncio.sleep(self._waits.clock)
            if await self._database.process_state(name) is not ProcessState.RUNNING:
                yield "capabilities: the program ended when its clock was set; do not name wall-clock."
                await self._database.start(name)
            elif (status := (await self._statuses())[name]) is None:
                yield f"status: {name} does not answer once its clock is set."
            else:
                ahead_s = (status.wall_ns - environment.clock.wall_ns()) / 1e9
                if abs(ahead_s - SKEW_S) > SKEW_S / 2:
                    yield f"status: a clock was set {SKEW_S:g} s ahead, and wall_ns says {ahead_s:.1f} s."
        finally:
            await environment.skew_clock(name, None)
        async for sentence in self._back("start"):
            yield sentence

    async def logs(self) -> Sentences:
        """Every node's logs come."""
        found = await self._database.collect_logs()
        for name in self._subject.names:
            if not any(path.startswith(f"{name}/") and content for path, content in found.items()):
                yield f"collect_logs: nothing came of {name}."

    async def teardown(self) -> Sentences:
        """Nothing is left. The last check: nothing runs after it."""
        await self._database.teardown()
        for name, left in (await self._own_processes(self._waits.settle)).items():
            if left:
                yield f"teardown: {min(left, key=str)} is left on {name}."

    # ---- looks ----

    def _needs(self, there: object, why_not: str) -> None:
        """End a check that has nothing to try."""
        if not there:
            raise Untried(why_not)

    async def _each(self, act: Callable[[str], Awaitable[None]]) -> None:
        await asyncio.gather(*(act(name) for name in self._subject.names))

    async def _comes(self, name: str, state: ProcessState) -> bool:
        end_s = asyncio.get_running_loop().time() + self._waits.settle
        while await self._database.process_state(name) is not state:
            if asyncio.get_running_loop().time() >= end_s:
                return False
            await asyncio.sleep(LOOK_S)
        return True

    async def _back(self, method: str) -> Sentences:
        try:
            await self._database.await_ready(self._waits.ready)
        except TimeoutError as error:
            yield f"{method}: the database does not come back ({error})."

    async def _statuses(self) -> dict[str, NodeStatus | None]:
        """Asked again where there is no answer: one that came late is no silence."""
        asks = (insist(partial(self._database.status, name)) for name in self._subject.names)
        answers = await asyncio.gather(*asks)
        return dict(zip(self._subject.names, answers, strict=True))

    async def _silent(self) -> list[str]:
        """Nodes that do not answer their status, though the database can."""
        able = Capability.STATUS in self._database.capabilities
        return [name for name, status in (await self._statuses()).items() if able and status is None]

    async def _lives(self) -> dict[str, int | None]:
        return {name: None if each is None else each.incarnation for name, each in (await self._statuses()).items()}

    async def _all_processes(self) -> Processes:
        fleet, names = self._subject.environment.fleet, self._subject.names
        found = await asyncio.gather(*(processes(fleet, name) for name in names))
        return dict(zip(names, found, strict=True))

    async def _own_processes(self, gone_within_s: float = 0.0) -> Processes:
        """Processes that were not there before the database was; they may be given time to be gone."""
        end_s = asyncio.get_running_loop().time() + gone_within_s
        while True:
            first, second = await self._all_processes(), await self._all_processes()
            found = {
                name: frozenset(
                    each for each in second[name] if each.pid in _ids(first[name]) - _ids(self._before[name])
                )
                for name in second
            }
            if not any(found.values()) or asyncio.get_running_loop().time() >= end_s:
                return found
            await asyncio.sleep(LOOK_S)


def _ids(found: frozenset[Process]) -> set[int]:
    return {each.pid for each in found}


def _leaders(statuses: dict[str, NodeStatus | None]) -> dict[str, tuple[str, GroupStatus]]:
    """By group the node that leads it, of several that of the highest term."""
    led: dict[str, tuple[str, GroupStatus]] = {}
    for name, status in statuses.items():
        for group in () if status is None else status.groups:
            if group.role == "leader" and (group.group not in led or led[group.group][1].term < group.term):
                led[group.group] = (name, group)
    return led


ORDER: Final[Sequence[Callable[[Checks], Sentences]]] = (
    Checks.served_at_once,
    Checks.states,
    Checks.second_start,
    Checks.seen_by_others,
    Checks.nothing_tried_again,
    Checks.directed_reads,
    Checks.pause,
    Checks.kill,
    Checks.stop,
    Checks.terms,
    Checks.clock,
    Checks.logs,
    Checks.teardown,
)
"""In this order; the cheap ones first."""

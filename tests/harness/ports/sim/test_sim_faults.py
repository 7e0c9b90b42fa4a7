"""Kill, pause, cuts and the rest: what a fault stops really stops, and nothing else does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextvars import ContextVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.ports.api import CallLost, Crashed, Peer, Ports, Unreachable
from harness.ports.failpoints import Arming
from harness.ports.machines import ProcessState
from harness.ports.sim import SimNode, World


@pytest.fixture
def world() -> Iterator[World]:
    with World(seed=1) as world:
        yield world
        assert world.errors == []


class Log:
    """What a node program did, written from inside it."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    async def program(self, ports: Ports) -> None:
        async def on_call(peer: Peer, request: bytes) -> bytes:
            self.lines.append(f"call {request.decode()}")
            if request.startswith(b"slow"):
                await ports.clock.sleep(1)
            self.lines.append(f"answer {request.decode()}")
            return request

        def on_notify(peer: Peer, message: bytes) -> None:
            self.lines.append(f"told {message.decode()}")

        await ports.network.listen(f"{ports.node_id}:1", on_call, on_notify)
        try:
            await asyncio.Event().wait()
        finally:
            self.lines.append("finally")


def started(world: World, log: Log, name: str = "a") -> SimNode:
    node = world.node(name)
    node.start(log.program)
    return node


# ---- kill ----


@given(kill_at_ms=st.integers(0, 40), seed=st.integers(0, 1000))
def test_nothing_of_a_killed_node_ever_runs(kill_at_ms: int, seed: int) -> None:
    ran: list[int] = []

    async def work(ports: Ports) -> None:
        async def busy(period: float) -> None:
            try:
                while True:
                    await ports.clock.sleep(period)
                    await ports.disk.append("f", b"x")
                    await ports.disk.fsync("f")
                    ran.append(world.loop.now_ns)
            finally:
                ran.append(world.loop.now_ns)

        await asyncio.gather(*(busy(period / 1000) for period in range(1, 6)))

    async def main() -> None:
        node = world.node("a")
        node.start(work)
        await asyncio.sleep(kill_at_ms / 1000)
        node.kill()
        before, content = list(ran), node.disk.paths() and node.disk.peek("f")
        await asyncio.sleep(1)
        assert ran == before
        assert (node.disk.paths() and node.disk.peek("f")) == content

    with World(seed) as world:
        world.run(main())


async def test_a_kill_breaks_open_calls_and_the_next_one_is_unreachable(world: World) -> None:
    log = Log()
    node, network = started(world, log), world.harness_ports("c").network
    await asyncio.sleep(0.01)
    call = asyncio.create_task(network.call("a:1", b"slow", 60))
    await asyncio.sleep(0.5)
    node.kill()
    with pytest.raises(CallLost):
        await call
    with pytest.raises(Unreachable):
        await network.call("a:1", b"again", 60)
    assert asyncio.get_running_loop().time() < 1
    assert log.lines == ["call slow"]


def test_incarnations_count_up_and_only_the_newest_serves(world: World) -> None:
    incarnations: list[int] = []

    async def main() -> None:
        node = world.node("a")
        for _ in range(3):
            node.start(lambda ports: remember(ports))
            await asyncio.sleep(0.01)
            node.kill()
            node.kill()
        assert node.incarnation == 3

    async def remember(ports: Ports) -> None:
        incarnations.append(ports.incarnation)
        await ports.clock.sleep(60)

    world.run(main())
    assert incarnations == [1, 2, 3]


def test_a_running_node_is_not_started_twice(world: World) -> None:
    node = started(world, Log())
    with pytest.raises(ValueError, match="running already"):
        node.start(Log().program)


async def test_a_call_in_flight_does_not_reach_the_next_incarnation(world: World) -> None:
    log = Log()
    node, network = started(world, log), world.harness_ports("c").network
    await asyncio.sleep(0.01)
    call = asyncio.create_task(network.call("a:1", b"old", 60))
    await asyncio.sleep(0)
    node.kill()
    node.start(log.program)
    with pytest.raises(CallLost, match="broke"):
        await call
    assert log.lines == []


# ---- ends of its own ----


def test_a_panic_is_recorded_and_the_node_is_dead(world: World) -> None:
    async def panic(ports: Ports) -> None:
        await ports.disk.append("f", b"synced")
        await ports.disk.fsync("f")
        raise LookupError("panic")

    async def main() -> None:
        node = world.node("a")
        node.start(panic)
        await node.wait_dead()
        assert node.state is ProcessState.DEAD
        assert isinstance(node.error, LookupError)
        assert node.errors == [node.error]
        node.start(Log().program)
        assert node.error is None
        assert [str(error) for error in node.errors] == ["panic"]

    world.run(main())


@pytest.mark.parametrize("end", ["return", "kill", "pause"])
def test_who_dies_before_it_hears_how_its_tasks_ended_handled_that(world: World, end: str) -> None:
    """A run was invalid for a panic: a server stopped, and the network was closed under two calls that it awaited
    (`convergence --nemesis all --swarm`, seed 27)."""

    async def call(closing: asyncio.Event) -> None:
        await closing.wait()
        raise CallLost("the network was closed")

    async def program(ports: Ports) -> None:
        closing, node = asyncio.Event(), world.node("a")

        async def repair() -> None:
            await asyncio.gather(call(closing), call(closing))

        repairing = asyncio.create_task(repair())
        await ports.clock.sleep(0.001)
        closing.set()
        if end != "return":
            asyncio.get_running_loop().call_soon(node.kill if end == "kill" else node.pause)
            await repairing

    async def main() -> None:
        node = world.node("a")
        node.start(program)
        await asyncio.sleep(0.01)
        node.kill()
        assert node.errors == []

    world.run(main())


def test_exceptions_outside_main_are_recorded_and_the_node_goes_on(world: World) -> None:
    def broken(peer: Peer, message: bytes) -> None:
        raise LookupError("in on_notify")

    async def on_call(peer: Peer, request: bytes) -> bytes:
        raise LookupError("in on_call")

    async def fail(text: str) -> None:
        raise LookupError(text)

    async def program(ports: Ports) -> None:
        await ports.network.listen("a:1", on_call, broken)
        lost = asyncio.create_task(fail("in a task"))
        awaited = asyncio.create_task(fail("handled"))
        asyncio.get_running_loop().call_later(0.001, lambda: [][1])
        with pytest.raises(LookupError):
            await awaited
        await asyncio.Event().wait()
        assert lost

    async def main() -> None:
        node = world.node("a")
        node.start(program)
        await asyncio.sleep(0.01)
        network = world.harness_ports("c").network
        network.notify("a:1", b"x")
        with pytest.raises(CallLost):
            await network.call("a:1", b"x", 60)
        assert node.state is ProcessState.RUNNING
        assert node.error is None
        found = sorted(str(error) for error in node.errors)
        assert found == ["in a task", "in on_call", "in on_notify", "list index out of range"]

    world.run(main())


async def test_stop_lets_the_program_clean_up(world: World) -> None:
    log = Log()
    node = started(world, log)
    await asyncio.sleep(0.01)
    node.stop()
    await node.wait_dead()
    assert node.error is None
    with pytest.raises(Unreachable):
        await world.harness_ports("c").network.call("a:1", b"x", 1)
    assert log.lines == ["finally"]


# ---- pause ----


async def test_a_paused_node_holds_everything_back_and_then_goes_on_in_order(world: World) -> None:
    log = Log()
    node, network = started(world, log), world.harness_ports("c").network
    await asyncio.sleep(0.01)
    slow = asyncio.create_task(network.call("a:1", b"slow", 60))
    await asyncio.sleep(0.5)
    node.pause()
    assert node.state is ProcessState.PAUSED
    network.notify("a:1", b"one")
    with pytest.raises(CallLost):
        await network.call("a:1", b"two", 5)
    network.notify("a:1", b"three")
    await asyncio.sleep(1)
    assert log.lines == ["call slow"]
    node.resume()
    assert await slow == b"slow"
    assert node.state is ProcessState.RUNNING
    assert [line for line in log.lines if line.startswith("told")] == ["told one", "told three"]
    assert [line for line in log.lines if line.startswith("call")] == ["call slow", "call two"]


async def test_a_node_killed_while_paused_runs_nothing(world: World) -> None:
    log = Log()
    node = started(world, log)
    await asyncio.sleep(0.01)
    node.pause()
    world.harness_ports("c").network.notify("a:1", b"one")
    await asyncio.sleep(1)
    node.kill()
    node.resume()
    await asyncio.sleep(1)
    assert log.lines == []


# ---- failpoints ----


def test_a_failpoint_crashes_the_node_at_its_place(world: World) -> None:
    passed: list[str] = []

    async def program(ports: Ports) -> None:
        await ports.disk.append("f", b"unsynced")
        try:
            for number in range(5):
                ports.failpoints.hit("point")
                passed.append(f"pass {number}")
                await ports.clock.sleep(0.01)
        finally:
            with pytest.raises(Crashed):
                await ports.disk.append("f", b"by the dead")
            ports.network.notify("c:1", b"by the dead")

    async def main() -> None:
        node = world.node("a")
        node.failpoints.arm(Arming("point", skip=2))
        node.start(program)
        await node.wait_dead()
        await asyncio.sleep(1)
        assert passed == ["pass 0", "pass 1"]
        assert node.failpoints.hits == {"point": 3}
        assert (node.error, node.errors) == (None, [])
        assert b"by the dead" not in (node.disk.peek("f") if node.disk.paths() else b"")
        node.start(program)
        await node.wait_dead()
        assert passed[2:] == [f"pass {number}" for number in range(5)]

    world.run(main())


def test_failpoints_can_stop_record_and_call(world: World) -> None:
    called: list[str] = []

    async def program(ports: Ports) -> None:
        for name in ("counted", "called", "unarmed", "paused"):
            ports.failpoints.hit(name)
        await ports.clock.sleep(0.01)
        called.append("after the pause")

    async def main() -> None:
        node = world.node("a")
        actions: dict[str, object] = {"counted": "record", "called": called.append, "paused": "stop"}
        for name, action in actions.items():
            node.failpoints.arm(Arming(name, action))  # type: ignore[arg-type]
        node.start(program)
        await asyncio.sleep(1)
        assert node.state is ProcessState.PAUSED
        assert called == ["called"]
        node.resume()
        await node.wait_dead()
        assert called == ["called", "after the pause"]
        assert node.failpoints.hits == {"counted": 1, "called": 1, "paused": 1}

    world.run(main())


# ---- contexts ----


def test_context_variables_follow_a_node_s_own_code(world: World) -> None:
    variable: ContextVar[str] = ContextVar("variable", default="unset")
    seen: dict[str, str] = {}

    async def program(ports: Ports) -> None:
        variable.set(ports.node_id)

        async def on_call(peer: Peer, request: bytes) -> bytes:
            seen[f"call at {ports.node_id}"] = variable.get()
            variable.set("changed by a call")
            return b""

        def on_notify(peer: Peer, message: bytes) -> None:
            seen[f"notify at {ports.node_id}"] = variable.get()

        await ports.network.listen(f"{ports.node_id}:1", on_call, on_notify)
        await asyncio.Event().wait()

    async def main() -> None:
        for name in ("a", "b"):
            world.node(name).start(program)
        await asyncio.sleep(0.01)
        network = world.harness_ports("c").network
        for name in ("a", "b"):
            await network.call(f"{name}:1", b"", 1)
            network.notify(f"{name}:1", b"")
        await asyncio.sleep(0.01)
        assert variable.get() == "unset"

    world.run(main())
    assert seen == {f"{kind} at {name}": name for name in ("a", "b") for kind in ("call", "notify")}


# ---- names ----


def test_names_of_nodes_and_of_the_harness_do_not_mix(world: World) -> None:
    world.node("a")
    world.harness_ports("c")
    with pytest.raises(ValueError):
        world.harness_ports("a")
    with pytest.raises(ValueError):
        world.node("c")


def test_a_node_listens_under_its_own_name_only(world: World) -> None:
    async def program(ports: Ports) -> None:
        await ports.network.listen("b:1", Log().program, lambda peer, message: None)  # type: ignore[arg-type]

    async def main() -> None:
        world.node("a").start(program)
        await world.node("a").wait_dead()

    world.run(main())
    assert isinstance(world.node("a").error, OSError)


# ---- deadlines of calls ----


def test_each_call_is_given_up_at_its_own_deadline(world: World) -> None:
    """One timer stands for all of them, wherever the next one lies."""
    started(world, Log())
    ports = world.harness_ports("c")
    ended: list[tuple[str, int]] = []

    async def ask(name: str, timeout_s: float, after_s: float) -> None:
        await ports.clock.sleep(after_s)
        began_ns = ports.clock.monotonic_ns()
        try:
            await ports.network.call("a:1", name.encode(), timeout_s)
            ended.append((name, 0))
        except CallLost:
            ended.append((name, (ports.clock.monotonic_ns() - began_ns) // 1_000_000))

    async def scenario() -> None:
        await asyncio.gather(
            ask("slow long", 0.9, 0.0),
            ask("slow short", 0.2, 0.1),
            ask("slow late", 0.5, 0.35),
            ask("quick", 0.3, 0.0),
            ask("slow enough", 2.0, 0.0),
        )

    world.run(scenario())
    assert ended == [("quick", 0), ("slow short", 200), ("slow late", 500), ("slow long", 900), ("slow enough", 0)]


def test_a_paused_process_gives_up_its_late_calls_when_it_goes_on(world: World) -> None:
    started(world, Log(), "a")
    given_up: list[int] = []

    async def asking(ports: Ports) -> None:
        for timeout_s in (0.2, 5.0):
            try:
                await ports.network.call("a:1", b"slow", timeout_s)
            except CallLost:
                given_up.append(ports.clock.monotonic_ns() // 1_000_000)

    async def scenario() -> None:
        clock = world.harness_ports("bench").clock
        node = world.node("b")
        node.start(asking)
        await clock.sleep(0.1)
        node.pause()
        await clock.sleep(0.4)
        assert given_up == []
        node.resume()
        await clock.sleep(3.0)

    world.run(scenario())
    assert given_up == [500]


# ---- messages held back ----


async def test_a_message_that_is_held_back_comes_late_and_to_whoever_listens_by_then(world: World) -> None:
    log, later = Log(), Log()
    node, client = started(world, log), world.harness_ports("c").network
    await asyncio.sleep(0)
    holds = [
        world.network.hold("c", "a", wanted) for wanted in (lambda told: told == b"2", lambda told: b"ask" in told)
    ]
    for message in (b"1", b"2", b"3", b"2"):
        client.notify("a:1", message)
    with pytest.raises(CallLost):
        await client.call("a:1", b"ask", 0.5)
    assert log.lines == ["told 1", "told 3", "told 2"] and [hold.size for hold in holds] == [1, 3]
    node.kill()
    node.start(later.program)
    await asyncio.sleep(0.1)
    for hold in [*holds, *holds]:
        world.network.release(hold)
    await asyncio.sleep(0.1)
    assert later.lines == ["told 2", "call ask", "answer ask"] and not any(hold.size for hold in holds)
    client.notify("a:1", b"2")
    await asyncio.sleep(0.1)
    assert later.lines[3:] == ["told 2"], "nothing is held any more"

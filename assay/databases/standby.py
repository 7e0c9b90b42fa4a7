"""A PostgreSQL server with a standby, as its manual has it (27.2): who keeps watch ends the first for certain and
promotes the second, where the first does not answer, or the second does and hears nothing of the first."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import psycopg

from assay.databases.postgresql import AS_POSTGRES, BIN, DATA, INSTALL_S, PostgresDatabase
from assay.plugin import Capability, Environment, GroupStatus, HarnessError, ProcessState, Setup

PATIENCE_S = 2.0
"""How long the leader may be silent."""

STREAMS = "SELECT count(*) FROM pg_stat_wal_receiver WHERE status = 'streaming'"


class StandbyDatabase(PostgresDatabase):
    """Two servers. Who is promoted leads alone until the other, ended for certain, was made its standby."""

    def __init__(self, environment: Environment, setup: Setup) -> None:
        super().__init__(environment, setup)
        self.stale: set[str] = set()
        self.fenced: set[str] = set()
        self.turn = asyncio.Lock()
        self.watch: asyncio.Task[None] | None = None

    @property
    def capabilities(self) -> frozenset[str]:
        return super().capabilities | {Capability.TERMS}

    async def first_start(self) -> None:
        await super().start(self.leader)
        await self.until_serving(self.leader)
        self.stale = {each.name for each in self.nodes if each.name != self.leader}
        for node in tuple(self.stale):
            await self.start(node)
        self.watch = asyncio.create_task(self.keep_watch())

    async def start(self, node: str) -> None:
        """A server that led, or never was a standby, takes all data anew from who leads."""
        async with self.turn:
            if node in self.stale:
                source = f"host={self.address(self.leader)} user=postgres connect_timeout=10"
                copy = f"rm -rf {DATA}/* && cd / && {AS_POSTGRES} timeout 60 {BIN}/pg_basebackup -d '{source}'"
                await self.on(node, f"{copy} -D {DATA} -R -c fast -X stream --no-sync", timeout_s=INSTALL_S)
                self.stale.discard(node)
            await super().start(node)
            if node != self.leader and self.options["standby"] == "synchronous":
                await self.until_serving(node)
                await self.wait_for_standbys("*")

    async def until_serving(self, node: str) -> None:
        for _ in range(100):
            if await self.answers(node):
                return
            await asyncio.sleep(0.1)
        raise HarnessError(f"{node} does not serve")

    async def answers(self, node: str) -> bool:
        """Whether it serves, within a second."""
        try:
            return await self.serves(node)
        except (OSError, TimeoutError):
            return False

    async def wait_for_standbys(self, names: str) -> None:
        """Have the leader wait at each commit for these standbys; none: for nobody."""
        async with await self.connect(self.leader, 5.0) as link:
            await link.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
            await link.execute("SELECT pg_reload_conf()")

    async def keep_watch(self) -> None:
        loop = asyncio.get_running_loop()
        heard_s = loop.time()
        while True:
            await asyncio.sleep(0.2)
            if await self.answers(self.leader) and await self.is_heard():
                heard_s = loop.time()
            elif loop.time() - heard_s > PATIENCE_S:
                await self.fail_over()
                heard_s = loop.time()
            for node in tuple(self.fenced):
                with suppress(HarnessError):  # until it reaches who leads
                    await self.start(node)
                    self.fenced.discard(node)

    async def is_heard(self) -> bool:
        """Whether every standby that answers has a stream from the leader."""
        for node in self.followers():
            try:
                async with asyncio.timeout(1.0), await self.connect(node, 1.0) as link:
                    if await (await link.execute(STREAMS)).fetchone() == (0,):
                        return False
            except (psycopg.Error, OSError, TimeoutError):
                continue
        return True

    def followers(self) -> list[str]:
        """The nodes that have the leader's data."""
        return [each.name for each in self.nodes if each.name not in (self.leader, *self.stale)]

    async def fail_over(self) -> None:
        """End the leader for certain, and have a standby that answers take its place; none: all stays as it is."""
        async with self.turn:
            ready = [name for name in self.followers() if await self.answers(name)]
            if not ready:
                return
            (chosen, *_) = ready
            if await self.process_state(self.leader) is not ProcessState.DEAD:
                self.fenced.add(self.leader)
            await self.kill(self.leader)
            self.stale.add(self.leader)
            async with await self.connect(chosen, 5.0) as link:
                await link.execute("SELECT pg_promote()")
            self.leader = chosen
            await self.wait_for_standbys("")

    async def groups(self, node: str) -> Sequence[GroupStatus]:
        """The term is the timeline."""
        ask = "SELECT CASE WHEN pg_is_in_recovery() THEN (SELECT received_tli FROM pg_stat_wal_receiver) ELSE"
        ask += " ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int END, pg_is_in_recovery()"
        try:
            async with await self.connect(node, 1.0) as link:
                timeline, follows = await (await link.execute(ask)).fetchone()
        except psycopg.Error as error:
            raise OSError(str(error)) from error
        role = "follower" if follows else "leader"
        return (GroupStatus("main", role, int(timeline or 0), tuple(each.name for each in self.nodes)),)

    async def teardown(self) -> None:
        if self.watch is not None:
            self.watch.cancel()
        await super().teardown()

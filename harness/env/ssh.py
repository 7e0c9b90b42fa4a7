"""Control of machines over SSH: commands, files and long-lived channels. It drives containers and bare hosts alike.

Paramiko blocks, so every call runs on the fleet's own threads. The control network is never cut by a fault: what fails
here is ours, so everything is raised as HarnessError.
"""

from __future__ import annotations

import asyncio
import base64
import io
import shlex
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import paramiko

from harness.errors import HarnessError

T = TypeVar("T")

CONNECT_TIMEOUT_S = 20.0
COMMAND_TIMEOUT_S = 30.0
RECONNECT_TIMEOUT_S = 3.0
"""A command whose connection has broken is not to wait long for another one."""
PREPARED_AT_ONCE = 8
"""Machines that share this one's cores are prepared this many at a time: what takes a second on each would outlast
every timeout if 59 began it together."""
THREADS = 256
"""As many as are needed are started: one for each command under way."""
LOOK_S = 1.0
"""A command that takes longer is one whose machine may be gone: every so often its environment is asked."""
RETRY_S = 0.05
CHUNK_BYTES = 1 << 20
NO_STATUS = -1
"""The exit status of a command whose machine went away while it ran."""


@dataclass(frozen=True, slots=True)
class Gone:
    """Why a machine is not the one that was set up, in words that end `t5 is gone: …`; `answers` if commands still run
    there, as where it was started anew."""

    why: str
    answers: bool = False


Explain: TypeAlias = Callable[[str], Gone | None]
"""What became of a machine behind the harness's back, if its environment knows; blocking."""


class StrangeHost(paramiko.SSHException):
    """The machine that answers is not known, or another than is known: nothing is said to it."""


class _RefuseStrangers(paramiko.MissingHostKeyPolicy):
    def missing_host_key(self, client: Any, hostname: str, key: Any) -> None:
        raise StrangeHost(f"its key ({key.get_name()} {key.fingerprint}) is in no file of known hosts")


SSH_FAILURES = (paramiko.SSHException, OSError, EOFError)
"""What paramiko raises when a connection fails or ends (its timeouts are OSErrors)."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A key made for one run and kept in memory: `private` in PEM, `public` as a line of `authorized_keys`."""

    private: str
    public: str


def make_key() -> KeyPair:
    """A fresh key, for a user or for a host."""
    key = paramiko.ECDSAKey.generate(bits=256)
    text = io.StringIO()
    key.write_private_key(text)
    return KeyPair(text.getvalue(), f"{key.get_name()} {key.get_base64()}")


@dataclass(frozen=True, slots=True)
class SshTarget:
    """Where and as whom to log in, by a key of ours, that in `key_file`, or the user's own.

    Without a `host_key` the machine has to be known: in `known_hosts`, or to the user. `sudo`: commands become root's.
    """

    address: str
    user: str = "root"
    port: int = 22
    key: KeyPair | None = None
    host_key: str | None = None
    key_file: Path | None = None
    known_hosts: Path | None = None
    sudo: bool = False

    def as_root(self, command: str) -> str:
        return f"sudo -n sh -c {shlex.quote(command)}" if self.sudo else command


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended: exit status and output."""

    status: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        return self.stdout.decode(errors="replace")


class SshHost:
    """One machine's connection; blocking, safe to use from several threads at once."""

    def __init__(self, name: str, target: SshTarget, explain: Explain = lambda name: None) -> None:
        self.name = name
        self._target = target
        self._explain = explain
        self._client = paramiko.SSHClient()
        self._client.set_missing_host_key_policy(_RefuseStrangers)
        self._connecting = threading.Lock()
        self._closed = False

    def connect(self, timeout_s: float = CONNECT_TIMEOUT_S) -> None:
        """Log in, unless that is done, trying again while the machine's sshd is coming up; raises HarnessError at the
        deadline, and at once for keys that do not fit."""
        deadline = time.monotonic() + timeout_s
        transport, wait_s = self._client.get_transport(), RETRY_S
        while transport is None or not transport.is_active():
            try:
                self._connect_once(max(1.0, deadline - time.monotonic()))
                return
            except (paramiko.AuthenticationException, paramiko.BadHostKeyException, StrangeHost) as error:
                raise HarnessError(f"SSH to {self.name} ({self._target.address}) was refused: {error}") from error
            except SSH_FAILURES as error:
                if time.monotonic() > deadline:
                    raise HarnessError(f"SSH to {self.name} ({self._target.address}) failed: {error}") from error
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, LOOK_S)

    def _connect_once(self, timeout_s: float) -> None:
        target = self._target
        if target.host_key is not None:
            kind, encoded = target.host_key.split()[:2]
            host = target.address if target.port == 22 else f"[{target.address}]:{target.port}"
            known = paramiko.PKey.from_type_string(kind, base64.b64decode(encoded))
            self._client.get_host_keys().add(host, kind, known)
        elif target.known_hosts is not None:
            self._client.get_host_keys().load(str(target.known_hosts))
        else:
            self._client.load_system_host_keys()
        own_key = self._own_key()
        self._client.connect(
            target.address,
            port=target.port,
            username=target.user,
            pkey=own_key,
            allow_agent=own_key is None,
            look_for_keys=own_key is None,
            timeout=timeout_s,
            banner_timeout=timeout_s,
            auth_timeout=timeout_s,
        )

    def _own_key(self) -> Any:
        """The key to log in with: of any kind that paramiko knows; None where the user's own are to be tried."""
        target = self._target
        if target.key is not None:
            return paramiko.ECDSAKey.from_private_key(io.StringIO(target.key.private))
        if target.key_file is None:
            return None
        try:
            return paramiko.PKey.from_path(target.key_file)
        except (paramiko.PasswordRequiredException, TypeError) as error:
            raise HarnessError(f"the key {target.key_file} has a passphrase: load it into an agent") from error
        except (paramiko.SSHException, OSError, ValueError) as error:
            raise HarnessError(f"{target.key_file} is no key to log in with: {error}") from error

    def run(self, command: str, stdin: bytes = b"", timeout_s: float | None = None) -> CommandResult:
        """Run a shell command to its end; any exit status is an answer, only a broken connection is an error."""
        return self.run_as_user(self._target.as_root(command), stdin, timeout_s)

    def run_as_user(self, command: str, stdin: bytes = b"", timeout_s: float | None = None) -> CommandResult:
        """As who logs in, who need not be root."""
        try:
            with self._open_channel(COMMAND_TIMEOUT_S if timeout_s is None else timeout_s) as channel:
                channel.exec_command(command)
                if stdin:
                    channel.sendall(stdin)
                channel.shutdown_write()
                stdout = _drain(channel.recv)
                stderr = _drain(channel.recv_stderr)
                status = channel.recv_exit_status()
                if status == NO_STATUS:
                    raise EOFError("the connection ended before the command did")
                return CommandResult(status, stdout, stderr)
        except SSH_FAILURES as error:
            raise self._failure(f"SSH command on {self.name} failed ({command[:60]!r}): {error!r}") from error

    def check(self, command: str, stdin: bytes = b"", timeout_s: float | None = None) -> str:
        """Run a command that has to succeed and return its output; raises HarnessError with its last words."""
        result = self.run(command, stdin, timeout_s)
        if result.status != 0:
            words = result.stderr.decode(errors="replace").strip() or result.text.strip() or "no output"
            raise self._failure(f"{command[:80]!r} on {self.name} ended with {result.status}: {words[-300:]}")
        return result.text

    def open_conversation(self, command: str, stdin: bytes = b"") -> Conversation:
        """Start a program that answers lines with lines and lives no longer than this connection; `stdin` is what it
        reads before them."""
        try:
            channel = self._open_channel(COMMAND_TIMEOUT_S)
            channel.exec_command(self._target.as_root(command))
            channel.sendall(stdin)
            return Conversation(channel, self._failure_of_probe)
        except SSH_FAILURES as error:
            raise self._failure(f"SSH to {self.name} failed: {error!r}") from error

    def open_agent(self, path: str, source: bytes, arguments: str) -> Conversation:
        """Converse with a Python program that is put there first, instead of any that was started from that file."""
        self.check(end_programs_command(path))
        begin = f"head -c {len(source)} > {path} && exec python3 -S -E {path} {arguments}"
        return self.open_conversation(begin, source)

    def drop_if_gone(self) -> None:
        """Drop the connection to a machine that can't answer: a frozen one would leave whoever waits without a word
        until his time is over."""
        if self._silenced() is not None:
            with self._connecting:
                self._client.close()

    def _silenced(self) -> Gone | None:
        gone = self._explain(self.name)
        return None if gone is None or gone.answers else gone

    def _failure(self, words: str) -> HarnessError:
        """One sentence for a machine that is gone, whatever was being done there; else what was."""
        gone = self._explain(self.name)
        return HarnessError(words if gone is None else f"{self.name} is gone: {gone.why}")

    def _failure_of_probe(self, error: BaseException) -> HarnessError:
        return self._failure(f"the probe on {self.name} does not answer: {error!r}")

    def _open_channel(self, timeout_s: float) -> Any:
        channel = self._transport().open_session(timeout=timeout_s)
        channel.settimeout(timeout_s)
        return channel

    def _transport(self) -> Any:
        """The connection, made anew if it broke: what was done to the machine has to be undone, where it can be."""
        with self._connecting:
            transport = self._client.get_transport()
            if transport is None or not transport.is_active():
                if self._closed:
                    raise paramiko.SSHException("the connection is closed")
                if (gone := self._silenced()) is not None:
                    raise paramiko.SSHException(gone.why)
                self._connect_once(RECONNECT_TIMEOUT_S)
                transport = self._client.get_transport()
            return transport

    def close(self) -> None:
        """Drop the connection; never raises."""
        self._closed = True
        self._client.close()


class Conversation:
    """A program on a machine that answers each line with one line; one question at a time.

    A question whose asker has given up is answered first: its thread goes on, and would else take the next answer.
    """

    def __init__(self, channel: Any, failure: Callable[[BaseException], HarnessError]) -> None:
        self._channel = channel
        self._failure = failure
        self._buffer = b""
        self._turn = threading.Lock()

    def ask(self, line: bytes, timeout_s: float) -> bytes:
        """Send a line and await the answering line (both without line ends); raises HarnessError."""
        with self._turn:
            return self._ask(line, timeout_s)

    def _ask(self, line: bytes, timeout_s: float) -> bytes:
        try:
            self._channel.settimeout(timeout_s)
            self._channel.sendall(line + b"\n")
            while b"\n" not in self._buffer:
                data = self._channel.recv(CHUNK_BYTES)
                if not data:
                    raise EOFError(_drain(self._channel.recv_stderr).decode(errors="replace")[-300:] or "it ended")
                self._buffer += data
        except SSH_FAILURES as error:
            self._channel.close()
            raise self._failure(error) from error
        answer, _, self._buffer = self._buffer.partition(b"\n")
        return answer

    def close(self) -> None:
        """End the conversation, and with it the program; never raises."""
        self._channel.close()


def _drain(receive: Callable[[int], bytes]) -> bytes:
    chunks = []
    while chunk := receive(CHUNK_BYTES):
        chunks.append(chunk)
    return b"".join(chunks)


class SshFleet:
    """The machines of one run by node name, commanded in parallel."""

    def __init__(self, explain: Explain = lambda name: None) -> None:
        self._explain = explain
        self._hosts: dict[str, SshHost] = {}
        self._threads = ThreadPoolExecutor(max_workers=THREADS, thread_name_prefix="assay-ssh")
        self._turns = asyncio.Semaphore(PREPARED_AT_ONCE)
        self._closed = False

    async def add(self, name: str, target: SshTarget, prepare: Callable[[SshHost], None]) -> None:
        """One more machine, which a blocking action prepares, when it has its turn: it has to `connect` first."""
        self._hosts[name] = SshHost(name, target, self._explain)
        async with self._turns:
            await self.on(name, prepare)

    async def on(self, name: str, action: Callable[[SshHost], T]) -> T:
        """Run a blocking action on one machine."""
        host = self._hosts.get(name)
        if host is None:
            raise HarnessError(f"there is no machine named {name}")
        if self._closed:
            raise HarnessError(f"the SSH connections to {name} and the others are closed")
        watch = asyncio.create_task(self._watch(host))
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, action, host)
        finally:
            watch.cancel()

    async def _watch(self, host: SshHost) -> None:
        """For as long as something is being done there."""
        while True:
            await asyncio.sleep(LOOK_S)
            await asyncio.to_thread(host.drop_if_gone)

    async def check(self, name: str, command: str, stdin: bytes = b"", timeout_s: float | None = None) -> str:
        """Run one command on one machine; it has to succeed."""
        return await self.on(name, lambda host: host.check(command, stdin, timeout_s))

    async def check_each(self, commands: Mapping[str, str]) -> dict[str, str]:
        """Run one command per machine in parallel; all have to succeed, all are tried."""
        return await self._gather({name: self.check(name, command) for name, command in commands.items()})

    async def upload(self, name: str, path: str, content: bytes, mode: int = 0o644) -> None:
        """Write a file, its directory made if it is missing."""
        await self.check(name, write_file_command(path, mode), content)

    async def _gather(self, waiting: Mapping[str, Any]) -> dict[str, Any]:
        results = await asyncio.gather(*waiting.values(), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return dict(zip(waiting, results, strict=True))

    def close(self) -> None:
        """Drop every connection and end the threads; never raises, safe to call twice."""
        self._closed = True
        for host in self._hosts.values():
            host.close()
        self._threads.shutdown(wait=False, cancel_futures=True)


def write_file_command(path: str, mode: int) -> str:
    """Shell text that writes standard input to a file."""
    directory = path.rpartition("/")[0] or "/"
    return f"mkdir -p {shlex.quote(directory)} && cat > {shlex.quote(path)} && chmod {mode:o} {shlex.quote(path)}"


def end_programs_command(path: str) -> str:
    """Shell text that ends every program that was started from this file, and waits until it has: one whose connection
    broke may not have noticed, and would go on beside its successor."""
    pattern = shlex.quote(f"[{path[0]}]{path[1:]}")  # so that this shell is none of them
    return f"! pkill -9 -f {pattern} || while pgrep -f {pattern} >/dev/null; do sleep 0.02; done"


ANSWER_TIMEOUT_S = 10.0


class Agents:
    """The agents of one kind on the machines of a fleet, spoken to over SSH.

    `start` starts one on a machine; where the one there has died it is called again by who asks.
    """

    def __init__(self, fleet: SshFleet, start: Callable[[SshHost], Conversation]) -> None:
        self.begun = 0
        """How many were started so far."""
        self._fleet = fleet
        self._begin = start
        self._conversations: dict[str, Conversation] = {}
        self._starting: dict[str, threading.Lock] = {}

    async def ask(self, node: str, line: bytes) -> bytes:
        """The line with which a node's agent answers this one; raises HarnessError."""
        return await self._fleet.on(node, partial(self._ask, line))

    def start(self, host: SshHost, line: bytes) -> None:
        """Start the one on this machine, and have it answer a line: it is at work then. Blocking."""
        self._ask(line, host)

    def _ask(self, line: bytes, host: SshHost) -> bytes:
        agent = self._conversations.get(host.name)
        try:
            if agent is not None:
                return agent.ask(line, ANSWER_TIMEOUT_S)
        except HarnessError:
            pass  # a new one may be able to
        return self._instead_of(agent, host).ask(line, ANSWER_TIMEOUT_S)

    def _instead_of(self, agent: Conversation | None, host: SshHost) -> Conversation:
        """A new one; of several that ask at once the first starts it."""
        with self._starting.setdefault(host.name, threading.Lock()):
            if self._conversations.get(host.name) is agent:
                self._conversations[host.name] = self._begin(host)
                self.begun += 1
            return self._conversations[host.name]

    def close(self) -> None:
        """End the conversations, and with them the agents; never raises."""
        for agent in self._conversations.values():
            agent.close()

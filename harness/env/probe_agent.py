"""The probe that runs on a node beside its program: `python3 probe_agent.py DATA_ADDRESS PORT`. Standard library only.

It answers lines of JSON on its standard input with lines on its output and ends when the input does. A probe is a UDP
datagram, so it tells one-way cuts: `send` sends a token to other nodes, `collect` says whose datagrams of it arrived.
A `flow` is many numbered datagrams to one address after another; `arrivals` says which arrived, and when. Times are of
the monotonic clock, which machines that share a kernel share. `process` says how a daemon is (`harness.env.daemon`, by
whose rules its processes are found), for which nothing has to be started: that costs a busy machine milliseconds.
"""

import json
import os
import selectors
import socket
import sys
import time

ROUNDS = 4
ROUND_GAP_S = 0.015
TOKENS_KEPT = 64


Arrivals = dict[str, dict[str, list[tuple[int, float]]]]
"""By token and sender's name: the number and the time, s, of every datagram that arrived."""


def main() -> None:
    """Answer questions until the input ends."""
    address, port = sys.argv[1], int(sys.argv[2])
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind((address, port))
    datagrams.setblocking(False)
    selector = selectors.DefaultSelector()
    selector.register(datagrams, selectors.EVENT_READ)
    selector.register(sys.stdin.buffer, selectors.EVENT_READ)
    arrived: Arrivals = {}
    while True:
        for key, _ in selector.select():
            if key.fileobj is datagrams:
                receive(datagrams, arrived)
                continue
            line = sys.stdin.buffer.readline()
            if not line:
                return
            print(json.dumps(answer(json.loads(line), datagrams, port, arrived)), flush=True)


def answer(question: dict, datagrams: socket.socket, port: int, arrived: Arrivals) -> object:  # type: ignore[type-arg]
    """Carry out `{"send": token, "as": name, "to": [address, …]}`, `{"collect": token}` or `{"arrivals": token}`.

    `{"process": pid file, "owner": variable}` says of a daemon and its children whether they are `running`, `paused` or
    `dead`, and when it `began` itself, in ticks since the machine's start (null if it does not live).
    `{"heard": token}` says how many different datagrams of each sender have arrived by now.
    `{"flow": token, "as": name, "to": [address, …], "count": n, "size": bytes, "over_s": seconds}` says when each left.
    """
    if "collect" in question or "arrivals" in question:
        receive(datagrams, arrived)
        found = arrived.pop(question["collect"] if "collect" in question else question["arrivals"], {})
        return sorted(found) if "collect" in question else found
    if "heard" in question:
        receive(datagrams, arrived)
        senders = arrived.get(question["heard"], {})
        return {name: len({number for number, _ in found}) for name, found in senders.items()}
    if "process" in question:
        return daemon_state(question["process"], question["owner"])
    if "flow" in question:
        return send_flow(question, datagrams, port, arrived)
    message = f"{question['send']} {question['as']}".encode()
    for _ in range(ROUNDS):
        for address in question["to"]:
            send(datagrams, message, (address, port))
        receive(datagrams, arrived)
        time.sleep(ROUND_GAP_S)
    return []


def daemon_state(pid_file: str, owner: str) -> "dict[str, object]":
    """How a daemon is, with all its children: `paused` only if all that live are stopped."""
    try:
        with open(pid_file) as file:
            pid, began = map(int, file.read().split())
    except (OSError, ValueError):
        return {"state": "dead", "began": None}
    table = processes()
    taken = pid in table and table[pid][3] != began
    lives = pid in table and not taken and table[pid][0] not in "XZ"
    mine = {each for each, (_, _, session, _) in table.items() if session == pid and not taken}
    mine |= {each for each in table if owned(each, f"{owner}={pid_file}")}
    before = -1
    while before < len(mine):
        before = len(mine)
        mine |= {each for each, (_, parent, _, _) in table.items() if parent in mine}
    letters = {table[each][0] for each in mine if table[each][0] not in "XZ"}
    state = "dead" if not letters else "paused" if letters <= set("Tt") else "running"
    return {"state": state, "began": began if lives else None}


def processes() -> "dict[int, tuple[str, int, int, int]]":
    """Of every process its state's letter, its parent, its session, and when it began."""
    table = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b") ")[2].split()
            except OSError:
                continue
            table[int(name)] = (fields[0].decode(), int(fields[1]), int(fields[3]), int(fields[19]))
    return table


def owned(pid: int, assignment: str) -> bool:
    """Whether a process was given this variable with this value."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return assignment.encode() in file.read().split(b"\0")
    except OSError:
        return False


def send_flow(question: dict, datagrams: socket.socket, port: int, arrived: Arrivals) -> list[float]:  # type: ignore[type-arg]
    """Send numbered datagrams to each address, evenly over the time; when each number left."""
    sent_s = []
    start_s, count = time.monotonic(), question["count"]
    for number in range(count):
        time.sleep(max(0.0, start_s + number * question["over_s"] / count - time.monotonic()))
        message = f"{question['flow']} {question['as']} {number} ".encode().ljust(question["size"], b".")
        sent_s.append(time.monotonic())
        for address in question["to"]:
            send(datagrams, message, (address, port))
        receive(datagrams, arrived)
    return sent_s


def send(datagrams: socket.socket, message: bytes, to: tuple[str, int]) -> None:
    """Send one datagram; one that can't leave counts as lost, as a cut would have it."""
    try:
        datagrams.sendto(message, to)
    except OSError:
        return


def receive(datagrams: socket.socket, arrived: Arrivals) -> None:
    """Note everything that has arrived by now, under its token; old tokens nobody asked for are forgotten."""
    while True:
        try:
            token, name, *rest = datagrams.recv(2048).decode().split(" ", 3)
        except BlockingIOError:
            return
        except ValueError:
            continue  # nothing of ours, or broken on the way
        number = int(rest[0]) if rest and rest[0].isdecimal() else 0
        arrived.setdefault(token, {}).setdefault(name, []).append((number, time.monotonic()))
        while len(arrived) > TOKENS_KEPT:
            arrived.pop(next(iter(arrived)))


if __name__ == "__main__":
    main()

"""The probe that runs on a node beside its program: `python3 probe_agent.py DATA_ADDRESS PORT`. Standard library only.

It answers lines of JSON on its standard input with lines on its output and ends when the input does. A probe is a UDP
datagram, so it tells one-way cuts: `send` sends a token to other nodes, `collect` says whose datagrams of it arrived.
A `flow` is many numbered datagrams to one address after another; `arrivals` says which arrived, and when. Times are of
the monotonic clock, which machines that share a kernel share. `process` says how a program is (`harness.env.daemon`),
for which nothing has to be started: that costs a busy machine milliseconds.
"""

import json
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

    `{"process": pid file, "marker": argument}` says `running`, `paused` or `dead`.
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
        return process_state(question["process"], question["marker"])
    if "flow" in question:
        return send_flow(question, datagrams, port, arrived)
    message = f"{question['send']} {question['as']}".encode()
    for _ in range(ROUNDS):
        for address in question["to"]:
            send(datagrams, message, (address, port))
        receive(datagrams, arrived)
        time.sleep(ROUND_GAP_S)
    return []


def process_state(pid_file: str, marker: str) -> str:
    """How the program is of which one argument is the marker, if the process in the file is it."""
    try:
        with open(pid_file) as file:
            folder = f"/proc/{int(file.read())}"
        with open(f"{folder}/cmdline", "rb") as file:
            ours = marker.encode() in file.read().split(b"\0")
        with open(f"{folder}/stat", "rb") as file:
            letter = file.read().rpartition(b") ")[2][:1]
    except (OSError, ValueError):
        return "dead"
    if not ours or letter in b"XZ":
        return "dead"
    return "paused" if letter in b"Tt" else "running"


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

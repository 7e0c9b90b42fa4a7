"""The probe that runs on a node beside its program: `python3 probe_agent.py DATA_ADDRESS PORT`. Standard library only.

It answers lines of JSON on its standard input with lines on its output and ends when the input does. A probe is a UDP
datagram, so it tells one-way cuts: `send` sends a token to other nodes, `collect` says whose datagrams of it arrived.
"""

import json
import selectors
import socket
import sys
import time

ROUNDS = 4
ROUND_GAP_S = 0.015
TOKENS_KEPT = 64


def main() -> None:
    """Answer questions until the input ends."""
    address, port = sys.argv[1], int(sys.argv[2])
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind((address, port))
    datagrams.setblocking(False)
    selector = selectors.DefaultSelector()
    selector.register(datagrams, selectors.EVENT_READ)
    selector.register(sys.stdin.buffer, selectors.EVENT_READ)
    arrived: dict[str, set[str]] = {}
    while True:
        for key, _ in selector.select():
            if key.fileobj is datagrams:
                receive(datagrams, arrived)
                continue
            line = sys.stdin.buffer.readline()
            if not line:
                return
            print(json.dumps(answer(json.loads(line), datagrams, port, arrived)), flush=True)


def answer(question: dict, datagrams: socket.socket, port: int, arrived: dict[str, set[str]]) -> list:  # type: ignore[type-arg]
    """Carry out `{"send": token, "as": name, "to": [address, …]}` or `{"collect": token}`."""
    if "collect" in question:
        receive(datagrams, arrived)
        return sorted(arrived.pop(question["collect"], ()))
    message = f"{question['send']} {question['as']}".encode()
    for _ in range(ROUNDS):
        for address in question["to"]:
            send(datagrams, message, (address, port))
        receive(datagrams, arrived)
        time.sleep(ROUND_GAP_S)
    return []


def send(datagrams: socket.socket, message: bytes, to: tuple[str, int]) -> None:
    """Send one datagram; one that can't leave counts as lost, as a cut would have it."""
    try:
        datagrams.sendto(message, to)
    except OSError:
        return


def receive(datagrams: socket.socket, arrived: dict[str, set[str]]) -> None:
    """Note everything that has arrived by now, under its token; old tokens nobody asked for are forgotten."""
    while True:
        try:
            message = datagrams.recv(256).decode()
        except BlockingIOError:
            return
        token, _, name = message.partition(" ")
        arrived.setdefault(token, set()).add(name)
        while len(arrived) > TOKENS_KEPT:
            arrived.pop(next(iter(arrived)))


if __name__ == "__main__":
    main()

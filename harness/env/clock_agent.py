"""The clock hand that runs on a node: `python3 clock_agent.py FILE`. Standard library only.

It keeps the file that libfaketime reads in the node's program: `{"offset_ns": N, "rate": R}` on standard input has it
say that the program's wall clock is N ns ahead from now on and gains R of the time that passes; null sets it right. A
drift is made of small steps, since libfaketime counts its own from the start of the program. It ends, and sets the
clock right, when its input does.
"""

import json
import os
import selectors
import sys
import time

STEP_S = 0.02
"""How often a clock that drifts is set: a drift of 5 % makes steps of 1 ms."""


def main() -> None:
    """Answer lines until the input ends."""
    path = sys.argv[1]
    tell(path, 0)
    offset_ns, rate, since_ns = 0, 0.0, 0
    selector = selectors.DefaultSelector()
    selector.register(sys.stdin.buffer, selectors.EVENT_READ)
    while True:
        if selector.select(STEP_S if rate else None):
            line = sys.stdin.buffer.readline()
            if not line:
                break
            skew = json.loads(line) or {"offset_ns": 0, "rate": 0.0}
            offset_ns, rate, since_ns = int(skew["offset_ns"]), float(skew["rate"]), time.monotonic_ns()
            tell(path, offset_ns)
            print("null", flush=True)
        else:
            tell(path, offset_ns + int((time.monotonic_ns() - since_ns) * rate))
    tell(path, 0)


def tell(path: str, offset_ns: int) -> None:
    """Replace the file at once, so that nobody reads half of it, be there two of us for a moment."""
    sign, whole_ns = "-" if offset_ns < 0 else "+", abs(offset_ns)
    new = f"{path}.{os.getpid()}"
    with open(new, "w") as file:
        file.write(f"{sign}{whole_ns // 10**9}.{whole_ns % 10**9:09d}\n")
    os.replace(new, path)


if __name__ == "__main__":
    main()

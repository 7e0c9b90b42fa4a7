"""What judging takes with nothing compiled: seconds of a first and a second check by each model, kernels and files.

Each check is a process of its own, on the first worked example of the model, with a cache of its own. `kernels` are
what Python calls, `parts` what kernels call; one that is compiled for several types counts each time. The last line is
the whole table of examples by `python -m checkers.compile_all`, as many processes as there are cores.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from bench._measure import machine
from checkers.made.examples import EXAMPLES
from checkers.models import MODELS


def example(model: str) -> Path | None:
    """The first worked example of a model."""
    return next(iter(sorted((EXAMPLES / model).glob("*.edn"))), None)


def timed(command: Sequence[str | Path], cache: str) -> tuple[float, float]:
    """CPU seconds of a process and all that it starts, and seconds on the clock."""
    setting = {**os.environ, "NUMBA_CACHE_DIR": cache}
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    ended = subprocess.run([sys.executable, "-m", *command], env=setting, capture_output=True, check=False)
    if ended.returncode not in (0, 1, 2) or b"Traceback" in ended.stderr:  # valid, invalid, unknown; 1 is Python's too
        sys.exit(ended.stderr.decode())
    clock, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, clock


def compiled(cache: str) -> tuple[Counter[str], int, float]:
    """How often each kernel was compiled, how many parts, and the MB of both."""
    files = list(Path(cache, "kernels").glob("*-*"))
    names = [path.name.rpartition("-")[0] for path in files]
    kernels = Counter(name for name in names if not name.endswith(".part"))
    return kernels, len(names) - kernels.total(), sum(path.stat().st_size for path in files) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", help="all, if none is named")
    models = parser.parse_args().models or list(MODELS)
    print(machine())
    print("| model | cold, CPU s | s | again, CPU s | s | kernels | parts | MB |\n|---|---|---|---|---|---|---|---|")
    for model in models:
        path = example(model)
        if path is None:
            print(f"| {model} | has no example |")
            continue
        with TemporaryDirectory(prefix="assay-bench-") as cache:
            check = ("assay.cli", "check", path, "--model", model)
            told = [figure for _ in range(2) for figure in timed(check, cache)]
            kernels, parts, size = compiled(cache)
        seconds = " | ".join(f"{figure:.1f}" for figure in told)
        print(f"| {model} | {seconds} | {kernels.total()} | {parts} | {size:.1f} |", flush=True)
        for name, count in kernels.items():
            if count > 1:
                print(f"{name} is compiled {count} times")
    if len(models) == len(MODELS):
        with TemporaryDirectory(prefix="assay-bench-") as cache:
            cpu, clock = timed(("checkers.compile_all",), cache)
            kernels, parts, size = compiled(cache)
        print(f"| all examples | {cpu:.1f} | {clock:.1f} | | | {kernels.total()} | {parts} | {size:.1f} |")
    print(machine())


if __name__ == "__main__":
    main()

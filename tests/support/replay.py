"""Is a simulated program deterministic? Run seeds in one process, and in the opposite order under another
PYTHONHASHSEED.

`python -m tests.support.replay TARGET SEED…` prints JSON: each seed with its digest, and the last one once more.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

Program: TypeAlias = Callable[[int], str]
"""Runs one world with a seed, and returns its trace digest."""


def diverging_seeds(target: str, seeds: Sequence[int], timeout_s: float = 300) -> list[int]:
    """Seeds whose digest is not the same in two processes with different string hashes, in which other seeds ran before
    them, and in a second run at once (the last seed of each process).

    `target` names a `Program`: `package.module:function` or `path/to/file.py:function`.
    """
    found: dict[int, set[str]] = {seed: set() for seed in seeds}
    for hash_seed, order in ((1, [*seeds]), (2, [*reversed(seeds)])):
        for seed, digest in _digests_in_process(target, order, hash_seed, timeout_s):
            found[seed].add(digest)
    return [seed for seed, digests in found.items() if len(digests) > 1]


def _digests_in_process(target: str, seeds: Sequence[int], hash_seed: int, timeout_s: float) -> list[tuple[int, str]]:
    command = [sys.executable, "-m", "tests.support.replay", target, *map(str, seeds)]
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False)
    if ended.returncode != 0:
        raise RuntimeError(f"{target} failed under PYTHONHASHSEED={hash_seed}:\n{ended.stderr}")
    return [(seed, digest) for seed, digest in json.loads(ended.stdout.splitlines()[-1])]


def _load(target: str) -> Program:
    place, _, name = target.rpartition(":")
    if not place.endswith(".py"):
        program: Program = getattr(importlib.import_module(place), name)
        return program
    spec = importlib.util.spec_from_file_location(Path(place).stem, place)
    if spec is None or spec.loader is None:
        raise ImportError(place)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    loaded: Program = getattr(module, name)
    return loaded


def main(arguments: Sequence[str]) -> None:
    target, *words = arguments
    program = _load(target)
    seeds = [int(word) for word in words]
    sys.stdout.write(json.dumps([(seed, program(seed)) for seed in (*seeds, *seeds[-1:])]) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])

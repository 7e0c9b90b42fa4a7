"""Is a simulated program deterministic? Run seeds twice in one process and once under another PYTHONHASHSEED.

`python -m harness.sim.replay TARGET SEED…` prints one JSON object: the digests of a first and of a second run.
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
    """Seeds whose digest is not the same in two processes with different string hashes and in a process's second run.

    `target` names a `Program`: `package.module:function` or `path/to/file.py:function`.
    """
    first, second = _digests_in_process(target, seeds, hash_seed=1, timeout_s=timeout_s)
    other, _ = _digests_in_process(target, seeds, hash_seed=2, timeout_s=timeout_s, repeat=False)
    return [
        seed
        for seed, once, twice, elsewhere in zip(seeds, first, second, other, strict=True)
        if not once == twice == elsewhere
    ]


def _digests_in_process(
    target: str, seeds: Sequence[int], hash_seed: int, timeout_s: float, repeat: bool = True
) -> tuple[list[str], list[str]]:
    command = [
        sys.executable,
        "-m",
        "harness.sim.replay",
        target,
        *(["--once"] if not repeat else []),
        *map(str, seeds),
    ]
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False)
    if ended.returncode != 0:
        raise RuntimeError(f"{target} failed under PYTHONHASHSEED={hash_seed}:\n{ended.stderr}")
    answer = json.loads(ended.stdout.splitlines()[-1])
    return answer["first"], answer["second"]


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
    target, *rest = arguments
    program = _load(target)
    seeds = [int(word) for word in rest if word != "--once"]
    first = [program(seed) for seed in seeds]
    second = [program(seed) for seed in seeds] if "--once" not in rest else []
    sys.stdout.write(json.dumps({"first": first, "second": second}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])

"""What `assay pack` compiles where nothing is compiled yet: all that any check enters, at every size."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from checkers.compile_all import compile_choices, compile_growing
from checkers.compiled import kernel
from tests.support import kernels
from tests.support.kernels import entered_kernels, packed_kernels


@kernel
def _doubled(number):
    return 2 * number


@kernel
def _quadrupled(number):
    return _doubled(_doubled(number))


PLACES = {kernels.begins(each.py_func.__code__) for each in (_doubled, _quadrupled)}


def eight_times(number: int) -> int:
    return 2 * int(_quadrupled(number))


def by_python(number: int) -> int:
    return int(_doubled.py_func(number))


def test_kernels_that_python_enters_are_told_from_others() -> None:
    """One that a kernel calls is a part of it, and one that is called as Python is not compiled."""
    told = dict(kernels.calls(sys.modules[__name__], PLACES))
    assert told == {f"{__name__}._quadrupled": f"{__name__}.eight_times"}
    assert eight_times(3) == 24 and by_python(3) == 6


def test_what_small_histories_do_not_outgrow_is_compiled_ahead() -> None:
    compile_growing()
    compile_choices()
    assert compile_growing() == compile_choices() == 0


@pytest.mark.spark
@pytest.mark.campaign
def test_all_that_a_check_enters_is_packed(tmp_path: Path) -> None:
    """From an empty directory of kernels, for another test may have compiled what is missing."""
    archive = tmp_path / "pack.tar.gz"
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "compiled")}
    subprocess.run([sys.executable, "-m", "assay.cli", "pack", "--to", archive], check=True, env=environment)
    entered, packed = entered_kernels(), packed_kernels(archive)
    assert len(entered) > 80
    assert {name: caller for name, caller in entered.items() if name not in packed} == {}

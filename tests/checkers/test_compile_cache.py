"""A user who waits for compilation is told so."""

from __future__ import annotations

from numba import njit

from checkers.compile_cache import compilation_told


def test_compilation_is_told_as_one_however_many_functions_it_takes() -> None:
    @njit
    def inner(x):
        return x + 1

    @njit
    def outer(x):
        return inner(x)

    told: list[bool] = []
    with compilation_told(told.append):
        assert outer(1) == 2
        assert told == [True, False]
        assert outer(2) == 3
        assert told == [True, False]
        assert outer(0.5) == 1.5
    assert told == [True, False, True, False]
    assert outer(1j) == 1 + 1j and len(told) == 4

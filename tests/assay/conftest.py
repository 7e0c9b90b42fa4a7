"""What every test of the command line needs."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_debugging(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--debug` lasts as long as the process; here, as long as the test."""
    monkeypatch.setenv("ASSAY_DEBUG", "")

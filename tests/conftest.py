"""The order of tests: those that wait for Docker begin at once, beside all others."""

from __future__ import annotations

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Docker's first; tests of a module that share a Spark session stay together, so that it starts once."""
    for item in items:
        shared = {"spark", "engines"}.intersection(getattr(item, "fixturenames", ()))
        if shared and item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group(f"spark of {item.path.stem}"))
    items.sort(key=lambda item: item.get_closest_marker("docker") is None)

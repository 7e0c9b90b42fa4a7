"""The order of tests: those that wait for Docker begin at once, beside all others."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
"""How long an example takes says how busy the machine is."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Docker's first; tests of a module that share a Spark session stay together, so that it starts once."""
    for item in items:
        shared = {"spark", "engines"}.intersection(getattr(item, "fixturenames", ()))
        if shared and item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group(f"spark of {item.path.stem}"))
    items.sort(key=lambda item: item.get_closest_marker("docker") is None)

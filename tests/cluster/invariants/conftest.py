"""The cluster whose steps tests of invariants tell."""

from __future__ import annotations

import pytest
from watched_cluster import Cluster


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()

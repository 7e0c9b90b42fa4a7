"""Knobs as a simulated world of some seed has them."""

from __future__ import annotations

from cluster.deploy.drawn_knobs import KNOB_KEYS, knobs_of
from cluster.knobs import Knobs
from harness.ports.sim.worlds import Severity, draw_values


def draw_knobs(seed: object, severity: Severity = "harsh") -> Knobs:
    """The knobs that a world of this seed and severity has."""
    return knobs_of(draw_values(KNOB_KEYS, seed, severity, {}))

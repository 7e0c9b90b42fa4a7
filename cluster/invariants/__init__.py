"""Invariants that are checked while a simulated cluster runs (G10)."""

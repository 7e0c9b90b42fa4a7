"""Smaller things that show the same: what is left out, by which passes, and how long that is tried."""

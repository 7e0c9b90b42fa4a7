"""Benchmarks: each prints what it measured, with the machine's size, as one JSON object."""

"""Benchmarks: each prints what it measured, with the machine's size, as rows of JSON."""

"""Raft as a pure state machine: `step(event, now_ns) -> Ready`; no I/O, no clock, no randomness of its own."""

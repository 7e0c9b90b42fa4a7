"""Faults that wait for the state that matters: a leader just elected, a vote being granted, a write being stored."""

"""Jepsen's checkers: bank, set, counter, queue and their like, one file each."""

"""Histories: the crash-safe journal written during a run, and the table checkers read."""

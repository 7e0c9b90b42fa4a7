"""Histories: the crash-safe journal written during a run, the table checkers read, and exports."""

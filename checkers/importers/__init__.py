"""Readers of foreign histories: each turns a file into a table of `harness.history.columns.SCHEMA`."""

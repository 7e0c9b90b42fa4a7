"""Isolation levels of plain read and write transactions: read committed, read atomic, causal."""

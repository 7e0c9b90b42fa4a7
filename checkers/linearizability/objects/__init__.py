"""Linearizability of other objects: locks, queues, bags, sets, strings, rows of registers."""

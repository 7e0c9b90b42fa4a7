"""Linearizability of objects other than single registers: locks, queues, bags, sets, strings, rows of registers."""

"""Dependency graphs of transactions and the cycles in them."""

"""Workloads: a generator, the checkers that judge it, and the operations it needs of a client."""

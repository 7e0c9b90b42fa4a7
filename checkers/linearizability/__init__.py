"""Linearizability: of registers by zones, of any object by search."""

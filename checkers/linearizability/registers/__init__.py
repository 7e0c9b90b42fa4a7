"""Linearizability of single registers: by zones where values are unique, else by search."""

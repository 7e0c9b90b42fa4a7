"""The client library: knows only the masters' addresses (M14)."""

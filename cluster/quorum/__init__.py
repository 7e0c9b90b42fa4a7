"""Quorum keyspaces: partitions written and read at consistency levels, by the designs of CEP-45."""

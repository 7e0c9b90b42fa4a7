"""Adapters of databases that people use: each a plugin like anybody's, with its client's packages as an extra."""

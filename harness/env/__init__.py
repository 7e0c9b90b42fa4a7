"""Environments: where nodes live and what can be done to their machines and network."""

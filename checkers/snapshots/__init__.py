"""Reads at a timestamp, and change feeds."""

"""Verdicts and their evidence in words, as far as families share them."""

"""Nights: many runs by a plan, unattended, with one record of all of them."""

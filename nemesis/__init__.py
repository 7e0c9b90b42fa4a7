"""Faults as data, target selection, injectors, and the packages that compose them."""

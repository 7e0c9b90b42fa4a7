"""Engines: hand groups of a history to kernels, in-process or through Spark."""

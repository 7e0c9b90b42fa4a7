"""The command line: the composition root, the only package that knows all others."""

__version__ = "0.1.0"

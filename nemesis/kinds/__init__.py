"""The kinds of faults, one family a module: what is done, how it is seen in effect, how it is undone."""

"""The life of a run: its stages, the interpreter and its workers, what is recorded, when it may end."""

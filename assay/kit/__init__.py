"""What `assay new database NAME` writes: a database of one's own that works, to begin with.

The files here are copied, with `kv` replaced by the name; `check_store.py` becomes `test_NAME.py`.
"""

"""Judges of tables whose clients choose the timestamps of writes, and whose levels say what must be seen (Q1)."""

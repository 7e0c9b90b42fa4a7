"""What comes out of a run: the report, its plots, the gate."""

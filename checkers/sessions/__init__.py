"""Session guarantees, write atomicity: what reads of cells and partitions may show, and when."""

"""What a node keeps on its disk for its groups: log, hard state, snapshots (G5)."""

"""What a replica holds: rows with versions, client sessions, the clock that stamps them (R3, G3, G8)."""

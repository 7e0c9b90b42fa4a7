"""Messages between nodes and clients, and how they travel (G6)."""

"""One Raft group driven over the ports: proposals and who waits for them, applying, snapshots, members, sessions."""

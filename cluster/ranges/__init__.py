"""Replicated ranges: leases, evaluation at the leaseholder, the replicated state machine of a tablet (R, G2)."""

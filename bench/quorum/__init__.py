"""CEP-45's goals, measured: legacy replication against mutation tracking on the same workload and faults."""

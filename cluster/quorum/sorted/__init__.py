"""Sorted files: a log-structured store of partitions, the local store of a quorum keyspace's replica."""

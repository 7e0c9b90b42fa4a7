"""Masters: the metadata plane (seed 001; mechanisms M1-M14 of `reference-cluster.md`)."""

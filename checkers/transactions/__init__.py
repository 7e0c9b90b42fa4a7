"""Transactional models in the manner of Elle: dependency graphs, and the anomalies that are their cycles."""

"""Transactional models in the manner of Elle: dependency graphs of transactions, and the anomalies that are their cycles."""

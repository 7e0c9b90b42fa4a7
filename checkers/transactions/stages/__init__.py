"""Transactions on Spark, stage by stage."""

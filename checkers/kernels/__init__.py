"""Kernels: pure functions over sorted columns, compiled with numba; no Spark and no files in sight."""

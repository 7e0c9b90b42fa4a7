"""Judging: kernels over columns, the pipeline around them, verdicts, explanations and history importers."""

"""Judging: kernels over columns, the pipeline around them, verdicts, explanations and history importers."""

from checkers.compile_cache import use_portable_cpu

use_portable_cpu()

"""Where the conformance corpus is: histories with verdicts that other tools state, kept beside the repository."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

CORPUS: Final = Path(os.environ.get("ASSAY_CORPUS", Path(__file__).resolve().parents[3] / "shared" / "corpus"))

NO_CORPUS: Final = f"no conformance corpus at {CORPUS}; set ASSAY_CORPUS to where it is"

needs_corpus: Final = pytest.mark.skipif(not (CORPUS / "index.tsv").exists(), reason=NO_CORPUS)

OWN: Final = Path(__file__).resolve().parents[1] / "corpus"
"""Small histories of our own with verdicts by brute force (`tests.support.make_corpus`)."""

"""Documents that a machine keeps true: the module map in ARCHITECTURE.md and the track record in the README.

`ASSAY_WRITE_DOCS=1` rewrites the module map.
"""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path

from assay.campaign import flawed_options
from cluster.flaws import FLAWS

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("harness", "cluster", "nemesis", "workloads", "checkers", "results", "assay")
BEGIN, END = "<!-- modules -->", "<!-- end of modules -->"


def first_sentence(path: Path) -> str:
    text = " ".join((ast.get_docstring(ast.parse(path.read_text())) or "").split())
    return re.split(r"(?<=[.:])\s", text)[0].rstrip(".:")


def module_map() -> str:
    lines = []
    for package in PACKAGES:
        lines.append(f"\n**{package}/** {first_sentence(ROOT / package / '__init__.py')}.\n")
        for path in sorted((ROOT / package).rglob("*.py")):
            if path.name != "__init__.py":
                lines.append(f"- `{path.relative_to(ROOT)}`: {first_sentence(path)}")
    return "\n".join(lines) + "\n"


def test_module_map_is_true() -> None:
    document = ROOT / "ARCHITECTURE.md"
    text = document.read_text()
    before, rest = text.split(BEGIN)
    written, after = rest.split(END)
    if os.environ.get("ASSAY_WRITE_DOCS"):
        document.write_text(f"{before}{BEGIN}\n{module_map()}\n{END}{after}")
        return
    assert written.strip() == module_map().strip(), "run: ASSAY_WRITE_DOCS=1 python -m pytest tests/test_docs.py"


def test_every_module_says_what_it_is() -> None:
    silent = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if not first_sentence(path)]
    assert silent == []


def test_track_record_names_every_flaw_and_its_command() -> None:
    from tests.assay.test_campaigns import FOUND_BY

    readme = (ROOT / "README.md").read_text()
    for name, flaw in FLAWS.items():
        if name not in FOUND_BY:
            assert f"`{name}`" in readme.split("Not found by a pinned command yet:")[1].split("\n\n")[0]
            continue
        assert f"| `{name}` |" in readme
        options = flawed_options(flaw, FOUND_BY[name])
        words = f"assay run {flaw.workload} --nemesis {flaw.nemesis} --time-limit {options.time_limit:g}"
        assert f"{words} --seed {options.seed} --flaw {name}" in readme

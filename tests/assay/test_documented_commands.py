"""Commands that the documents show are commands: each is parsed, and the options of runs are validated."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest
import typer

from assay import cli, run_command
from assay.cli import app
from assay.new_command import new_database
from assay.options import RunOptions, validate

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "tests" / "README.md",
    *sorted(ROOT.glob("docs/**/*.md")),
]
PLACEHOLDER = re.compile(r"…|\||\b[A-Z]{3,}\b(?!=)")
"""What stands for something else: `assay check RUN`."""

EXAMPLE = "few-registers"
"""The workload that CONTRIBUTING.md shows how to add; `test_contributing` carries it out."""


def shown(path: Path) -> list[str]:
    """The commands of a document, in blocks and between backticks."""
    text = path.read_text()
    blocks = re.findall(r"```(?:sh|bash)?\n(.*?)```", text, re.S)
    spans = re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.S))
    lines = [line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [" ".join(each.split()) for each in (*lines, *spans)]


def commands(program: str) -> list[tuple[str, tuple[str, ...]]]:
    """The arguments of the program in each command that the documents show whole."""
    return [
        (path.relative_to(ROOT).as_posix(), tuple(shlex.split(line, comments=True)[program.count(" ") + 1 :]))
        for path in DOCUMENTS
        for line in shown(path)
        if line.startswith(f"{program} ") and not PLACEHOLDER.search(line.partition(" #")[0])
    ]


COMMAND = typer.main.get_command(app)


def parse(arguments: Sequence[str]) -> None:
    """Raises an exception of click's for what is no command; a command's name alone is the mention of one."""
    command, rest, context = COMMAND, list(arguments), None
    while rest and hasattr(command, "resolve_command"):
        context = command.make_context("assay", rest, parent=context)
        _, command, rest = command.resolve_command(context, rest)
    if rest:
        command.make_context("assay", rest, parent=context)


def refused(kept: list[RunOptions], arguments: Sequence[str]) -> str | None:
    """What is wrong with a command; the options of a run are put to `kept`."""
    try:
        parse(arguments)
        if arguments[0] == "run" and len(arguments) > 1:
            COMMAND.main(list(arguments), "assay", standalone_mode=False)
            validate(kept[-1])
    except Exception as error:  # noqa: BLE001 - also those of the parser, whose classes typer keeps to itself
        lacks = error.__class__.__name__ == "MissingParameter" or str(error).startswith("Name a workload")
        left_out = lacks and "--inputs" not in arguments  # sentences name a command by what matters there
        return None if left_out else f"{error.__class__.__name__}: {error}"
    return None


def test_commands_that_documents_show_can_be_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    list(new_database("kv", tmp_path, broken=False))  # which documents show before they use it
    monkeypatch.chdir(tmp_path)
    kept: list[RunOptions] = []
    monkeypatch.setattr(run_command, "run_or_runs", lambda options, *rest: kept.append(options) or 0)
    monkeypatch.setattr(cli, "judging", lambda one_run: nullcontext())  # each run would load all that judges
    every = [(document, arguments) for document, arguments in commands("assay") if EXAMPLE not in arguments]
    assert len(every) > 80
    wrong = [(document, arguments, refused(kept, arguments)) for document, arguments in every]
    assert [each for each in wrong if each[-1]] == []
    assert len(kept) > 50
    assert refused(kept, ("run", "no-such-workload")) and refused(kept, ("run", "register", "--nemesis", "no-such"))
    assert refused(kept, ("check", "--no-such")) and refused(kept, ("no-such", "register"))


def test_modules_and_targets_that_documents_call_exist() -> None:
    modules = {arguments[0] for _, arguments in commands("python -m")} - {"pytest"}
    assert len(modules) > 4
    places = {module: ROOT.joinpath(*module.split(".")) for module in sorted(modules)}
    there = {module for module, at in places.items() if at.with_suffix(".py").exists() or (at / "__main__.py").exists()}
    assert modules - there == set()
    targets = {arguments[0] for _, arguments in commands("make")}
    assert {"test", "demo"} < targets
    known = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert targets - known == set()

"""Runs the command line in-process, as `assay` would be run, and says what it printed and with which code it ended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from assay.cli import main

WROTE = "{:process 0 :type :invoke :f :write :value 1 :time 0}\n{:process 0 :type :ok :f :write :value 1 :time 9}\n"
READ = "{{:process 1 :type :invoke :f :read :time 20}}\n{{:process 1 :type :ok :f :read :value {} :time 29}}\n"
VALID = WROTE + READ.format(1)
INVALID = WROTE + READ.format(7)
LEFT = "left by runs that were killed"
UNKNOWN_SET = "{:process 0 :type :invoke :f :add :value 1 :time 0}\n{:process 0 :type :ok :f :add :value 1 :time 9}\n"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command ended with."""

    code: int
    out: str
    err: str

    @property
    def objects(self) -> list[Any]:
        """Standard output as JSON, one value a line."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def complaint(self) -> str:
        """The one sentence on standard error, but for what others left here; fails if there is more, less, or a
        traceback."""
        assert "Traceback" not in self.err
        lines = [line for line in self.err.splitlines() if line.startswith("assay: ") and LEFT not in line]
        assert len(lines) == 1, self.err
        assert lines[0].rstrip().endswith((".", ")")), lines[0]
        return lines[0]


def assay(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> Answer:
    """Run `assay ARGUMENTS` in this process."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    code = ended.value.code
    assert isinstance(code, int)
    return Answer(code, captured.out, captured.err)


def files(folder: Path, **texts: str) -> Iterator[Path]:
    """Files of the given names and contents, with `.edn` behind the name."""
    for name, text in texts.items():
        path = folder / f"{name}.edn"
        path.write_text(text)
        yield path

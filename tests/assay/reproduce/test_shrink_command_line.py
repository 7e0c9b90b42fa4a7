"""`assay shrink` from the command line: what it writes and says, and what it refuses in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.reproduce import shrink_command
from tests.assay.command_line import UNKNOWN_SET, VALID, assay

STALE = """\
{:process 0 :type :invoke :f :write :value 1}
{:process 0 :type :ok :f :write :value 1}
{:process 1 :type :invoke :f :read}
{:process 1 :type :ok :f :read :value 1}
{:process 0 :type :invoke :f :write :value 2}
{:process 0 :type :ok :f :write :value 2}
{:process 2 :type :invoke :f :write :value 3}
{:process 1 :type :invoke :f :read}
{:process 1 :type :ok :f :read :value 1}
{:process 0 :type :invoke :f :read}
{:process 0 :type :ok :f :read :value 2}
"""
"""Of these six operations three show a stale read."""

THIN_AIR = "{:process 3 :type :invoke :f :read}\n{:process 3 :type :ok :f :read :value 9}\n"
"""A read of a value that nobody wrote: another finding, and a stronger one."""

FEWEST = "{:process 1 :type :invoke :f :read}\n{:process 1 :type :ok :f :read :value 7}\n"

TWO_BANKS = """\
{:process 0 :type :invoke :f :txn :value [1 [[:r :x nil]]]}
{:process 0 :type :ok :f :txn :value [1 [[:r :x [5]]]]}
{:process 1 :type :invoke :f :txn :value [2 [[:append :x 5]]]}
{:process 1 :type :ok :f :txn :value [2 [[:append :x 5]]]}
"""

OWN = """\
class Never:
    def init(self):
        return 0

    def step(self, state, op):
        return [] if op.value == 7 else [state]

    def partition(self, op):
        return op.key
"""


def history(folder: Path, text: str) -> Path:
    path = folder / "history.edn"
    path.write_text(text)
    return path


def test_a_stale_read_is_left_with_what_makes_it_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = assay(capsys, "shrink", history(tmp_path, STALE), "--model", "register", "--to", tmp_path / "small")
    assert told.code == 1
    assert "3 operations of 6" in told.out
    assert "stale-read: Process 1 read 1" in told.out
    assert "Each of these is necessary" in told.out
    assert sorted(path.name for path in (tmp_path / "small").iterdir()) == [
        "history.edn",
        "history.parquet",
        "report.html",
    ]
    assert "<svg" in (tmp_path / "small" / "report.html").read_text()
    for name in ("history.edn", "history.parquet"):
        arguments = ["--model", "register"] if name.endswith("edn") else []
        (judged,) = assay(capsys, "check", tmp_path / "small" / name, "--json", *arguments).objects
        assert (judged["valid"], judged["ops"], list(judged["anomalies"])) == (False, 3, ["stale-read"])


def test_each_finding_shrinks_to_its_own_and_names_the_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = history(tmp_path, STALE + THIN_AIR)
    for asked, operations, other in (("read-of-unwritten", 1, "stale-read"), ("stale-read", 3, "read-of-unwritten")):
        to = tmp_path / asked
        told = assay(
            capsys, "shrink", both, "--model", "register", "--anomaly", asked, "--json", "--to", to, "--budget", "5m"
        )
        (found,) = told.objects
        assert (told.code, found["anomaly"], found["operations"]["smallest"]) == (1, [asked], operations)
        assert list(found["others"]) == [other]
        assert list(found["verdict"]["anomalies"]) == [asked]
        assert found["necessary"] is True


def test_an_independent_object_is_saved_as_the_only_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    to = tmp_path / "small"
    (found,) = assay(
        capsys, "shrink", history(tmp_path, TWO_BANKS), "--model", "list-append", "--json", "--to", to
    ).objects
    assert found["operations"] == {"whole": 2, "smallest": 1}
    assert (to / "history.parquet").exists()


def test_a_model_of_ones_own_leaves_out_whole_partitions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.py").write_text(OWN)
    text = STALE.replace(" :f", " :key 1 :f") + FEWEST.replace(" :f", " :key 2 :f")
    told = assay(
        capsys, "shrink", history(tmp_path, text), "--model", f"{tmp_path / 'own.py'}:Never", "--to", tmp_path / "s"
    )
    assert told.code == 1, told.err
    assert "1 operation of 7" in told.out
    assert "--model" in next(line for line in told.out.splitlines() if "again:" in line)


@pytest.mark.parametrize(
    ("text", "arguments", "code", "says"),
    [
        (VALID, ["--model", "register"], 254, "is valid by register, so there is nothing to shrink."),
        (FEWEST, ["--model", "register"], 254, "can't become smaller: its only operation is necessary."),
        ("{:process 0", ["--model", "register"], 254, "history.edn"),
        (STALE, ["--model", "list-append"], 254, "the model list-append can't judge it."),
        (STALE, ["--model", "nothing"], 254, "There is no model 'nothing'"),
        (STALE, ["--model", "logs"], 254, "there is nothing to shrink."),
        (STALE, [], 254, "name what to check it for with --model"),
        (STALE, ["--model", "register", "-o", "total=1"], 254, "There is no setting 'total'"),
        (STALE, ["--model", "register", "--consistency", "SI"], 254, "has no such choice"),
        (STALE, ["--model", "register", "--anomaly", "G0"], 254, "No G0 refutes this history; what does: stale-read."),
        (STALE, ["--model", "register", "--budget", "soon"], 254, "--budget is 'soon'"),
        (STALE, ["--model", "register", "--to", "nowhere/small"], 254, "There is no directory nowhere"),
        (STALE, ["--model", "register", "--to", "."], 254, "is there already"),
    ],
)
def test_bad_input_is_one_sentence(
    text: str,
    arguments: list[str],
    code: int,
    says: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    told = assay(capsys, "shrink", history(tmp_path, text), *arguments)
    assert told.code == code
    assert says in told.complaint
    assert [path.name for path in tmp_path.iterdir()] == ["history.edn"]


def test_what_is_not_there_and_what_is_undecided(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    missing = assay(capsys, "shrink", tmp_path / "nothing.edn", "--model", "set")
    assert (missing.code, "There is no file" in missing.complaint) == (254, True)
    unknown = assay(capsys, "shrink", history(tmp_path, UNKNOWN_SET), "--model", "set")
    assert unknown.code == 2
    assert "There is no finding to follow." in unknown.out


@pytest.mark.parametrize("stop", [KeyboardInterrupt, None])
def test_the_best_so_far_is_written_when_it_is_stopped(
    stop: type[BaseException] | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By ctrl-c, or when its time is over: here after the first part that breaks."""
    breaks = shrink_command.HistorySearch._breaks

    def once(self: shrink_command.HistorySearch, part: object) -> bool:
        if self.trials.best is not None:
            if stop is not None:
                raise stop
            self.trials.budget_s = 0.0
        return breaks(self, part)  # type: ignore[arg-type]

    monkeypatch.setattr(shrink_command.HistorySearch, "_breaks", once)
    told = assay(
        capsys, "shrink", history(tmp_path, STALE + THIN_AIR), "--model", "register", "--to", tmp_path / "small",
        "--anomaly", "stale-read",
    )  # fmt: skip
    assert told.code == 1
    assert "this is the best so far" in told.out
    assert (tmp_path / "small" / "history.parquet").exists()


def test_a_stop_before_anything_was_judged_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = assay(
        capsys, "shrink", history(tmp_path, STALE), "--model", "register", "--budget", "0.000001",
        "--to", tmp_path / "small",
    )  # fmt: skip
    assert told.code == 1
    assert "before any part was judged; nothing is written." in told.out
    assert not (tmp_path / "small").exists()

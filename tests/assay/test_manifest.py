"""`assay check --manifest`: a table of histories and verdicts is judged line by line and compared."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import INVALID, READ, UNKNOWN_SET, VALID, WROTE, assay, files

from assay.manifest import REQUIRED
from checkers.transactions import judge_transactions as transactions
from tests.support.corpus import OWN

HEADER = "file\tformat\tmodel\tvalid\tanomalies\tsource\n"


def table(folder: Path, *lines: str, header: str = HEADER) -> Path:
    failed = VALID.replace(":ok", ":fail")
    list(files(folder, good=VALID, bad=INVALID, silent=UNKNOWN_SET, failed=failed))
    path = folder / "table.tsv"
    path.write_text(header + "".join(f"{line}\n" for line in lines))
    return path


GOOD = "good.edn\tedn\tregister\ttrue\t\tmade here"
BAD = "bad.edn\tedn\tregister\tfalse\tread-of-unwritten\tmade here"
SILENT = "silent.edn\t\tset\tunknown"


def test_agreement_is_exit_code_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer = assay(capsys, "check", "--manifest", table(tmp_path, GOOD, BAD, "", SILENT))
    assert answer.code == 0
    assert answer.out.splitlines()[:2] == ["register: 2 agree", "set: 1 agree"]
    assert answer.out.splitlines()[-1].startswith("3 of 3 agree, 0 disagree; 5 operations in ")
    assert answer.err == ""


def test_json_is_one_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = "good.edn\tedn\tregister\tfalse\tcas-cycle"
    answer = assay(capsys, "check", "--manifest", table(tmp_path, GOOD, BAD, wrong), "--json")
    assert answer.code == 1
    (found,) = answer.objects
    assert (found["agrees"], found["agreements"], found["disagreements"]) == (False, 2, 1)
    assert [row["found"] for row in found["rows"]] == ["true", "false", "true"]
    assert found["rows"][1]["anomalies"] == {"read-of-unwritten": 1}
    assert found["rows"][2]["missing"] == ["cas-cycle"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("good.edn\tedn\tregister\tfalse", "expected false, found true"),
        ("bad.edn\tedn\tregister\ttrue", "expected true, found false"),
        ("silent.edn\tedn\tset\ttrue", "expected true, found unknown: The set was never read."),
        ("good.edn\tedn\tno-such-model\ttrue", "found error: There is no model 'no-such-model'"),
        ("gone.edn\tedn\tregister\ttrue", "found error: There is no file"),
        ("good.edn\tjson\tregister\ttrue", "found error:"),
        ("good.edn\tedn\tisolation\tstrongest=none", "expected strongest=none, found strongest=causal"),
        ("failed.edn\tedn\tisolation\tstrongest=causal", "expected strongest=causal, found unknown: No operation"),
        ("failed.edn\tedn\tisolation\tstrongest=None", "expected strongest=None, found unknown: No operation"),
    ],
)
def test_a_disagreement_is_told_and_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, words: str
) -> None:
    answer = assay(capsys, "check", "--manifest", table(tmp_path, GOOD, line, BAD))
    assert answer.code == 1
    (told,) = [one for one in answer.out.splitlines() if "DISAGREES" in one]
    assert words in told
    assert "2 of 3 agree, 1 disagree" in answer.out


@pytest.mark.parametrize(
    ("header", "line", "words"),
    [
        ("file\tmodel\n", "good.edn\tregister", "no column valid"),
        ("", "", "no column file"),
        (HEADER, "", "names no history"),
        (HEADER, "good.edn\tedn\tregister\tyes", "line 2: valid is 'yes'"),
        (HEADER, "good.edn\tedn\t\ttrue", "line 2: the column model is empty"),
        (HEADER, GOOD + "\tmore\tand more", "line 2: there are 8 cells below 6 columns"),
    ],
)
def test_unreadable_tables_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], header: str, line: str, words: str
) -> None:
    answer = assay(capsys, "check", "--manifest", table(tmp_path, line, header=header), "--json")
    assert answer.code == 254 and answer.out == ""
    assert words in answer.complaint


def test_a_table_is_no_history_and_the_reverse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = table(tmp_path, GOOD)
    assert "can't be read" in assay(capsys, "check", "--manifest", tmp_path / "gone.tsv").complaint
    assert "leave those" in assay(capsys, "check", "--manifest", path, "--model", "register").complaint
    assert "leave those" in assay(capsys, "check", "--manifest", path, tmp_path / "good.edn").complaint
    drawn = assay(capsys, "check", "--manifest", path, "--report", tmp_path / "page.html")
    assert drawn.code == 254 and "--report draws histories named one by one" in drawn.complaint
    assert not (tmp_path / "page.html").exists()
    assert "no engine 'flink'" in assay(capsys, "check", "--manifest", path, "--engine", "flink").out


def test_settings_reach_the_models_that_know_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = table(tmp_path, GOOD, "count.edn\tedn\tcounter\ttrue")
    adds = WROTE.replace(":write", ":add") + READ.format(101)
    list(files(tmp_path, count=adds))
    assert assay(capsys, "check", "--manifest", path).code == 1
    assert assay(capsys, "check", "--manifest", path, "-o", "initial=100").code == 0
    assert "of any model" in assay(capsys, "check", "--manifest", path, "-o", "initail=100").complaint


STALE = """{:process 0 :type :invoke :f :txn :value [[:append 1 5]]}
{:process 0 :type :ok :f :txn :value [[:append 1 5]]}
{:process 1 :type :invoke :f :txn :value [[:r 1 nil]]}
{:process 1 :type :ok :f :txn :value [[:r 1 []]]}
"""


def test_lines_of_one_file_are_inferred_once_and_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    list(files(tmp_path, stale=STALE))
    models = ("strict-serializable", "serializable", "", "serialisable", "read-committed")
    verdicts = ("false", "true", "false", "true", "true")
    path = tmp_path / "table.tsv"
    lines = [f"stale.edn\tlist-append\t{valid}\t{name}" for name, valid in zip(models, verdicts, strict=True)]

    def outcomes(*chosen: int) -> list[dict[str, object]]:
        path.write_text("\n".join(["file\tmodel\tvalid\tconsistency", *(lines[place] for place in chosen)]))
        (found,) = assay(capsys, "check", "--manifest", path, "--engine", "local", "--json").objects
        return [row | {"seconds": 0} for row in found["rows"]]

    alone = [outcomes(place)[0] for place in range(5)]
    assert [row["agrees"] for row in alone] == [True, True, True, False, True]
    assert outcomes(0, 1, 2, 3, 4) == alone
    calls: list[str] = []
    infer = transactions.infer_in_process
    monkeypatch.setattr(transactions, "infer_in_process", lambda *told: calls.append(told[1]) or infer(*told))
    assert outcomes(4, 0, 1) == [alone[4], alone[0], alone[1]]
    assert calls == ["list-append"]


def test_only_three_columns_are_needed_and_their_order_is_free(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert REQUIRED == ("file", "model", "valid")
    path = table(tmp_path, "true\tgood.edn\tregister", header="valid\tfile\tmodel\n")
    assert assay(capsys, "check", "--manifest", path).code == 0


def test_our_own_corpus_agrees(capsys: pytest.CaptureFixture[str]) -> None:
    answer = assay(capsys, "check", "--manifest", OWN / "index.tsv", "--engine", "local", "--json")
    (found,) = answer.objects
    assert [(row["file"], row["found"]) for row in found["rows"] if not row["agrees"]] == []
    assert (answer.code, found["disagreements"]) == (0, 0)
    assert len(found["rows"]) > 100

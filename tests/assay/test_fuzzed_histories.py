"""Mutated, truncated and odd histories of every format: every model gives a verdict or one sentence, no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import assay
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checkers.models import MODELS
from harness.history.journal import JournalWriter
from harness.history.ops import Op, read, write
from harness.history.table import write_parquet

EDN = b"""[{:process 0, :type :invoke, :f :txn, :value [[:append 1 2] [:r "y" nil]], :time 5, :index 3}
{:process 0, :type :ok, :f :txn, :value [[:append 1 2] [:r "y" [3 4]]], :time 6, :index 4}
{:process :nemesis, :type :info, :f :start, :value "cut", :index 5}
{:process 1, :type :invoke, :f :read, :value nil, :index 6} ; a comment
{:process 1, :type :fail, :f :read, :value nil, :error [:gone "x"], :index 8}]
"""
KEYED = b"""{:process 0 :type :invoke :f :cas :value [7 [1 2]]} {:process 0 :type :ok :f :cas :value [7 [1 2]]}
{:process 0 :type :invoke :f :read :value [7 nil]} {:process 0 :type :ok :f :read :value [7 2]}
{:process 1 :type :invoke :f :write :value [:k 5]} {:process 1 :type :info :f :write :value :timed-out}
"""
MAPS = b"""{:process 0 :type :invoke :f :read} {:process 0 :type :ok :f :read :value {0 5, 1 -5}}
{:process 0 :type :invoke :f :transfer :value {:from 0 :to 1 :amount 5}} {:process 0 :type :fail :f :transfer}
{:process 0 :type :invoke :f :add :value 4} {:process 0 :type :ok :f :add :value 4}
{:process 0 :type :invoke :f :enqueue :value 4} {:process 0 :type :ok :f :enqueue :value 4}
{:process 0 :type :invoke :f :dequeue} {:process 0 :type :ok :f :dequeue :value 4}
{:process 0 :type :invoke :f :read} {:process 0 :type :ok :f :read :value #{4}}
{:process 0 :type :invoke :f :acquire} {:process 0 :type :ok :f :acquire}
"""
JSON = b"""[{"process": 0, "type": "invoke", "f": "write", "value": 1, "time": 5},
{"process": 0, "type": "ok", "f": "write", "value": 1, "time": 6},
{"process": 1, "type": "invoke", "f": "read", "value": null}, {"process": 1, "type": "ok", "f": "read", "value": 1}]
"""
LOG = b"""INFO  jepsen.core - chatter
INFO  jepsen.util - 0\t:invoke\t:write\t1\r
INFO  jepsen.util - 0\t:ok\t:write\t1
INFO  jepsen.util - 1  :invoke  :cas  [1 2]
INFO  jepsen.util - 1  :fail  :cas  :timed-out
INFO  jepsen.util - :nemesis\t:info\t:start\tnil
"""
PLUME = b"w(1,5,0,0)\nr(1,5,1,1)\nw(2,6,1,-1)\n"
AWDIT = b"w 1 5\n-----\nr 1 5\n=====\nw 2 6\n-----\n"

TEXTS = {
    "edn": (EDN, KEYED, MAPS),
    "json": (JSON,),
    "jepsen-log": (LOG,),
    "plume-text": (PLUME,),
    "awdit-text": (AWDIT,),
}

ODD = (
    *(
        b"nil",
        b"true",
        b"-9223372036854775808",
        b"9223372036854775807",
        b"9223372036854775808",
        b"-4611686018427387905",
    ),
    *(b"5N", b"1/2", b"1e999", b"-0.0", b"##NaN", b'#inst "2026-01-01"', b'#uuid "x"', b"#{}", b"#{1 2}", b"#_ 5"),
    *(
        b"\\a",
        b"\\(",
        b'"',
        b'"\\u00"',
        b":",
        b"::x",
        b"#",
        b"#:a{:b 1}",
        b"[[",
        b"]]",
        b"{",
        b"}",
        b"[]",
        b"{}",
        b"()",
    ),
    *(b"\xff\xfe", b"\xef\xbb\xbf", b"\x00", b"\r\n", b"\t", b"; x\n", b"[1 nil]", b"[nil nil]", b"[1 2 3 4]"),
    *(
        b":invoke",
        b":ok",
        b":info",
        b":index 4",
        b":process -1",
        b":process nil",
        b":key 3",
        b":value 3",
        b"[[:r 1 nil]]",
    ),
    *(
        b"[" * 600,
        b"1" * 400,
        b"[[:r [1 2 3 4] [1]]]",
        b"[[:cas 1 [1 2]]]",
        b"{:a {:b [nil]}}",
        b"{nil 1}",
        b"[5 {:a 1}]",
    ),
)


@st.composite
def texts(draw: st.DrawFn) -> tuple[str, bytes]:
    """A format and a text of it, damaged in some places."""
    format = draw(st.sampled_from(sorted(TEXTS)))
    text = draw(st.sampled_from(TEXTS[format]))
    for _ in range(draw(st.integers(0, 4))):
        begin = draw(st.integers(0, len(text)))
        end = begin + draw(st.sampled_from((0, 0, 1, 2, 5, 30)))
        put = draw(st.one_of(st.sampled_from(ODD), st.binary(max_size=3)))
        text = text[:begin] + put + text[end:]
    if draw(st.booleans()):
        text = text[: draw(st.integers(0, len(text)))]
    return format, text


def judged(capsys: pytest.CaptureFixture[str], path: Path, model: str, *arguments: str) -> int:
    """The exit code; fails for anything but a verdict with its word (0, 1, 2) or one sentence (254)."""
    answer = assay(capsys, "check", path, "--model", model, "--engine", "local", *arguments)
    if answer.code == 254:
        assert answer.complaint and answer.out == ""
    else:
        assert answer.code in (0, 1, 2), answer
        assert "crashed" not in answer.out and answer.out.startswith(("VALID", "INVALID", "UNKNOWN")[answer.code])
    return answer.code


ALONE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@ALONE
@given(
    found=texts(),
    model=st.sampled_from(sorted(MODELS)),
    stated=st.booleans(),
    suffix=st.sampled_from(("", ".edn", ".x")),
)
def test_no_text_makes_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], found: tuple[str, bytes], model: str, stated: bool, suffix: str
) -> None:
    format, text = found
    path = tmp_path / f"history{suffix}"
    path.write_bytes(text)
    assert judged(capsys, path, model, *(("--format", format) if stated else ())) in (0, 1, 2, 254)


@ALONE
@given(
    data=st.data(),
    model=st.sampled_from(("register", "list-append", "stats")),
    kind=st.sampled_from(("journal", "parquet")),
)
def test_no_damaged_file_of_ours_makes_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: st.DataObject, model: str, kind: str
) -> None:
    path = tmp_path / f"history.{kind}"
    if not path.exists():
        _save(path)
    whole = path.read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    damaged = bytearray(whole)
    damaged[place] ^= 1 << data.draw(st.integers(0, 7))
    if data.draw(st.booleans()):
        del damaged[data.draw(st.integers(0, len(whole))) :]
    (tmp_path / "damaged").write_bytes(damaged)
    whole_code, code = judged(capsys, path, model), judged(capsys, tmp_path / "damaged", model)
    if kind == "parquet":
        assert code in (254, whole_code), "a seal is on all of it, so damage changes no verdict"
    else:
        assert code in (254, whole_code, 0, 2), "what is left of a journal shows nothing that the whole does not"


def _save(path: Path) -> None:
    events = []
    for i in range(6):
        begun = Op("invoke", i, "write" if i < 3 else "read", (write(1, i) if i < 3 else read(1),), index=2 * i, time=i)
        events += [begun, begun.complete("ok" if i < 3 else "fail", index=2 * i + 1, time=i)]
    if path.suffix == ".parquet":
        write_parquet(events, path)
        return
    journal = JournalWriter(path)
    for event in events:
        journal.append(event)
    journal.close()


@pytest.mark.parametrize("model", sorted(MODELS))
def test_every_model_takes_every_format(tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str) -> None:
    path = tmp_path / "history"
    for format, examples in TEXTS.items():
        for text in examples:
            path.write_bytes(text)
            told = judged(capsys, path, model, "--format", format)
            if model in ("register", "stats"):  # what it is is found out before any model sees it
                assert judged(capsys, path, model) == told


@pytest.mark.parametrize("text", [b"", b"\n", b"; nothing\n", b"\xef\xbb\xbf", b"[1]", b"{}", b"[{}]", b"nil"])
def test_no_history_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: bytes) -> None:
    path = tmp_path / "history.edn"
    path.write_bytes(text)
    assert judged(capsys, path, "register") == judged(capsys, path, "set") == 254


@pytest.mark.parametrize("model", sorted(MODELS))
def test_an_empty_history_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str) -> None:
    path = tmp_path / "history.edn"
    for text in (b"[]", b"()"):
        path.write_bytes(text)
        assert judged(capsys, path, model) == (254 if model == "logs" else 2), "nothing was judged"


NAMED_F = {"bank": "transfer", "set": "add", "counter": "add", "queue": "enqueue", "unique-ids": "generate"}


@pytest.mark.parametrize("model", [name for name in MODELS if name != "logs"])
def test_nothing_that_is_known_to_have_succeeded_is_never_valid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str
) -> None:
    """Writes, transactions, or what else the model knows, that all ended `info`."""
    path = tmp_path / "history.edn"
    value = "[[:w 1 {}]]" if model in ("multi-register", "isolation", "rw-register") else "{}"
    lines = [
        f"{{:process {i} :type {kind} :f :{NAMED_F.get(model, 'write')} :value {value.format(i)} :time {100 * j + i}}}"
        for i in range(50)
        for j, kind in enumerate((":invoke", ":info"))
    ]
    path.write_text("\n".join(lines))
    assert judged(capsys, path, model) in (2, 254)


@pytest.mark.parametrize("text", [EDN, KEYED, MAPS, JSON, LOG, PLUME, AWDIT])
@pytest.mark.parametrize("change", ["byte order mark", "crlf"])
def test_windows_says_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: bytes, change: str) -> None:
    path = tmp_path / "history"
    path.write_bytes(text)
    model = "isolation" if text in (PLUME, AWDIT) else "stats"
    plain = assay(capsys, "check", path, "--model", model).out
    path.write_bytes(b"\xef\xbb\xbf" + text if change == "byte order mark" else text.replace(b"\n", b"\r\n"))
    assert assay(capsys, "check", path, "--model", model).out.partition("(")[0] == plain.partition("(")[0] != ""

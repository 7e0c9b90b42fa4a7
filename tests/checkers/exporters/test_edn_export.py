"""What is exported is Jepsen's own form, and comes back as the same history or is refused."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from exported import exported, rows
from hypothesis import given
from hypothesis import strategies as st

from checkers.api import check
from checkers.exporters.edn import write_edn
from checkers.exporters.values import foreign_forms, is_vector
from checkers.importers.detect import open_source
from checkers.importers.jepsen import open_edn
from checkers.made.pages import PageShape, write_page_history
from checkers.made.registers import RegisterShape, write_register_history
from checkers.made.transactions import TxnShape, write_txn_history
from checkers.options import CheckOptions
from checkers.source import Source
from harness.errors import HarnessError, UserError
from harness.history.columns import DICTIONARY_KEY, FOREIGN_BASE
from harness.history.ops import Mop, Op, cas, read, write
from harness.history.parts import schema
from harness.history.table import to_table
from tests.support.corpus import CORPUS, needs_corpus
from tests.support.few_seeds import few_examples

HERE = Path("history")

JEPSEN = {
    "register": """
{:index 0, :time 3, :type :invoke, :process 0, :f :write, :value 3}
{:index 1, :time 4, :type :invoke, :process 1, :f :read, :value nil}
{:index 2, :time 5, :type :ok, :process 1, :f :read, :value 3}
{:index 3, :time 6, :type :invoke, :process 1, :f :cas, :value [3 4]}
{:index 4, :time 7, :type :fail, :process 1, :f :cas, :value [3 4]}
{:index 5, :time 8, :type :info, :process :nemesis, :f :start-partition, :value ["n1" {"n2" [:n3 5]}]}
{:index 6, :time 9, :type :info, :process 0, :f :write, :value 3, :error :timeout}
{:index 7, :time 10, :type :invoke, :process 2, :f :read, :value nil}
""",
    "independent keys": """
{:index 0, :time 3, :type :invoke, :process 0, :f :write, :value [:x 3]}
{:index 1, :time 4, :type :ok, :process 0, :f :write, :value [:x 3], :node "n1"}
{:index 2, :time 5, :type :invoke, :process 0, :f :cas, :value ["x" [3 4]]}
{:index 3, :time 6, :type :fail, :process 0, :f :cas, :value ["x" [3 4]], :error "no such key", :error-class :not-found}
{:index 4, :time 7, :type :invoke, :process 0, :f :read, :value [[1 2 3 4] nil]}
{:index 5, :time 8, :type :ok, :process 0, :f :read, :value [[1 2 3 4] [1 2]]}
{:index 6, :time 9, :type :invoke, :process 0, :f :read, :value [nil nil]}
{:index 7, :time 10, :type :info, :process 0, :f :read, :value [nil nil], :error [:crash "off"], :error-class :crash}
""",
    "list-append": """
{:index 0, :time 3, :type :invoke, :process 0, :f :txn, :value [[:append 1 3] [:r 2 nil]]}
{:index 1, :time 4, :type :ok, :process 0, :f :txn, :value [[:append 1 3] [:r 2 [1 2]]]}
{:index 2, :time 5, :type :invoke, :process 0, :f :txn, :value [[:r 1 nil]]}
{:index 3, :time 6, :type :info, :process 0, :f :txn, :value [[:r 1 nil]], :error :timeout}
""",
    "rw-register": """
{:index 0, :time 3, :type :invoke, :process 0, :f :txn, :value [[:w :x 3] [:r [0 1 0 0] nil]]}
{:index 1, :time 4, :type :ok, :process 0, :f :txn, :value [[:w :x 3] [:r [0 1 0 0] -7]]}
""",
    "independent transactions": """
{:index 0, :time 3, :type :invoke, :process 0, :f :txn, :value ["a" [[:w :x 3] [:r 0 nil]]]}
{:index 1, :time 4, :type :ok, :process 0, :f :txn, :value ["a" [[:w :x 3] [:r 0 nil]]]}
""",
    "bank": """
{:index 0, :time 3, :type :invoke, :process 0, :f :read, :value nil}
{:index 1, :time 4, :type :ok, :process 0, :f :read, :value {0 10, 1 nil}}
{:index 2, :time 5, :type :invoke, :process 0, :f :transfer, :value {:from 0, :to 1, :amount 5}}
{:index 3, :time 6, :type :ok, :process 0, :f :transfer, :value {:from 0, :to 1, :amount 5}}
{:index 4, :time 7, :type :invoke, :process 0, :f :read, :value nil}
{:index 5, :time 8, :type :fail, :process 0, :f :read, :value nil, :error :refused}
""",
    "long-fork": """
{:index 0, :time 3, :type :invoke, :process 0, :f :write, :value [[:w 0 1]]}
{:index 1, :time 4, :type :ok, :process 0, :f :write, :value [[:w 0 1]]}
{:index 2, :time 5, :type :invoke, :process 0, :f :read, :value [[:r 0 nil] [:r 1 nil]]}
{:index 3, :time 6, :type :ok, :process 0, :f :read, :value [[:r 0 1] [:r 1 nil]]}
""",
    "set": """
{:index 0, :type :invoke, :process 0, :f :add, :value "a"}
{:index 1, :type :ok, :process 0, :f :add, :value "a"}
{:index 2, :type :invoke, :process 0, :f :add, :value true}
{:index 3, :type :fail, :process 0, :f :add, :value true}
{:index 4, :type :invoke, :process 0, :f :read, :value nil}
{:index 5, :type :ok, :process 0, :f :read, :value ["a" nil "true" :a 1.5 "1.5"]}
{:index 6, :type :invoke, :process 0, :f :read, :value nil}
{:index 7, :type :ok, :process 0, :f :read, :value []}
""",
    "keywords as values": """
{:index 0, :time 3, :type :invoke, :process 0, :f :write, :value :a}
{:index 1, :time 4, :type :fail, :process 0, :f :write, :value :a}
""",
    "what fits no columns": """
{:index 0, :time 3, :type :invoke, :process 0, :f :read, :value nil}
{:index 1, :time 4, :type :ok, :process 0, :f :read, :value [[1 2] {:a "b", "5" [nil false]}]}
{:index 2, :time 5, :type :invoke, :process 0, :f :cas, :value 5}
""",
    "pairs that are no keys": """
{:index 0, :time 3, :type :invoke, :process 0, :f :enqueue, :value (1 2)}
{:index 1, :time 4, :type :ok, :process 0, :f :enqueue, :value [1 2]}
""",
}
"""Histories as Jepsen writes them."""


@pytest.mark.parametrize("name", JEPSEN)
def test_jepsen_s_own_text_comes_back(tmp_path: Path, name: str) -> None:
    text = JEPSEN[name].lstrip()
    source = open_edn(HERE, text.encode())
    back = exported(source, tmp_path / "h.edn")
    assert (tmp_path / "h.edn").read_text() == text
    assert rows(back) == rows(source)


def source_of(*events: Op) -> Source:
    table = to_table(event.complete(event.type, index=index, time=index + 1) for index, event in enumerate(events))
    return Source(HERE, "journal", table.num_rows, table=table)


def test_our_own_operations_become_jepsen_s(tmp_path: Path) -> None:
    fault = Op("invoke", -1, "kill", value={"targets": ["n1"]}, phase="main")
    asked, swap = Op("invoke", 3, "read", (read(5),), node="n2"), Op("invoke", 4, "cas", (cas(5, None, 2),))
    answered = asked.complete("ok", mops=(Mop("r", 5, 7),), served_ts=9)
    failed = swap.complete("fail", error_class="cas-mismatch", error='a "b"')
    done, feed = fault.complete("ok", value={"observed": True}), Op("info", -2, "feed-resolved", served_ts=20)
    write_edn(source_of(fault, asked, swap, failed, answered, done, feed), tmp_path / "h.edn")
    assert (tmp_path / "h.edn").read_text() == (
        """{:index 0, :time 1, :type :info, :process :nemesis, :f :kill}
{:index 1, :time 2, :type :invoke, :process 3, :f :read, :value [5 nil]}
{:index 2, :time 3, :type :invoke, :process 4, :f :cas, :value [5 [nil 2]]}
{:index 3, :time 4, :type :fail, :process 4, :f :cas, :value [5 [nil 2]], :error "a \\"b\\"", """
        """:error-class :cas-mismatch}
{:index 4, :time 5, :type :ok, :process 3, :f :read, :value [5 7], :node "n2", :served-ts 9}
{:index 5, :time 6, :type :info, :process :nemesis, :f :kill, :value {"observed" true}, :phase "main"}
{:index 6, :time 7, :type :info, :process :nemesis-2, :f :feed-resolved, :served-ts 20}
"""
    )


OPEN = Op("invoke", 0, "write", (write(1, 2),))


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([Op("info", -2, "feed-row", (write(1, 5),))], r"event 0: an unsolicited event \(feed-row\) has micro-operat"),
        ([Op("info", -1_000_000_000, "kill")], "event 0: there is no nemesis -1000000000"),
        ([Op("info", 4, "change")], "event 0: process 4 completes what it has not invoked"),
        ([Op("invoke", 0, "txn", (Mop("append", 1, 2, values=(1,)),))], r"the mops of event 0 \(txn\)"),
        ([Op("invoke", 0, "write", (write(1, 2),), value=3)], r"the value of event 0 \(write\)"),
        ([Op("invoke", 0, "create-table", value={"name": 3})], r"the mops of event 0 \(create-table\)"),
        ([Op("invoke", 0, "create-table")], r"the mops of event 0 \(create-table\)"),
        ([OPEN, OPEN.complete("ok", error="odd")], r"the error of event 0 \(write\)"),
        ([OPEN, Op("invoke", 1, "create-table")], "event 1: create-table has no key, while others have one"),
        ([OPEN, Op("invoke", 1, "list", value=["a"])], "event 1: list has no key, while others have one"),
    ],
)
def test_what_can_not_be_said_is_refused(tmp_path: Path, events: list[Op], words: str) -> None:
    with pytest.raises(UserError, match=f"^history can't be exported: .*({words})") as refused:
        write_edn(source_of(*events), tmp_path / "h.edn")
    assert str(refused.value).endswith((".", ")")) and str(tmp_path) not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_process_with_two_operations_at_once_is_refused(tmp_path: Path) -> None:
    source = source_of(OPEN, OPEN.complete("invoke", process=1))
    assert source.table is not None
    twice = source.table.set_column(6, source.table.schema.field(6), [[0, 0]])
    with pytest.raises(UserError, match="event 1: process 0 invokes while its last operation is open"):
        write_edn(Source(HERE, "journal", 2, table=twice), tmp_path / "h.edn")


def test_nothing_is_an_empty_list(tmp_path: Path) -> None:
    assert rows(exported(source_of(), tmp_path / "h.edn")) == []


def test_a_folder_that_is_gone_is_no_fault_of_the_history(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="can't be written: No such file"):
        write_edn(source_of(OPEN), tmp_path / "gone" / "h.edn")


def test_foreign_values_of_parquet_are_known_by_their_looks(tmp_path: Path) -> None:
    texts = [":a", "b c", "true", "nil", "1.5", "7", str(2**70), str(FOREIGN_BASE - 1), "#inst 5", "", ":a b", "5N"]
    forms = (*texts[:1], '"b c"', *texts[2:5], '"7"', *texts[6:8], '"#inst 5"', '""', '":a b"', '"5N"')
    assert foreign_forms(Source(HERE, "parquet", 0, dictionary=tuple(texts))) == forms
    with pytest.raises(UserError, match="can't be exported: its dictionary has :a twice"):
        foreign_forms(Source(HERE, "parquet", 0, dictionary=(":a", ":a")))
    table = to_table([Op("invoke", 0, "write", (write(FOREIGN_BASE - 1, FOREIGN_BASE - 2),), index=0, time=0)])
    metadata = schema().metadata | {DICTIONARY_KEY: b'[":a", "b"]'}
    pq.write_table(table.replace_schema_metadata(metadata), tmp_path / "h.parquet")
    write_edn(open_source(tmp_path / "h.parquet"), tmp_path / "h.edn")
    assert ':value [:a "b"]}' in (tmp_path / "h.edn").read_text()


def test_vectors_are_known() -> None:
    assert is_vector('[:a ["b" {}]]') and is_vector("[]")
    for text in ("[:a", "[1] [2]", "[1] ; c", "[1]]", " [1]", "[#", '["]', "(1)", "[{:a}]", "[1\n]", "[\r]"):
        assert not is_vector(text), text


SCALARS = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 3),
    st.integers(FOREIGN_BASE - 3, FOREIGN_BASE + 3),
    st.sampled_from([":a", ":b/c", "true", "false", "1.5", "2/3", "sym", "#t 5", "9223372036854775808", "-7N"]),
    st.sampled_from(["nil", ":a", "1", "true", "", 'a "b"', "\\", "ü\n", "[1 2]"]).map(lambda text: (text,)),
)


def edn(value: object) -> str:
    """A scalar of the strategy: None, an integer, EDN as it is, or a string in a tuple."""
    if isinstance(value, tuple):
        return '"' + value[0].replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    return "nil" if value is None else str(value)


VALUES = SCALARS.map(edn)
LISTS = st.lists(VALUES, max_size=4).map(lambda items: f"[{' '.join(items)}]")
NAMES = st.sampled_from([":r", ":w", ":append", '"r"', ":read", ":odd-name"])
KEYS = st.one_of(VALUES, st.tuples(*[st.integers(-3, 3)] * 4).map(lambda parts: f"[{' '.join(map(str, parts))}]"))
CAS_PAIRS = st.tuples(VALUES, VALUES).map(lambda pair: f"[{pair[0]} {pair[1]}]")


def transactions(keys: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    plain = st.tuples(NAMES, keys, st.one_of(VALUES, LISTS))
    mops = st.one_of(plain, st.tuples(st.just(":cas"), keys, CAS_PAIRS)).map(lambda parts: f"[{' '.join(parts)}]")
    return st.lists(mops, min_size=1, max_size=3).map(lambda found: f"[{' '.join(found)}]")


MAPS = st.dictionaries(VALUES, VALUES, max_size=3).map(
    lambda entries: "{" + ", ".join(f"{key} {value}" for key, value in entries.items()) + "}"
)


def operations(f: str, values: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[str, str]]:
    return st.tuples(st.just(f), values)


FLAT = st.one_of(
    operations(":write", VALUES),
    operations(":read", st.one_of(VALUES, LISTS.filter(lambda text: text.count(" ") != 1))),
    operations(":cas", CAS_PAIRS),
    operations(":dequeue", VALUES),
    operations('"odd name"', VALUES),
)
STYLES: dict[str, st.SearchStrategy[tuple[str, str]]] = {
    "plain": FLAT,
    "keyed": st.tuples(FLAT, KEYS).map(lambda found: (found[0][0], f"[{found[1]} {found[0][1]}]")),
    "transactions": st.one_of(operations(":txn", transactions(KEYS)), operations(":read", transactions(KEYS))),
    "maps": st.one_of(operations(":read", st.one_of(MAPS, st.just("nil"))), operations(":transfer", MAPS)),
    "independent": st.one_of(
        operations(":txn", st.tuples(VALUES, transactions(VALUES)).map(lambda found: f"[{found[0]} {found[1]}]")),
        operations(":read", st.tuples(VALUES, MAPS).map(lambda found: f"[{found[0]} {found[1]}]")),
    ),
}


@st.composite
def texts(draw: st.DrawFn, style: str) -> str:
    """A history in EDN: operations of a few processes that overlap, with all outcomes."""
    lines: list[str] = []
    open_by_process: dict[int, tuple[str, str]] = {}
    process = 0
    for _ in range(draw(st.integers(1, 8))):
        process = draw(st.integers(0, 3))
        if process in open_by_process:
            f, value = open_by_process.pop(process)
            kind = draw(st.sampled_from(("ok", "ok", "fail", "info")))
            extras = draw(st.sampled_from(("", ':node "n1"', ":error :timeout", ':error [:x "y"]', ':error "off"')))
            lines.append(f"{{:process {process} :type :{kind} :f {f} :value {value} {extras}")
            if kind == "info" and draw(st.booleans()):
                lines.append("{:process :nemesis :type :info :f :kill :value {:a [1 :b]}")
        else:
            f, value = open_by_process[process] = draw(STYLES[style])
            lines.append(f"{{:process {process} :type :invoke :f {f} :value {value} ")
    timed = draw(st.booleans())
    return "\n".join(line + (f" :time {place}}}" if timed else "}") for place, line in enumerate(lines))


@pytest.mark.parametrize("style", STYLES)
@few_examples(25)
@given(data=st.data())
def test_random_histories_survive(tmp_path_factory: pytest.TempPathFactory, style: str, data: st.DataObject) -> None:
    text = data.draw(texts(style))
    try:
        source = open_edn(HERE, text.encode())
    except UserError:
        return
    try:
        back = exported(source, tmp_path_factory.mktemp("export") / "h.edn")
    except UserError as refused:
        assert "too little that shows its keys to be independent" in str(refused) and style == "independent"
    else:
        assert rows(back) == rows(source)


MOPS = st.builds(
    Mop,
    st.sampled_from(["r", "w", "append", "cas", "read"]),
    st.integers(0, 2),
    st.one_of(st.none(), st.integers(-5, 5)),
    st.one_of(st.none(), st.integers(0, 2)),
    st.one_of(st.none(), st.lists(st.integers(0, 2), max_size=2).map(tuple)),
    table=st.integers(0, 1),
    row=st.integers(0, 1),
    column=st.integers(0, 1),
)


@given(
    ops=st.lists(
        st.tuples(
            st.sampled_from(["read", "write", "cas", "txn"]),
            st.lists(MOPS, max_size=2).map(tuple),
            st.sampled_from(["ok", "fail", "info"]),
            st.one_of(st.none(), st.integers(0, 2), st.lists(st.integers(0, 2), max_size=2)),
        ),
        max_size=4,
    )
)
def test_our_own_rows_survive_or_are_refused(
    tmp_path_factory: pytest.TempPathFactory, ops: list[tuple[str, tuple[Mop, ...], str, object]]
) -> None:
    events: list[Op] = []
    for process, (f, mops, kind, value) in enumerate(ops):
        begun = Op("invoke", process, f, mops, value=None if mops else value)
        events += [begun, begun.complete(kind)]  # type: ignore[arg-type]
    source = source_of(*events)
    path = tmp_path_factory.mktemp("export") / "h.edn"
    try:
        back = exported(source, path)
    except UserError as refused:
        assert "can't be exported" in str(refused) and not path.exists()
    else:
        assert rows(back) == rows(source)


def sample() -> Iterator[tuple[str, str]]:
    """Small files of the corpus with a model, some of each format and model of each table."""
    taken: dict[tuple[str, ...], int] = {}
    for table in ("index.tsv", "elle-random/truth.tsv", "linear-random/truth.tsv"):
        if not (CORPUS / table).exists():
            continue
        with (CORPUS / table).open() as file:
            for line in csv.DictReader(file, delimiter="\t"):
                path = (CORPUS / table).parent / line["file"]
                kind = (table, path.suffix, line["model"])
                taken[kind] = taken.get(kind, 0) + (path.stat().st_size < 60_000)
                if taken[kind] <= 3 and path.stat().st_size < 60_000:
                    yield str(path.relative_to(CORPUS)), line["model"]


@needs_corpus
def test_the_corpus_survives(tmp_path: Path) -> None:
    judged = set()
    for name, model in dict.fromkeys(sample()):
        source = open_source(CORPUS / name)
        copy = tmp_path / f"{Path(name).stem}.edn"
        assert rows(exported(source, copy)) == rows(source), name
        before = check(CORPUS / name, model, engine="local")
        after = check(copy, model, engine="local", options=CheckOptions(failed_cas=source.failed_cas))
        assert (after.valid, after.counts, after.strongest) == (before.valid, before.counts, before.strongest), name
        judged.add((source.format, model))
    assert len(judged) >= 12, judged


def test_made_histories_can_be_exported(tmp_path: Path) -> None:
    """A client whose operation ended indeterminate goes on as another process, as in Jepsen; else this is refused."""
    register, pages, transactions = (tmp_path / f"{name}.parquet" for name in ("register", "pages", "transactions"))
    write_register_history(RegisterShape(500, keys=5, info_share=0.3), register)
    write_page_history(PageShape(500, partitions=5, info_share=0.3), pages)
    write_txn_history(TxnShape(200, info_share=0.3), transactions)
    for path, model in ((register, "register"), (pages, "write-atomicity"), (transactions, "list-append")):
        copy = path.with_suffix(".edn")
        write_edn(open_source(path), copy)
        assert check(copy, model).valid is check(path, model).valid is True
        processes, types = (pq.read_table(path).column(name).to_pylist() for name in ("process", "type"))
        ended = [process for process, type in zip(processes, types, strict=True) if type == "info"]
        assert len(ended) == len(set(ended)) > 10

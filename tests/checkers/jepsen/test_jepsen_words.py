"""The semantics case by case, on histories short enough to be read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from checkers.engines.local import LocalEngine
from checkers.importers.detect import open_source
from checkers.jepsen.bank import BankKernel, _Reader
from checkers.models import MODELS
from checkers.options import CheckOptions
from checkers.verdict import Verdict
from harness.errors import UserError
from harness.history.ops import Mop, Op
from harness.history.table import to_table


def judge(tmp_path: Path, model: str, edn: str, **settings: str) -> Verdict:
    path = tmp_path / "history.edn"
    path.write_text(edn)
    return MODELS[model].judge(open_source(path), LocalEngine(), CheckOptions(settings=settings))


def ops(*forms: str) -> str:
    """`add 1 ok`, `read nil info`, `read nil ok [1 2]`: one process each, one after the other."""
    lines = []
    for process, form in enumerate(forms):
        f, value, outcome, *result = form.split(" ", 3)
        shown = result[0] if result else value
        lines.append(f"{{:process {process} :type :invoke :f :{f} :value {value}}}")
        lines.append(f"{{:process {process} :type :{outcome} :f :{f} :value {shown}}}")
    return "\n".join(lines)


def test_set_counts_as_jepsen_does_but_for_what_failed(tmp_path: Path) -> None:
    history = ops("add 1 ok", "add 2 info", "add 3 fail", "add 4 ok", "read nil ok [1]", "read nil ok #{1 2 3 9}")
    verdict = judge(tmp_path, "set", history)
    assert verdict.counts == {"lost": 1, "unexpected": 2}
    assert verdict.details["recovered"] == 1
    assert "Element 4 of the set was lost: process 3's add (invoked at event 6" in verdict.anomalies["lost"][0].message
    failed, nobodys = (anomaly.message for anomaly in verdict.anomalies["unexpected"])
    assert "saw element 3 in the set" in failed and "process 2's add" in failed and "had it, and failed" in failed
    assert "saw element 9 in the set" in nobodys and "no operation tried to add" in nobodys


def test_set_without_a_final_read_is_unknown(tmp_path: Path) -> None:
    for history in ("[]", ops("add 1 ok"), ops("add 1 ok", "read nil fail"), ops("add 1 ok", "read nil ok")):
        assert judge(tmp_path, "set", history).valid == "unknown"
    assert judge(tmp_path, "set", ops("add 1 ok", "read nil ok []")).valid is False


def test_set_full_says_nothing_valid_of_what_failed_to_be_added(tmp_path: Path) -> None:
    history = ops("add 1 ok", "add 2 fail", "read nil ok [1 2]")
    assert judge(tmp_path, "set-full", history).valid == "unknown"
    assert judge(tmp_path, "set-full", history.replace(":fail", ":info")).valid is True


def test_set_full_tells_lost_from_stale_from_never_read(tmp_path: Path) -> None:
    lost = ops("add 1 ok", "read nil ok [1]", "read nil ok []")
    assert judge(tmp_path, "set-full", lost).counts == {"lost": 1}
    late = ops("add 1 ok", "read nil ok []", "read nil ok [1]")
    verdict = judge(tmp_path, "set-full", late)
    assert (verdict.valid, verdict.details["stale"]) == (True, 1)
    assert judge(tmp_path, "set-full", late, linearizable="true").counts == {"stale": 1}
    never = ops("add 1 ok", "read nil ok [1]", "add 2 ok")
    assert judge(tmp_path, "set-full", never).details["never_read"] == 1
    failed = ops("add 1 fail", "read nil ok []")
    assert judge(tmp_path, "set-full", failed).valid == "unknown"
    twice = ops("add 1 ok", "read nil ok [1 1]")
    assert judge(tmp_path, "set-full", twice).counts == {"duplicated": 1}
    strange = ops("add 1 ok", "read nil ok [1 7 7]")
    assert judge(tmp_path, "set-full", strange).counts == {"duplicated": 1}
    for unknown in (("add 1 ok", "read nil ok [1 9]"), ("read nil ok [1]", "add 1 ok", "read nil ok [1]")):
        verdict = judge(tmp_path, "set-full", ops(*unknown))
        assert (verdict.valid, verdict.details["unexpected"]) == ("unknown", 1)
    again = ops("add 1 ok", "read nil ok [1]", "add 1 ok", "read nil ok [1]")
    assert judge(tmp_path, "set-full", again).valid is True
    before_too = ops("read nil ok [1 1]", "add 1 ok", "read nil ok [1 1]")
    assert judge(tmp_path, "set-full", before_too).counts == {"duplicated": 1}


def test_a_concurrent_read_may_miss_an_element(tmp_path: Path) -> None:
    history = """
    {:process 0 :type :invoke :f :read} {:process 1 :type :invoke :f :add :value 1}
    {:process 1 :type :ok :f :add :value 1} {:process 0 :type :ok :f :read :value []}
    {:process 2 :type :invoke :f :add :value 2} {:process 3 :type :invoke :f :read}
    {:process 2 :type :ok :f :add :value 2} {:process 3 :type :ok :f :read :value [1]}
    """
    verdict = judge(tmp_path, "set-full", history, linearizable="true")
    assert (verdict.valid, verdict.details["stable"], verdict.details["never_read"]) == (True, 1, 1)


def test_counter_bounds_with_open_failed_and_negative_adds(tmp_path: Path) -> None:
    before = ("add 5 ok", "add 10 info", "add 100 fail", "add -2 info")
    for value, valid in ((2, False), (3, True), (5, True), (13, True), (15, True), (16, False)):
        assert judge(tmp_path, "counter", ops(*before, f"read nil ok {value}")).valid is valid, value
    verdict = judge(tmp_path, "counter", ops(*before, "read nil ok 2"))
    assert "must have been at least 3 (and at most 15)" in verdict.anomalies["below-bounds"][0].message
    assert judge(tmp_path, "counter", ops("increment 2 ok", "decrement 1 ok", "read nil ok 1")).valid is True


def test_counter_of_extreme_numbers(tmp_path: Path) -> None:
    top = 2**63 - 1
    history = ops(f"add {top} ok", f"add {top} ok", f"add -{2**63} ok", f"read nil ok {2**63 - 2}")
    assert judge(tmp_path, "counter", history).valid is True
    history = ops(f"add {top} ok", f"add {top} ok", f"read nil ok {2 * top}", "read nil ok -2")
    assert judge(tmp_path, "counter", history).counts == {"below-bounds": 1}


def test_bank_of_extreme_numbers(tmp_path: Path) -> None:
    top = 2**63 - 1
    history = ops(f"read nil ok {{0 {top} 1 {top}}}", f"read nil ok {{0 {2 * top} 1 0}}", "read nil ok {0 -2 1 0}")
    verdict = judge(tmp_path, "bank", history)
    assert verdict.counts == {"wrong-total": 1}
    assert verdict.details["total"] == str(2 * top)


def test_bank_names_accounts_and_totals(tmp_path: Path) -> None:
    history = ops("read nil ok {:a 10 :b 0}", "read nil ok {:a 9 :b 0}", "read nil ok {:a 11 :b -1}", "read nil ok {}")
    verdict = judge(tmp_path, "bank", history)
    assert verdict.counts == {"wrong-total": 2, "negative-value": 1}
    assert "sum to 9, not to 10" in verdict.anomalies["wrong-total"][0].message
    assert "account :b with -1" in verdict.anomalies["negative-value"][0].message
    assert judge(tmp_path, "bank", history, accounts=":a").counts["unexpected-key"] == 3


def test_long_fork_refuses_a_read_that_names_a_key_twice(tmp_path: Path) -> None:
    """Its two answers were taken for those of two keys."""
    history = ops("txn nil ok [[:r 1 1] [:r 1 nil]]", "txn nil ok [[:r 1 nil] [:r 1 1]]")
    with pytest.raises(UserError, match="event 0: this read names a key twice"):
        judge(tmp_path, "long-fork", history)


def test_bank_of_one_read_is_judged_by_a_total_that_is_set(tmp_path: Path) -> None:
    once = ops("read nil ok {1 5 2 5}", "read nil ok {}")
    assert judge(tmp_path, "bank", ops("read nil ok {1 5 2 5}"), total="10").valid is True
    assert judge(tmp_path, "bank", once).counts == {"wrong-total": 1}, "what shows nothing does not say the total"


def test_a_read_of_no_account_is_of_no_bank_that_anybody_knows(tmp_path: Path) -> None:
    """It was taken for one of the bank 0, in which every read then showed 0."""
    shown = ("{1 5 2 5}", "{1 5 2 5}", "{}")
    asked = "{:process 0 :type :invoke :f :read :value [5 nil]} {:process 0 :type :ok :f :read :value [5 SHOWN]}"
    with pytest.raises(UserError, match="event 4: this read is no map of accounts"):
        judge(tmp_path, "bank", "\n".join(asked.replace("SHOWN", each) for each in shown))


def test_bank_totals_of_any_size_meet_in_any_batch() -> None:
    """What most reads of other batches show may need more bits than all balances of a batch."""
    call = Op("invoke", 0, "read", index=0)
    (batch,) = to_table([call, call.complete("ok", mops=(Mop("r", 1, 5),), index=1)]).to_batches()
    kernel = BankKernel(_Reader({}, 0, False), None, {0: 2**64}, None, False, 1)
    assert kernel(batch).counts["wrong-total"] == 1


def test_queue_counts_every_element(tmp_path: Path) -> None:
    history = ops(
        *("enqueue 1 ok", "enqueue 1 ok", "enqueue 2 info", "enqueue 3 ok", "enqueue 4 fail"),
        *("dequeue nil ok 1", "dequeue nil fail", "dequeue nil ok 9", "drain nil ok [2 2 2 4]"),
    )
    verdict = judge(tmp_path, "queue", history)
    assert verdict.counts == {"lost": 2, "unexpected": 2, "duplicated": 2}
    assert verdict.details["recovered"] == 1
    assert "dequeued element 4" in verdict.anomalies["unexpected"][1].message
    assert "which nobody put in: process 4's enqueue" in verdict.anomalies["unexpected"][1].message
    assert judge(tmp_path, "total-queue", history).counts == {"lost": 2, "unexpected": 1}
    early = ops("dequeue nil ok 1", "enqueue 1 ok")
    assert judge(tmp_path, "queue", early).counts == {"premature": 1}


def test_a_drain_of_unknown_outcome_may_hold_what_is_missing(tmp_path: Path) -> None:
    assert judge(tmp_path, "queue", ops("enqueue 1 ok", "drain nil info")).valid == "unknown"
    history = ops("enqueue 1 ok", "drain nil info", "dequeue nil ok 7")
    assert judge(tmp_path, "queue", history).counts == {"unexpected": 1}


def test_unique_ids_of_any_kind(tmp_path: Path) -> None:
    history = ops(
        *('generate nil ok "a"', "generate nil ok :a", 'generate nil ok "a"', "generate nil ok [1 2]"),
        *("generate nil ok [1 2]", "generate nil ok {:x 1}", "generate nil ok {:x 1}", "generate nil info"),
        *("generate nil ok -5", "generate nil ok 12", "generate nil ok {:x 1 :y 2}", "generate nil ok {:x 1 :y 3}"),
    )
    verdict = judge(tmp_path, "unique-ids", history)
    assert verdict.counts == {"duplicate-id": 3}
    assert verdict.details["range"] == [-5, 12]
    assert {a.message.split(", ")[0] for a in verdict.anomalies["duplicate-id"]} == {
        "Process 2 was given the id a at event 4",
        "Process 4 was given the id [1,2] at event 8",
        "Process 6 was given the id 1 of key :x at event 12",
    }


def test_ids_without_entries_and_of_nil_are_ids(tmp_path: Path) -> None:
    """A map without entries was no id at all, and nil in a list was 0."""
    twice = {"{}": "{}", '["a" nil :b]': "[a,nil,:b]", '{:x 1 :y "a"}': "[[:y,a],[:x,1]]", "{:x [nil]}": "{:x [nil]}"}
    for one, shown in twice.items():
        verdict = judge(tmp_path, "unique-ids", ops(f"generate nil ok {one}", f"generate nil ok {one}"))
        assert verdict.counts == {"duplicate-id": 1}, one
        assert f"was given the id {shown}" in verdict.anomalies["duplicate-id"][0].message
    for one, other in (("{}", "nil"), ("{}", "[]"), ("[nil 1]", "[0 1]"), ("[nil]", "nil")):
        history = ops(f"generate nil ok {one}", f"generate nil ok {other}")
        assert judge(tmp_path, "unique-ids", history).counts == {}, one


def test_ids_that_are_sets_or_maps_are_equal_however_they_are_written(tmp_path: Path) -> None:
    alike = (
        ("#{1 2}", "#{2 1}"),
        ("#{:a 7}", "#{7 :a}"),
        ("[#{1 2} 3]", "[#{2 1} 3]"),
        ("{:x [1] :y 2}", "{:y 2 :x [1]}"),
    )
    for one, other in alike:
        history = ops(f"generate nil ok {one}", "generate nil ok 5", f"generate nil ok {other}")
        assert judge(tmp_path, "unique-ids", history).counts == {"duplicate-id": 1}, one
    for one, other in (("[1 2]", "[2 1]"), ("#{1 2}", "#{1 3}"), ("[[1] 3]", "[3 [1]]"), ("{:x [1]}", "{:y [1]}")):
        history = ops(f"generate nil ok {one}", f"generate nil ok {other}")
        assert judge(tmp_path, "unique-ids", history).counts == {}, one


WRITTEN = ("txn ok [[:w 0 1]]", "txn info [[:w 1 1]]")


def test_long_fork_needs_one_write_a_key(tmp_path: Path) -> None:
    reads = ("txn ok [[:r 0 1] [:r 1 nil]]", "txn ok [[:r 1 1] [:r 0 nil]]")
    assert judge(tmp_path, "long-fork", _txns(*reads)).counts == {"long-fork": 1}
    again = ("txn ok [[:w 0 1]]", "txn info [[:w 0 2]]")
    assert judge(tmp_path, "long-fork", _txns(*again, *reads)).valid == "unknown"
    values = (*reads, "txn ok [[:r 0 2] [:r 1 nil]]")
    assert judge(tmp_path, "long-fork", _txns(*WRITTEN, *values)).valid == "unknown"
    uneven = (reads[0], "txn ok [[:r 0 nil]]")
    assert judge(tmp_path, "long-fork", _txns(*WRITTEN, *uneven)).valid == "unknown"


def test_long_fork_takes_nothing_for_written_that_nobody_wrote(tmp_path: Path) -> None:
    def read(value: int) -> str:
        return f"txn ok [[:r 0 {value}] [:r 1 nil]]"

    assert judge(tmp_path, "long-fork", _txns(*WRITTEN, read(1), read(1))).valid is True
    for forms in ((*WRITTEN, read(7), read(7)), (*WRITTEN[1:], read(1), read(1)), (read(1), read(1))):
        verdict = judge(tmp_path, "long-fork", _txns(*forms))
        assert verdict.valid == "unknown" and "that no operation wrote" in str(verdict.reason)
    failed = "txn fail [[:w 0 1]]"
    assert judge(tmp_path, "long-fork", _txns(failed, read(1), read(1))).valid == "unknown"


def _txns(*forms: str) -> str:
    """Transactions `txn TYPE COMPLETED`; invoked are the same micro-operations, reads without answers."""
    lines = []
    for process, form in enumerate(forms):
        outcome, completed = form.removeprefix("txn ").split(" ", 1)
        invoked = re.sub(r":r (\d+) [^]]+]", r":r \1 nil]", completed)
        lines.append(f"{{:process {process} :type :invoke :f :txn :value {invoked}}}")
        lines.append(f"{{:process {process} :type :{outcome} :f :txn :value {completed}}}")
    return "\n".join(lines)


def test_groups_of_more_keys_than_an_integer_has_bits(tmp_path: Path) -> None:
    def read(seen: set[int]) -> str:
        return " ".join(f"[:r {key} {1 if key in seen else 'nil'}]" for key in range(70))

    chain = [f"txn ok [{read(set(range(n)))}]" for n in range(0, 71, 10)]
    chain += [f"txn ok [[:w {key} 1]]" for key in range(70)]
    assert judge(tmp_path, "long-fork", _txns(*chain)).valid is True
    forked = [*chain, f"txn ok [{read({69})}]"]
    assert judge(tmp_path, "long-fork", _txns(*forked)).counts == {"long-fork": 6}


@pytest.mark.parametrize(
    ("model", "form"),
    [
        ("set", "write 1 ok"),
        ("set", "read nil ok 5"),
        ("set", "read nil ok [[1 2] [3 4]]"),
        ("set-full", "append 1 ok"),
        ("counter", 'add "x" ok'),
        ("counter", "add 1.5 ok"),
        ("counter", "write 1 ok"),
        ("queue", "add 1 ok"),
        ("queue", "enqueue [1] ok"),
        ("bank", "read nil ok [1 2]"),
        ("bank", "read nil ok {0 1.5}"),
        ("bank", "read nil ok {0 [1]}"),
        ("unique-ids", "read nil ok 1"),
        ("long-fork", "append 1 ok"),
    ],
)
def test_operations_of_other_models_are_refused_in_a_sentence(tmp_path: Path, model: str, form: str) -> None:
    with pytest.raises(UserError, match=rf"event 0: this .* so the model {model} can't judge it\.$"):
        judge(tmp_path, model, ops(form))


HARMLESS = (
    "[]",
    "{:process 0 :type :invoke :f :read}",
    "{:process 0 :type :invoke :f :read} {:process 0 :type :info :f :read}",
    "{:process :nemesis :type :info :f :start}",
    ops("read nil fail"),
)


@pytest.mark.parametrize("model", ["bank", "set", "set-full", "counter", "queue", "long-fork", "convergence"])
@pytest.mark.parametrize("history", HARMLESS)
def test_nearly_empty_histories_give_a_verdict(tmp_path: Path, model: str, history: str) -> None:
    history = history.replace(":read", ":dequeue") if model == "queue" else history
    verdict = judge(tmp_path, model, history)
    assert verdict.counts == {}
    if model in ("set", "set-full", "convergence"):
        assert verdict.valid == "unknown" and verdict.reason

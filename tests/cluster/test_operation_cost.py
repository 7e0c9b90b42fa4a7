"""What an operation costs in the simulator, counted: no time, so that it means the same on every machine."""

from __future__ import annotations

from bench.operations import calls, count

MOST = {"counted": 910.0, "turns": 11.3, "messages": 4.7, "fsyncs": 1.4}
"""Calls, and what is done, for an operation: some per cent above what was counted (896, 10.85, 4.52, 1.30 at 339
operations, in a short load, which gathers less than a long one). Of the calls a hundred are of invariants that read the
disks again, evaluate changes and reads again, and look for what stands still; twenty are of closing ranges, fifteen of
answers that leave when their time has come. Who needs
more has a reason, and changes it here."""


def test_an_operation_costs_no_more_calls_turns_messages_and_fsyncs_than_it_did() -> None:
    costs = count(seconds=0.2, rate_hz=0, counting=calls)
    assert costs.ops > 300
    per_op = costs.per_op()
    assert min(per_op.values()) > 0, "something was not counted"
    assert {name: number for name, number in per_op.items() if number > MOST[name]} == {}

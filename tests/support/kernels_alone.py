"""What kernels of checkers say by themselves, as tests ask them."""

from __future__ import annotations

from checkers.columns.codes import RegisterColumns
from checkers.columns.mops import Columns
from checkers.linearizability.driver import Budget, SearchAnswers
from checkers.linearizability.objects.refute_objects import ObjectKernel
from checkers.linearizability.registers.prepared_registers import prepare
from checkers.linearizability.registers.register_search import search_prepared
from checkers.source import Source
from checkers.transactions.transaction_findings import Found, infer_in_process


def judge_search(columns: RegisterColumns, budget: Budget) -> SearchAnswers:
    """Judge every register by search; exact within the budget."""
    return search_prepared(prepare(columns), budget)


def answers_of(kernel: ObjectKernel, rows: Columns) -> dict[int, list[int]]:
    """The answers (VALID, INVALID, UNDECIDED) for all objects by partition of their address."""
    found = kernel.judged(rows)
    answers: dict[int, list[int]] = {}
    for address, answer in zip(found.built.addresses, found.answers, strict=True):
        answers.setdefault(int(address[1]), []).append(int(answer))
    return answers


def find_in(source: Source, model: str, orders: int, sources: int, explain: int) -> Found:
    """Anomalies of a list-append or rw-register history."""
    return infer_in_process(source, model, sources, explain).found(orders, explain)

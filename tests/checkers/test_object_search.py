"""The search for objects against a brute-force search over random small histories."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from bruteforce import some_order
from object_histories import OBJECTS, columns, random_calls, texts_of

from checkers.kernels.linear import Budget
from checkers.kernels.zones import INVALID, VALID
from checkers.objects.judge import ObjectKernel, answers_of


@pytest.mark.parametrize("model", OBJECTS)
def test_search_and_brute_force_agree(model: str) -> None:
    start, steps = OBJECTS[model]
    histories = [random_calls(random := Random(seed), model, random.randint(1, 8)) for seed in range(3000)]
    seen: Counter[bool] = Counter()
    texts = texts_of(histories)
    found = answers_of(ObjectKernel(model, 1, Budget(), texts), columns(model, histories, texts))
    for number, calls in enumerate(histories):
        truth = some_order(calls, start, steps)
        seen[truth] += 1
        width = 3 if model == "multi-register" else 1
        answers = [one for place in range(width) for one in found.get(width * number + place, [])]
        assert (INVALID not in answers, set(answers) <= {VALID, INVALID}) == (truth, True), (number, calls)
    assert min(seen[True], seen[False]) > 300, seen

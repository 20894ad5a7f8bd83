"""Parts of a run: shares of equal cost, each computed once, joined by the command without --part."""

import random
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as some

from holdfast.core.errors import InputError
from holdfast.engine.cells import ItemWork, Setup, run
from holdfast.engine.execution import Execution, Part, PartFinished, each, executing
from holdfast.engine.store import FolderStore

COSTS = some.lists(some.floats(0.1, 100), min_size=1, max_size=40)


@dataclass(frozen=True)
class Square(ItemWork):
    computed: list

    def setups(self):
        return [Setup("signs", "square")]

    def contents(self, item):
        return [item]

    def compute_item(self, state, item):
        self.computed.append(item)
        return item**2


def run_part(part, items, store, computed):
    with executing(Execution(part=part)):
        return run(Square(computed), items, store)


@given(costs=COSTS, count=some.integers(1, 6), seed=some.integers(0, 9))
def test_the_shares_hold_every_item_once_whatever_the_order(costs, count, seed):
    names = [f"item {n}" for n in range(len(costs))]
    shares = [Part(n + 1, count).share(names, costs) for n in range(count)]
    assert sorted(n for share in shares for n in share) == list(range(len(costs)))
    order = random.Random(seed).sample(range(len(costs)), len(costs))
    shuffled = Part(1, count).share([names[n] for n in order], [costs[n] for n in order])
    assert sorted(order[n] for n in shuffled) == shares[0]


@given(costs=COSTS, count=some.integers(1, 6))
def test_the_costs_of_two_shares_differ_by_one_item_at_most(costs, count):
    names = [f"item {n}" for n in range(len(costs))]
    sums = [sum(costs[n] for n in Part(p + 1, count).share(names, costs)) for p in range(count)]
    assert max(sums) - min(sums) <= max(costs) + 1e-6


def test_parts_compute_their_shares_and_the_last_one_has_the_results(tmp_path):
    store, computed, items = FolderStore(tmp_path), [], list(range(20))
    with pytest.raises(PartFinished, match="part 1/2 is finished: 10 of 20 items; 10 items of other parts"):
        run_part(Part(1, 2), items, store, computed)
    assert len(computed) == 10
    assert run_part(Part(2, 2), items, store, computed).read() == [n**2 for n in items]
    assert sorted(computed) == items


def test_a_part_that_is_run_twice_computes_nothing_and_the_whole_completes_what_is_missing(tmp_path):
    store, computed, items = FolderStore(tmp_path), [], list(range(9))
    for _ in range(2):
        with pytest.raises(PartFinished):
            run_part(Part(3, 3), items, store, computed)
    assert len(computed) == 3
    assert run_part(None, items, store, computed).read() == [n**2 for n in items]
    assert sorted(computed) == items


def test_independent_pieces_all_compute_their_share(tmp_path):
    computed = []
    with pytest.raises(PartFinished), executing(Execution(part=Part(1, 2))):
        each([range(4), range(10, 14)], lambda items: run(Square(computed), items, FolderStore(tmp_path)))
    assert len(computed) == 4
    assert {n // 10 for n in computed} == {0, 1}


@pytest.mark.parametrize("text", ["0/8", "9/8", "3", "a/b", "-1/2", "1/0"])
def test_a_part_that_does_not_exist_is_refused(text):
    with pytest.raises(InputError, match="--part: expected NUMBER/COUNT such as 3/8"):
        Part.parse(text)

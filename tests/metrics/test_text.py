"""Right or wrong by each rule, and the difference of two runs."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.errors import InputError, UnknownName
from holdfast.core.language import ScoredQuestion
from holdfast.metrics.text import DEFAULT_RULES, accuracy, compare, hits, picked, rules_for


def scored(*sums, tokens=None, length=None, greedy=None, name="q"):
    n = len(sums)
    return ScoredQuestion(name, sums, tokens or (1,) * n, length or (1,) * n, greedy or (False,) * n)


def test_the_rules_differ_where_lengths_do():
    found = scored(-4.0, -6.0, -7.0, tokens=(1, 3, 2), length=(5, 4, 20))
    assert picked(found, "plain") == 0
    assert picked(found, "per-token") == 1  # −4, −2, −3.5
    assert picked(found, "per-byte") == 2  # −0.8, −1.5, −0.35
    assert picked(found, "per-byte") == 2
    assert picked(found, "plain") != 2


def test_of_equal_endings_the_first_is_picked():
    assert picked(scored(-2.0, -1.0, -1.0), "plain") == 1


def test_not_a_number_is_never_right():
    for sums in ((math.nan, -3.0), (-3.0, math.nan), (math.nan, math.nan), (-math.inf, -math.inf)):
        for rule in ("plain", "per-byte", "per-token"):
            assert picked(scored(*sums), rule) == -1
            assert picked(scored(*sums), rule) not in (0, 1)
    assert picked(scored(-math.inf, -3.0), "plain") == 1  # impossible, but a number


def test_greedy_is_for_one_ending_and_the_others_for_several():
    assert picked(scored(-3.0, greedy=(True,)), "greedy") == 0
    assert picked(scored(-0.1, greedy=(False,)), "greedy") != 0
    with pytest.raises(InputError, match="needs questions with one ending, got 2"):
        picked(scored(-1.0, -2.0), "greedy")
    with pytest.raises(InputError, match="compares endings, got only one"):
        picked(scored(-1.0), "plain")
    with pytest.raises(UnknownName, match="scoring rule 'plane'"):
        picked(scored(-1.0, -2.0), "plane")


def test_each_kind_has_a_default_among_its_rules():
    assert all(DEFAULT_RULES[kind] == rules_for(kind)[0] for kind in DEFAULT_RULES)
    assert DEFAULT_RULES["lambada"] == "greedy"


def test_accuracy_of_nothing_is_not_a_number():
    assert math.isnan(accuracy(hits([], [], "plain")))


def test_compare_by_hand():
    before = [scored(0.0, -1.0, name=f"q{i}") for i in range(4)]
    after = [*before[:2], scored(-1.0, 0.0, name="q2"), scored(-1.0, 0.0, name="q3")]
    found = compare(before, after, [0, 1, 0, 1], "plain", np.random.default_rng(0))
    assert (found.before, found.after) == (0.5, 0.5)
    assert (found.flips.lost, found.flips.gained, found.changed) == (1, 1, 2)
    assert found.drop.estimate == 0.0
    assert found.drop.low < 0 < found.drop.high
    worse = compare(before, after, [0, 0, 0, 0], "plain", np.random.default_rng(0))
    assert worse.drop.estimate == 0.5, "a loss is positive"
    with pytest.raises(InputError, match="same questions"):
        compare(before, after[::-1], [0, 1, 0, 1], "plain", np.random.default_rng(0))
    with pytest.raises(InputError, match="one answer per question, got 4 and 3"):
        hits(before, [0, 1, 0], "plain")


@settings(deadline=None, max_examples=20)
@given(st.lists(st.tuples(st.floats(-50, 0), st.floats(-50, 0), st.integers(0, 1)), min_size=1, max_size=30))
def test_a_run_against_itself_changes_nothing(rows):
    runs = [scored(a, b, name=f"q{i}") for i, (a, b, _) in enumerate(rows)]
    found = compare(runs, runs, [answer for *_, answer in rows], "plain", np.random.default_rng(1))
    assert (found.changed, found.drop.estimate, found.drop.low, found.drop.high) == (0, 0.0, 0.0, 0.0)

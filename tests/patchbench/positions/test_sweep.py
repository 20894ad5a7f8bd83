"""The last word is the user's file's."""

import numpy as np

from holdfast.patchbench.positions.sweep import PositionMap, SafetyRule, confirm, ties


def asked(truth):
    seen = []

    def replay(i):
        seen.append(i)
        return float(truth[i])

    return replay, seen


def test_what_is_near_the_threshold_is_run_again():
    truth = np.linspace(0.2, 1.0, 1001)
    truth[375] = 0.5  # exactly at the threshold
    fast = truth + 2e-5 * np.where(np.arange(1001) % 2, 1, -1)
    replay, seen = asked(truth)
    bar = SafetyRule(0.5)
    made = confirm(fast, np.zeros(1001, bool), bar, replay)
    near = np.flatnonzero(np.abs(fast - 0.5) <= 1e-3)
    assert set(near) <= set(seen)
    assert 0 in seen  # the smallest: the witness
    assert (bar.unsafe(made.outputs) == bar.unsafe(truth)).all()
    assert made.replayed == len(set(seen)) < 100
    assert 1e-5 < made.difference < 1e-4
    assert made.how == "batches"


def test_a_fast_way_that_is_off_is_not_believed():
    truth = np.full(200, 0.9)
    fast = truth - 0.2  # all wrong, none near the threshold
    replay, seen = asked(truth)
    made = confirm(fast, np.zeros(200, bool), SafetyRule(0.5), replay)
    assert made.how == "one by one"
    assert sorted(seen) == list(range(200))
    assert (made.outputs == truth).all()


def test_ties_of_classes_are_run_again():
    scores = np.array([[1.0, 2.0, 0.0], [2.0, 2.0001, 0.0], [np.nan, 1.0, 0.0]])
    assert ties(scores).tolist() == [False, True, True]
    truth = np.full(300, 0.9)
    truth[150] = 0.0
    fast, doubtful = np.full(300, 0.9), np.zeros(300, bool)
    doubtful[150] = True
    replay, seen = asked(truth)
    made = confirm(fast, doubtful, SafetyRule(0.5), replay)
    assert made.outputs[150] == 0.0
    assert made.how == "batches"
    assert len(seen) < 300


def test_no_number_counts_as_unsafe():
    outputs = np.array([[0.9, np.nan], [0.8, 0.7]])
    made = PositionMap(outputs, np.arange(2.0), np.arange(2.0), SafetyRule(0.5), 1.0, 0, 0, 0.0, "batches")
    assert made.unsafe.tolist() == [[False, True], [False, False]]
    assert made.where == (0, 1)
    assert made.status == "violated"
    assert made.robust == 0.75

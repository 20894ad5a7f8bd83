"""The mimic model's vote: what stands, and that the order of members never matters."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.contest.rules import Vote
from holdfast.contest.vote import vote
from holdfast.core.errors import InputError
from holdfast.core.types import Detections
from holdfast.metrics.boxes import iou


def found(*rows):
    """Detections of rows (x1, y1, x2, y2, score, class)."""
    table = np.array(rows, np.float64).reshape(-1, 6)
    return Detections(table[:, :4], table[:, 4], table[:, 5].astype(int))


def same(one, other):
    return all(np.array_equal(getattr(one, f), getattr(other, f)) for f in ("boxes", "scores", "classes"))


corner = st.integers(0, 6)
side = st.integers(1, 6)
row = st.tuples(corner, corner, side, side, st.sampled_from([0.25, 0.5, 0.5, 0.75, 1.0]), st.integers(0, 1))
answer = st.lists(row, max_size=4).map(
    lambda rows: found(*[(x, y, x + w, y + h, s, c) for x, y, w, h, s, c in rows])
)
answers = st.lists(answer, min_size=1, max_size=4)


def test_a_box_of_two_of_three_stands_with_their_mean_box_and_the_mean_over_all():
    one, two, none = found((0, 0, 10, 10, 0.9, 3)), found((0, 0, 10, 12, 0.3, 3)), found()
    made = vote([one, two, none], Vote(least=2))
    assert made.classes.tolist() == [3]
    assert made.boxes[0] == pytest.approx([0, 0, 10, (0.9 * 10 + 0.3 * 12) / 1.2])
    assert made.scores[0] == pytest.approx(1.2 / 3)


@pytest.mark.parametrize("least", [1, 2, 3])
def test_least_is_how_many_must_agree(least):
    box = (0, 0, 10, 10, 0.8, 0)
    members = [found(box), found(box), found()]
    assert len(vote(members, Vote(least=least))) == (least <= 2)


def test_another_class_or_too_little_overlap_is_no_support():
    one = found((0, 0, 10, 10, 0.9, 0))
    assert len(vote([one, found((0, 0, 10, 10, 0.9, 1))], Vote(least=2))) == 0
    assert len(vote([one, found((0, 0, 10, 5, 0.9, 0))], Vote(least=2, iou=0.5))) == 1
    assert len(vote([one, found((0, 0, 10, 4.99, 0.9, 0))], Vote(least=2, iou=0.5))) == 0


def test_boxes_that_do_not_meet_support_nothing_even_at_iou_0():
    assert len(vote([found((0, 0, 1, 1, 0.9, 0)), found((5, 5, 6, 6, 0.9, 0))], Vote(least=2, iou=0.0))) == 0


def test_a_box_is_used_once():
    two = found((0, 0, 10, 10, 0.9, 0), (0, 0, 10, 11, 0.8, 0))
    one = found((0, 0, 10, 10, 0.7, 0))
    assert len(vote([two, one], Vote(least=2))) == 1


def test_one_that_does_not_stand_itself_still_supports_another():
    left, middle, right = (0, 0, 10, 10, 0.9, 0), (3, 0, 13, 10, 0.8, 0), (6, 0, 16, 10, 0.7, 0)
    made = vote([found(left), found(middle), found(right)], Vote(least=3, iou=0.5))
    assert len(made) == 1, "the middle one overlaps both, the best scored one only the middle one"


@pytest.mark.parametrize("least", [0, 3])
def test_impossible_numbers_are_refused(least):
    with pytest.raises(InputError, match="expected 1 to 2 members to agree"):
        vote([found(), found()], Vote(least=least))


@settings(max_examples=150, deadline=None)
@given(answers, st.data())
def test_the_order_of_members_and_of_their_boxes_does_not_matter(members, data):
    least = data.draw(st.integers(1, len(members)))
    rule = Vote(least=least, iou=data.draw(st.sampled_from([0.3, 0.5, 0.8])))
    other = data.draw(st.permutations(members))
    other = [one.take(np.array(data.draw(st.permutations(range(len(one)))), int)) for one in other]
    assert same(vote(members, rule), vote(other, rule))


@settings(max_examples=100, deadline=None)
@given(answers, st.data())
def test_what_stands_has_support_and_uses_no_box_twice(members, data):
    least = data.draw(st.integers(1, len(members)))
    made = vote(members, Vote(least=least, iou=0.5))
    assert (np.diff(made.scores) <= 0).all()
    assert len(made) * least <= sum(map(len, members))
    for category in set(made.classes.tolist()):
        boxes = [m.boxes[m.classes == category] for m in members]
        for box in made.boxes[made.classes == category]:
            assert sum(bool((iou([box], b) > 0.2).any()) for b in boxes if len(b)) >= least
    total = sum(float(m.scores.sum()) for m in members) / len(members)
    assert made.scores.sum() <= total + 1e-9
    if least == 1:
        assert made.scores.sum() == pytest.approx(total), "with one vote enough, every box is part of some"


@given(answer)
def test_a_single_member_votes_as_it_says(one):
    made = vote([one], Vote(least=1))
    order = sorted(zip((-one.scores).tolist(), one.classes.tolist(), one.boxes.tolist(), strict=True))
    assert made.boxes.tolist() == [box for _, _, box in order]
    assert made.scores.tolist() == [-score for score, _, _ in order]

"""Losses: what stands adds, what is dead does not; goals are judged by class, score and overlap."""

import numpy as np
import pytest
import torch

from holdfast.attack.gradient.candidates import Candidates
from holdfast.attack.gradient.victim import LossTarget, fabricate, mislabel, odds, overlap, vanish
from holdfast.attack.judge import shortfall
from holdfast.attack.types import Rule, Target
from holdfast.core.types import Boxes, Detections

BOX = [10.0, 10.0, 30.0, 30.0]


def candidates(rows):
    """Candidates of two classes: (box, score of 0, score of 1)."""
    boxes = torch.tensor([[r[0] for r in rows]])
    energy = torch.tensor([[[odds(r[1]), odds(r[2])] for r in rows]], requires_grad=True)
    return Candidates(boxes, torch.sigmoid(energy).detach(), energy)


def aim(known=(), classes=()):
    known_boxes = torch.tensor(np.array(known, np.float32).reshape(-1, 4))
    return LossTarget(
        torch.tensor([BOX]), (0,), known_boxes, torch.tensor(classes, dtype=torch.int64), 0.25, 0.4
    )


def test_vanish_sums_what_stands_near_the_target():
    found = candidates([(BOX, 0.9, 0.1), (BOX, 0.2, 0.9), ([60.0, 60.0, 90.0, 90.0], 0.9, 0.1)])
    loss = vanish(found, aim())
    assert float(loss.detach()) == pytest.approx(odds(0.9) - odds(0.25) + 0.01, abs=1e-4)
    (slope,) = torch.autograd.grad(loss.sum(), found.energy)
    assert slope.tolist() == [[[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]]  # the dead, the far and the others: none


def test_mislabel_wants_another_class():
    only_dead, other = candidates([(BOX, 0.1, 0.1)]), candidates([(BOX, 0.1, 0.6)])
    assert float(mislabel(only_dead, aim()).detach()) > 0
    assert float(mislabel(other, aim()).detach()) == 0
    (slope,) = torch.autograd.grad(mislabel(only_dead, aim()).sum(), only_dead.energy)
    assert slope.tolist() == [[[0.0, -1.0]]]


def test_fabricate_wants_what_was_not_there():
    here = candidates([(BOX, 0.9, 0.1), ([60.0, 60.0, 90.0, 90.0], 0.1, 0.05)])
    assert float(fabricate(here, aim([BOX], [0])).detach()) > 0
    assert float(fabricate(here, aim()).detach()) == 0


def test_overlap_is_intersection_over_union():
    found = overlap(
        torch.tensor([[BOX, [20.0, 10.0, 40.0, 30.0], [0.0, 0.0, 0.0, 0.0]]]), torch.tensor([BOX])
    )
    assert found[0, :, 0].tolist() == pytest.approx([1.0, 1 / 3, 0.0])


def said(*rows):
    if not rows:
        return Detections(np.zeros((0, 4)), np.zeros(0), np.zeros(0))
    return Detections([r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows])


def test_when_a_goal_is_reached():
    boxes = Boxes(np.array([BOX]), np.array([0]))
    target = Target(np.zeros((99, 99, 3), np.uint8), boxes, said((BOX, 0.9, 0)))

    def reached(goal, *rows):
        return shortfall(goal, target, said(*rows), Rule()) == 0

    far = [60.0, 60.0, 90.0, 90.0]
    assert not reached("vanish", (BOX, 0.3, 0))
    assert reached("vanish", (BOX, 0.3, 1))
    assert reached("vanish", (far, 0.9, 0))
    assert reached("vanish")
    assert not reached("mislabel")
    assert reached("mislabel", (BOX, 0.3, 1))
    assert not reached("mislabel", (BOX, 0.3, 1), (BOX, 0.4, 0))
    assert not reached("fabricate", (BOX, 0.9, 0))
    assert reached("fabricate", (BOX, 0.9, 1))
    assert reached("fabricate", (far, 0.9, 0))

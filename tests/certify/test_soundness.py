"""Certificates against brute force, on a detector that obeys whoever controls a visible pixel."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.visible import World, certificate_of, violations
from holdfast.certify import certificate
from holdfast.core.types import Size
from holdfast.stages import defence as defences
from holdfast.stages import masks as mask_sets
from holdfast.stages.defence import MaskDefence, ioa, masked
from holdfast.stages.masks import HalfPlanes, PatchSize, SquareMasks


@st.composite
def worlds(draw, most=2, largest=10):
    width, height = draw(st.integers(5, largest)), draw(st.integers(5, largest))
    boxes = []
    for _ in range(draw(st.integers(0, most))):
        x1, y1 = draw(st.integers(0, width - 2)), draw(st.integers(0, height - 2))
        boxes.append((x1, y1, draw(st.integers(x1 + 1, width)), draw(st.integers(y1 + 1, height))))
    classes = tuple(draw(st.integers(0, 1)) for _ in boxes)
    return World(Size(width, height), tuple(boxes), classes, draw(st.sampled_from([0.05, 0.3, 0.7])))


@st.composite
def defended(draw):
    families = (HalfPlanes(draw(st.integers(1, 4))),)
    if draw(st.booleans()):
        families += (SquareMasks(PatchSize(draw(st.integers(1, 4))), draw(st.integers(1, 3))),)
    return MaskDefence(families, alpha=0.5, beta=0.5, score=0.3, prune=draw(st.sampled_from([0.5, 0.6, 0.8])))


@settings(max_examples=12, deadline=None)
@given(worlds(), defended(), st.integers(1, 6), st.sampled_from([0.0, 0.2, 0.4]), st.booleans())
def test_no_attack_hides_a_certified_object(world, defence, side, overlap, matched):
    if (side > 4 and len(defence.families) > 1) or side > min(world.size):
        side = 1
    assert list(violations(world, defence, side, overlap, matched=matched)) == []


@settings(max_examples=50, deadline=None)
@given(worlds(), defended(), st.integers(1, 9), st.sampled_from([0.0, 0.2, 0.4]))
def test_the_certified_places_are_those_of_brute_force_over_pixels(world, defence, side, overlap):
    proof = certificate_of(world, defence)
    width, height = world.size
    for number in range(len(world.boxes)):
        gains = proof.objects[number].gains
        hides = np.zeros((len(proof.masks), height, width), bool)
        for at, (x1, y1, x2, y2) in enumerate(proof.masks):
            hides[at, y1:y2, x1:x2] = gains[at] > overlap
        brute = {
            (x, y): bool(hides[:, y : y + side, x : x + side].all(axis=(1, 2)).any())
            for x in range(width - side + 1)
            for y in range(height - side + 1)
        }
        certified = proof.is_certified(number, list(brute), side, overlap)
        assert certified.tolist() == list(brute.values())
        rectangle = proof.vulnerable(number, side, overlap)
        open_ = {place for place, safe in brute.items() if not safe}
        inside = {
            (x, y)
            for x in range(rectangle.left, rectangle.right)
            for y in range(rectangle.top, rectangle.bottom)
        }
        assert open_ <= inside
        if len(defence.families) == 1:  # half-planes alone: the rectangle is exact
            assert open_ == inside
        check_regions(world, proof, number, side, overlap, brute)


def check_regions(world, proof, number, side, overlap, brute):
    (x1, y1, x2, y2), (width, height) = world.boxes[number], world.size
    counts = {region: [0, 0] for region in certificate.REGIONS}
    for (x, y), safe in brute.items():
        gap_x, gap_y = max(x1 - x - side, x - x2, 0), max(y1 - y - side, y - y2, 0)
        over = x < x2 and x + side > x1 and y < y2 and y + side > y1
        close = gap_x <= 0.1 * width and gap_y <= 0.1 * height
        for region in ("over" if over else "close" if close else "far", "everywhere"):
            counts[region][0] += 1
            counts[region][1] += not safe
    assert {k: list(v) for k, v in proof.verdicts(number, side, overlap).items()} == counts


# Worlds in which every mutant below is caught, and the unchanged code holds.
CORNER = World(Size(8, 7), ((1, 1, 6, 6),), (0,), 0.05)
TWO = World(Size(8, 7), ((0, 1, 5, 6), (2, 1, 7, 6)), (0, 1), 0.05)
PLANES = MaskDefence((HalfPlanes(6),), alpha=0.5, beta=0.5, score=0.3)
SQUARES = MaskDefence((SquareMasks(PatchSize(2), 3),), alpha=0.5, beta=0.5, score=0.3)
CASES = ((CORNER, PLANES, 2, 0.4), (TWO, SQUARES, 2, 0.0))


def all_violations():
    return (v for world, defence, side, overlap in CASES for v in violations(world, defence, side, overlap))


def test_the_unchanged_code_has_no_violation():
    assert list(all_violations()) == []


def short_mask(machine, pixels, masks, where="scene"):
    return masked(machine, pixels, masks - np.array([0, 0, 1, 0]), where)


def late_mask(machine, pixels, masks, where="scene"):
    return masked(machine, pixels, masks + np.array([0, 1, 0, 0]), where)


def patch_end_minus_one(masks, places, patch):
    return mask_sets.covering(masks, places, patch - 1)


def patch_start_plus_one(masks, places, patch):
    return mask_sets.covering(masks, np.asarray(places) + 1, patch)


def wider_masks(masks, places, patch):
    return mask_sets.covering(masks + np.array([0, 0, 0, 1]), places, patch)


def smallest_box(boxes, share):
    groups = defences.components(boxes, share)
    smallest = [min(g, key=lambda i: np.prod(boxes.boxes[i, 2:] - boxes.boxes[i, :2])) for g in groups]
    return boxes.take(np.array(smallest, int))


def best_box(boxes, share):
    groups = defences.components(boxes, share)
    return boxes.take(np.array([min(g, key=lambda i: boxes.scores[i]) for g in groups], int))


def pruned_early(on_masked, trusted, share):
    return PRUNED(on_masked, trusted, share / 2)


def pruned_any_class(on_masked, trusted, share):
    return np.asarray((ioa(on_masked.boxes, trusted.boxes) >= share).any(axis=1))


def pruned_all(on_masked, trusted, share):
    return np.ones(len(on_masked), bool)


PRUNED = defences.pruned
MUTANTS = [
    (defences, "masked", short_mask),
    (defences, "masked", late_mask),
    (defences, "join_boxes", smallest_box),
    (defences, "join_boxes", best_box),
    (defences, "pruned", pruned_early),
    (defences, "pruned", pruned_any_class),
    (defences, "pruned", pruned_all),
    (certificate, "covering", patch_end_minus_one),
    (certificate, "covering", patch_start_plus_one),
    (certificate, "covering", wider_masks),
]


@pytest.mark.parametrize(("module", "name", "mutant"), MUTANTS, ids=[m[2].__name__ for m in MUTANTS])
def test_mutants_are_caught(monkeypatch, module, name, mutant):
    monkeypatch.setattr(module, name, mutant)
    assert next(all_violations(), None) is not None

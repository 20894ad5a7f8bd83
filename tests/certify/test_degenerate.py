"""Certificates where there is little to certify: no detection, objects at the border, patches over all."""

import numpy as np
import pytest

from helpers.visible import World, certificate_of, violations
from holdfast.certify.certificate import ImageCertificate, all_places, regions
from holdfast.certify.result import certified_recall
from holdfast.core.types import Detections, Size, no_detections
from holdfast.stages.defence import MaskDefence, ioa, join_boxes, pruned
from holdfast.stages.masks import HalfPlanes, PatchSize, SquareMasks

PLANES = MaskDefence((HalfPlanes(6),), alpha=0.5, beta=0.5, score=0.3)


def test_an_object_that_is_never_detected_is_certified_nowhere():
    world = World(Size(8, 8), ((2, 2, 6, 6),), (0,), visible=2.0)
    proof = certificate_of(world, PLANES)
    assert set(proof.objects[0].gains) == {-1.0}
    assert proof.vulnerable(0, 3) == all_places(world.size, 3)
    (far, *_, everywhere) = certified_recall([proof], PatchSize(3), 0.0, matched=True)
    assert (everywhere.certified, everywhere.of, everywhere.places) == (0, 1, 0.0)
    assert far.of in (0, 1)


def test_an_image_without_objects_counts_nowhere():
    world = World(Size(8, 8), (), ())
    rows = certified_recall([certificate_of(world, PLANES)], PatchSize(3), 0.0, matched=True)
    assert [(row.of, row.recall) for row in rows] == [(0, None)] * 4


@pytest.mark.parametrize("box", [(0, 0, 4, 4), (5, 0, 9, 3), (0, 5, 9, 8), (0, 0, 9, 8)])
def test_objects_at_the_border_are_certified_soundly(box):
    world = World(Size(9, 8), (box,), (0,), 0.05)
    assert list(violations(world, PLANES, 3, 0.0)) == []


def test_a_patch_larger_than_the_object_may_cover_it_whole():
    world = World(Size(12, 12), ((5, 5, 7, 7),), (0,), 0.05)
    proof = certificate_of(world, PLANES)
    assert proof.verdicts(0, 6, 0.0)["over"][1] > 0
    assert list(violations(world, PLANES, 6, 0.0)) == []


def test_a_patch_as_large_as_the_image_has_one_place_that_is_not_certified():
    proof = certificate_of(World(Size(8, 8), ((2, 2, 6, 6),), (0,), 0.05), PLANES)
    assert proof.verdicts(0, 8)["everywhere"] == (1, 1)
    assert proof.verdicts(0, 9)["everywhere"] == (0, 0)
    squares = MaskDefence((SquareMasks(PatchSize(8), 3),), alpha=0.5, beta=0.5, score=0.3)
    assert squares.masks(Size(8, 8)).tolist() == [[0, 0, 8, 8]]


def test_two_overlapping_objects_of_one_class_are_each_certified_soundly():
    world = World(Size(8, 7), ((0, 1, 5, 6), (2, 1, 7, 6)), (0, 0), 0.05)
    assert list(violations(world, PLANES, 2, 0.0)) == []
    assert list(violations(world, PLANES, 2, 0.4)) == []


def test_regions_of_a_box_between_pixels():
    over, near = regions((2.5, 2.5, 3.5, 3.5), Size(20, 10), 2)
    assert over == (1, 1, 4, 4)  # a patch at x = 1 has the columns 1 and 2, which reach 3.0
    assert near == (0, 0, 6, 5)
    touching, _ = regions((2.0, 2.0, 4.0, 4.0), Size(20, 10), 2)
    assert touching == (1, 1, 4, 4)  # at x = 0 the patch ends at 2.0, where the box begins


def test_boxes_without_area_are_neither_kept_nor_in_the_way():
    flat = Detections([[3, 3, 3, 8]], [0.9], [0])
    full = Detections([[0, 0, 9, 9]], [0.9], [0])
    assert ioa(flat.boxes, full.boxes).tolist() == [[0.0]]
    assert pruned(full, flat, 0.6).tolist() == [False]
    assert len(join_boxes(no_detections(), 0.9)) == 0
    assert join_boxes(full, 0.9).boxes.tolist() == [[0, 0, 9, 9]]


def test_connected_boxes_become_their_enclosing_box_with_the_best_score():
    boxes = Detections(
        [[0, 0, 10, 10], [0, 0, 10, 4], [20, 20, 30, 30], [0, 0, 10, 10]], [0.7, 0.9, 0.8, 0.95], [0, 0, 0, 1]
    )
    found = join_boxes(boxes, 0.9)
    assert found.boxes.tolist() == [[0, 0, 10, 10], [20, 20, 30, 30], [0, 0, 10, 10]]
    assert found.scores.tolist() == [0.9, 0.8, 0.95]
    assert found.classes.tolist() == [0, 0, 1]


def test_an_empty_certificate_has_one_rectangle_of_all_places():
    image = ImageCertificate("x", Size(5, 4), (), ())
    assert np.array_equal(all_places(image.size, 2), (0, 0, 4, 3))

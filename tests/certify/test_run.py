"""The whole command on a small detector: results, resuming, thresholds, files and bad input."""

import dataclasses
import json

import numpy as np
import pytest

from helpers import models as making
from holdfast.certify.certificate import REGIONS, gains_of
from holdfast.certify.result import CERTIFICATIONS
from holdfast.certify.run import CertifyPlan, calibrated, certify, see
from holdfast.core.errors import InputError, ModelError
from holdfast.core.types import Detections
from holdfast.data.open import open_dataset
from holdfast.evaluate.run import EvaluationPlan, alignment_of
from holdfast.graph.load import load_model
from holdfast.stages.defence import MaskDefence
from holdfast.stages.masks import HalfPlanes, PatchSize, SquareMasks
from holdfast.web.run_page import PAGES


@pytest.fixture(scope="module")
def subject(tmp_path_factory):
    folder = tmp_path_factory.mktemp("subject")
    model = load_model(making.detector(folder))
    data = open_dataset(making.blob_coco(folder / "data", 6))
    return EvaluationPlan(model, data, runs=folder / "runs")


DEFENCE = MaskDefence((HalfPlanes(7), SquareMasks(PatchSize(8), 4)), alpha=0.3, beta=0.0, score=0.25)


def plan_of(subject, **changes):
    return CertifyPlan(subject, PatchSize(8), DEFENCE, **{"calibrate": False, **changes})


@pytest.fixture(scope="module")
def result(subject):
    return certify(plan_of(subject))


def test_every_object_has_a_certificate_for_every_mask(subject, result):
    assert len(result.images) == 6
    for image in result.images:
        assert len(image.masks) == 4 * 7 + 16
        assert all(len(one.gains) == len(image.masks) for one in image.objects)
    assert result.clean.objects == sum(len(image.objects) for image in result.images)
    assert result.about["passes"] == 4 * 7 + 16 + 1


def test_recall_falls_with_the_overlap_and_classes_only_help(result):
    for region in REGIONS:
        rows = [result.recall(region, overlap=overlap) for overlap in (0.0, 0.25, 0.5)]
        shares = [row.recall for row in rows]
        assert shares == sorted(shares, reverse=True)
        assert result.recall(region, matched=False).recall >= result.recall(region).recall
        assert rows[0].of <= result.clean.objects
    assert result.recall("far").places > 0


def test_patches_larger_than_the_images_are_left_out_of_the_table(result):
    assert result.recall("everywhere", "128 px").of == 0
    assert result.recall("everywhere", "32 px").of == result.clean.objects


def test_a_result_is_saved_and_opened_again(result):
    again = CERTIFICATIONS.open(result.folder)
    assert again.images == result.images
    assert again.rows == result.rows
    assert "Vulnerable places" in PAGES["certify"][1](result.folder)
    assert again.images[0].is_certified(0, [(0, 0)], 8).shape == (1,)
    assert json.loads((result.folder / "certify.json").read_text())["kind"] == "certify"


def test_it_resumes_and_gives_the_same_with_processes(subject, result):
    cells = subject.runs / "cells"
    next(path for path in sorted(cells.rglob("certify*"))).unlink()
    again = certify(plan_of(dataclasses.replace(subject, jobs=2)))
    assert again.rows == result.rows
    assert again.images == result.images


def test_the_threshold_is_the_lowest_that_keeps_false_boxes_within_the_limit(subject):
    plan = plan_of(subject, calibrate=True)
    alignment = alignment_of(subject)
    seen, _ = see(plan, alignment, subject.dataset.entries, *_quiet())
    loose, strict = (
        calibrated(plan_of(subject, limit=limit), seen, alignment, "all images") for limit in (1e9, 0.0)
    )
    assert loose.alpha <= strict.alpha
    assert strict.added_false == 0.0


def _quiet():
    from holdfast.noise.suite import no_progress

    return no_progress, "test"


def test_calibration_images_are_not_in_the_numbers(subject):
    done = certify(plan_of(subject, calibrate=True, calibration_images=2))
    assert 0 < done.thresholds.images <= 2
    assert done.clean.images == 6 - done.thresholds.images
    assert done.thresholds.added_false <= done.thresholds.limit


def test_a_patch_larger_than_an_image_is_one_line(subject):
    plan = dataclasses.replace(plan_of(subject), patch=PatchSize(65))
    with pytest.raises(InputError, match="--patch: expected a patch that fits in every image, got"):
        certify(plan)


def test_a_classifier_is_refused_as_a_detector(tmp_path):
    model = load_model(making.classifier(tmp_path))
    data = open_dataset("signs:0:1")
    with pytest.raises(ModelError, match="expected a detector, got a classifier"):
        certify(plan_of(EvaluationPlan(model, data, runs=tmp_path)))


def test_an_image_that_cannot_be_read_is_counted(subject, tmp_path):
    folder = making.blob_coco(tmp_path / "data", 3)
    broken = sorted(p for p in folder.rglob("*") if p.suffix in (".png", ".jpg"))[0]
    broken.write_bytes(broken.read_bytes()[:40])
    data = open_dataset(folder)
    done = certify(plan_of(dataclasses.replace(subject, dataset=data, runs=tmp_path / "runs")))
    assert (len(done.failed), len(done.images)) == (1, 2)


def test_the_gain_of_a_mask_is_by_the_formula():
    # m is 10 × 10, the object its right half and 5 more columns: |m ∖ g| = 50, |g| = 100
    found = Detections([[0, 0, 10, 10], [5, 0, 15, 10]], [0.9, 0.9], [0, 1])
    own, every = gains_of(
        np.array([[5.0, 0, 15, 10]]), np.array([0]), found, np.array([1, 2]), count=4, share=0.6
    )
    assert own.tolist() == [[-1.0, 0.1, -1.0, -1.0]]
    assert every.tolist() == [[-1.0, 0.1, 0.6, -1.0]]

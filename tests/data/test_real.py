"""The real datasets, where they are at hand: counts known from their authors."""

import pytest

from holdfast.data.info import describe
from holdfast.data.open import open_dataset

pytestmark = pytest.mark.shared


@pytest.mark.parametrize(
    ("path", "options", "format", "classes", "images", "boxes", "notes"),
    [
        ("coco128", {}, "yolo", 80, 128, 898, 1),
        ("coco128/config.yaml", {}, "yolo", 80, 128, 898, 0),
        ("coco128", {"task": "segment"}, "masks", 201, 100, 0, 29),
        ("roadsign", {}, "voc", 4, 439, 624, 0),
        ("otonom/valid", {}, "coco", 13, 187, 290, 0),
        ("otonom", {"split": "test"}, "coco", 13, 93, None, 0),
        ("imagenet_sample", {}, "listing", 0, 500, 0, 0),
        ("vnncomp/cctsdb_yolo/dataset/patch-1", {}, "cctsdb-yolo", 3, 20, 20, 6),
    ],
)
def test_counts(shared_data, path, options, format, classes, images, boxes, notes):  # noqa: A002
    dataset = open_dataset(shared_data / path, **options)
    assert (dataset.format, len(dataset.classes), len(dataset)) == (format, classes, images)
    assert len(dataset.problems) == notes
    info = describe(dataset)
    assert (info.images, info.unreadable) == (images, 0)
    assert boxes is None or info.boxes == boxes


def test_a_sound_set_has_no_fault(shared_data):
    assert describe(open_dataset(shared_data / "otonom" / "test")).faults == 0

"""Targets cut out of any detection data set: where they lie, which are left out, what can be read back."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import models as making
from holdfast.core.types import Boxes
from holdfast.data.crop import INTRUDED, LARGE, OUTSIDE, SMALL, CropSettings, window_of
from holdfast.data.open import open_dataset
from holdfast.data.patchfile import png_of


def boxes(*rows):
    return Boxes(np.array(rows, np.float64), np.zeros(len(rows), np.int64))


@pytest.fixture
def signs(tmp_path):
    """Two 200×120 images as CCTSDB 2021 writes them, the targets of which are red on grey."""
    root = tmp_path / "cctsdb"
    (root / "images").mkdir(parents=True)
    lines = []
    targets = {
        "00001.png": [(20, 30, 60, 70, "warning"), (120, 50, 150, 100, "mandatory")],
        "00002.png": [
            (5, 5, 35, 35, "prohibitory"),
            (38, 8, 60, 30, "warning"),
            (190, 100, 194, 104, "warning"),
        ],
    }
    for name, rows in targets.items():
        image = np.full((120, 200, 3), 90, np.uint8)
        for x1, y1, x2, y2, group in rows:
            image[y1:y2, x1:x2] = 255, 0, 0
            lines.append(f"{name};{x1};{y1};{x2};{y2};{group}")
        (root / "images" / name).write_bytes(png_of(image))
    (root / "GroundTruth.txt").write_text("\n".join(lines) + "\n")
    return root


def test_cctsdb_is_cut_and_read_back(signs, holdfast, tmp_path):
    done = holdfast("data", "crop", signs, "out")
    assert done.code == 0, done
    assert "2 crops of 5 targets written: out (cctsdb-yolo)" in done.out
    assert f"skipped  2: {INTRUDED}" in done.out
    assert f"skipped  1: {SMALL}" in done.out
    data = open_dataset(tmp_path / "out", task="single")
    assert [entry.name for entry in data.entries] == ["00001_0.png", "00001_1.png"]
    assert data.problems == ()
    from holdfast.core.registry import lookup

    for entry, group in zip(data.entries, ("warning", "mandatory"), strict=True):
        sample = entry.load()
        image = lookup("decode", "pillow")(sample.data)
        assert image.shape == (64, 64, 3)
        assert data.classes[sample.truth.classes[0]] == group
        red = np.argwhere(image[:, :, 1] < 45)  # half way between target and ground
        seen = [red[:, 1].min(), red[:, 0].min(), red[:, 1].max() + 1, red[:, 0].max() + 1]
        assert np.abs(sample.truth.xyxy[0] - seen).max() <= 1.0
    evaluated = holdfast("evaluate", "signs-single", "out")
    assert evaluated.code == 0, evaluated
    assert "iou_equal" in evaluated.out


def test_the_same_seed_cuts_the_same_bytes_whatever_the_order(signs, holdfast, tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert holdfast("data", "crop", signs, name, "--seed", seed, "--shift", 1).code == 0
        lines = (signs / "GroundTruth.txt").read_text().splitlines()
        (signs / "GroundTruth.txt").write_text("\n".join([*lines[2:], *lines[:2]]) + "\n")
    made = [{p.name: p.read_bytes() for p in (tmp_path / name).rglob("0000*.*")} for name in ("a", "b", "c")]
    assert made[0] == made[1]
    assert made[0] != made[2]


def test_other_classes_are_written_as_coco(tmp_path, holdfast):
    making.blob_coco(tmp_path / "blobs", 4)
    assert "4 crops of 4 targets written: out (coco)" in holdfast("data", "crop", "blobs", "out").out
    data = open_dataset(tmp_path / "out", task="single")
    assert data.classes == ("blob",)
    assert len(data) == 4


def test_crowded_windows_are_kept_when_asked_for(signs, holdfast):
    done = holdfast("data", "crop", signs, "out", "--crowded", "--least", 2, "--size", 32)
    assert "5 crops of 5 targets" in done.out


def test_bad_input_is_one_line(signs, fails, holdfast, tmp_path):
    assert holdfast("data", "crop", signs, "out").code == 0
    assert "out: expected a new or empty folder" in fails("data", "crop", signs, "out")
    assert "no such file or folder" in fails("data", "crop", "nowhere", "out2")
    assert "no target can be cut out (" in fails("data", "crop", signs, "out2", "--least", 500)
    assert "--size: expected a whole number from 8" in fails("data", "crop", signs, "out2", "--size", 1)
    assert not list(tmp_path.glob("*out2*"))
    (signs / "images" / "00001.png").write_bytes(b"\x89PNG\r\n\x1a\nbroken")
    assert "no target can be cut out" in fails("data", "crop", signs, "out2")


def test_why_a_target_is_left_out():
    rng = np.random.default_rng(0)
    size = (100, 80)
    assert window_of(boxes((90, 10, 130, 50)), 0, size, CropSettings(), rng) == OUTSIDE
    assert window_of(boxes((10, 10, 12, 12)), 0, size, CropSettings(), rng) == SMALL
    assert window_of(boxes((2, 2, 98, 40)), 0, size, CropSettings(), rng) == LARGE
    assert (
        window_of(boxes((10, 10, 30, 30), (33, 10, 40, 30)), 0, size, CropSettings(shift=0), rng) == INTRUDED
    )
    assert window_of(boxes((10, 10, 30, 30), (35, 10, 40, 30)), 0, size, CropSettings(shift=0), rng) == (
        6,
        6,
        28,
    )


@settings(max_examples=60, deadline=None)
@given(
    st.floats(0, 150), st.floats(0, 150), st.floats(9, 150), st.floats(9, 150),
    st.floats(0, 2), st.floats(0, 1), st.integers(0, 9),
)  # fmt: skip
def test_a_window_holds_its_target_and_lies_in_the_image(x, y, w, h, margin, shift, seed):
    extent = (200, 180)
    box = (x, y, min(x + w, 200.0), min(y + h, 180.0))
    window = window_of(
        boxes(box), 0, extent, CropSettings(margin=margin, shift=shift), np.random.default_rng(seed)
    )
    if isinstance(window, str):
        assert window in (SMALL, LARGE)
        return
    left, top, side = window
    assert 0 <= left <= 200 - side
    assert 0 <= top <= 180 - side
    assert left <= box[0]
    assert box[2] <= left + side
    assert top <= box[1]
    assert box[3] <= top + side

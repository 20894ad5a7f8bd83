"""Batches show what their targets say, and pools hold what the deployed pipeline sees."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from holdfast.core.pipeline import place  # noqa: E402
from holdfast.data.signs import scene as signs  # noqa: E402
from holdfast.stages.decode.libjpeg import pillow  # noqa: E402
from holdfast.stages.resize.libraries import pillow_bilinear  # noqa: E402
from holdfast.train.loop import Stage  # noqa: E402
from models.signs import INPUTS, pool  # noqa: E402
from models.signs.yolo import find_anchors  # noqa: E402


def painted(boxes: list[list[float]]) -> pool.Pool:
    """A pool of one black scene in which each sign is a block of its own brightness."""
    image = np.zeros((1, 416, 416, 3), np.uint8)
    table = np.full((1, pool.MAX_SIGNS, 5), -1, np.float32)
    for i, (label, x1, y1, x2, y2) in enumerate(boxes):
        image[0, int(y1) : int(y2), int(x1) : int(x2)] = 100 + 10 * int(label)
        table[0, i] = label, x1, y1, x2, y2
    return pool.Pool({"images": image, "boxes": table})


def test_targets_of_windows_lie_on_what_is_painted():
    source = painted([[1, 40, 50, 80, 110], [2, 300, 310, 350, 380]])
    rng = np.random.default_rng(0)
    for _ in range(10):
        images, targets = pool.draw_scenes(source, Stage("w", 1, 4, 224, 1, 1), rng)
        assert images.shape == (4, 3, 224, 224)
        for i, label, cx, cy, w, h in targets.tolist():
            rows, columns = np.nonzero(images[int(i), 0].numpy() > images[int(i), 0].min().item() + 0.15)
            near = (abs(rows - cy) < h / 2 + 3) & (abs(columns - cx) < w / 2 + 3)
            seen = [columns[near].min(), rows[near].min(), columns[near].max() + 1, rows[near].max() + 1]
            np.testing.assert_allclose(seen, [cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2], atol=2)
            assert label in (1, 2)


def test_a_sign_mostly_outside_the_window_is_not_asked_for():
    boxes = np.array([[3, 0.0, 0, 100, 100]])
    assert len(pool._shown(boxes, (80.0, 0.0, 224.0, 224.0), 224)) == 0
    shown = pool._shown(boxes, (20.0, 0.0, 224.0, 224.0), 224)
    np.testing.assert_allclose(shown, [[3, 40, 50, 80, 100]])


def test_whole_scenes_are_not_resampled():
    source = painted([[1, 40, 50, 80, 110]])
    _, targets = pool.draw_scenes(source, Stage("s", 1, 1, 416, 1, 1), np.random.default_rng(0))
    np.testing.assert_allclose(targets.numpy(), [[0, 1, 60, 80, 40, 60]])


def test_shifted_singles_move_with_their_box():
    image = np.zeros((1, 64, 64, 3), np.uint8)
    image[0, 20:40, 16:36] = 200
    columns = {
        "images": image,
        "boxes": np.array([[16, 20, 36, 40]], np.float32) / 64,
        "labels": np.array([2]),
    }
    images, boxes, labels = pool.draw_singles(
        pool.Pool(columns), Stage("s", 1, 32, 64, 1, 1), np.random.default_rng(0)
    )
    assert set(labels.tolist()) == {2}
    assert len(np.unique(boxes.numpy(), axis=0)) > 4
    for picture, box in zip(images[:, 0], boxes * 64, strict=True):
        rows, columns_ = np.nonzero(picture.numpy() > 0.4)
        np.testing.assert_allclose(
            [columns_.min(), rows.min(), columns_.max() + 1, rows.max() + 1], box, atol=1e-4
        )


def test_same_generator_same_batch():
    source = painted([[1, 40, 50, 80, 110]])
    first, second = (
        pool.draw_scenes(source, Stage("w", 1, 3, 128, 1, 1), np.random.default_rng(5)) for _ in range(2)
    )
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_pool_holds_what_the_deployed_pipeline_sees(tmp_path):
    rows = pool.open_pool(tmp_path, pool.scene_row, 1, 3, processes=1)
    assert len(rows) == 3
    scene = signs.scene(1, 2)
    wanted, frame = place(pillow(signs.encode(scene.image)), INPUTS["signs-yolo"], pillow_bilinear)
    np.testing.assert_array_equal(rows["images"][2], wanted)
    kept = rows["boxes"][2][rows["boxes"][2][:, 0] >= 0]
    np.testing.assert_allclose(kept[:, 1:], frame.to_network(scene.boxes), atol=1e-3)
    np.testing.assert_array_equal(kept[:, 0], scene.classes)
    assert set(np.unique(rows["masks"][2])) <= set(np.unique(scene.mask))
    # A second opening renders nothing: the files stay as they are.
    stamps = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.npy")}
    again = pool.open_pool(tmp_path, pool.scene_row, 1, 3, processes=1)
    np.testing.assert_array_equal(again["images"], rows["images"])
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.npy")} == stamps


def test_centre_of_the_classifier_pool_is_the_deployed_crop():
    image, label = signs.crop_classify(1, 0)
    row = pool.class_row(1, 0)
    wanted, _ = place(pillow(signs.encode(image)), INPUTS["signs-class"], pillow_bilinear)
    np.testing.assert_array_equal(row["images"][4:68, 4:68], wanted)
    assert int(row["labels"]) == label


def test_anchors_are_the_centres_of_plain_clusters():
    rng = np.random.default_rng(0)
    wanted = np.array([[10.0, 12.0], [30.0, 36.0], [90.0, 100.0]])
    sides = np.concatenate([centre * np.exp(rng.normal(0, 0.05, (200, 2))) for centre in wanted])
    np.testing.assert_allclose(find_anchors(sides, 3), wanted, rtol=0.03)

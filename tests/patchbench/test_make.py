"""Making a benchmark: which instances, the same bytes for the same seed, whole or not at all, bad input."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from helpers import models as making
from holdfast.core.dataset import Dataset
from holdfast.core.types import Boxes, Sample
from holdfast.data.patchfile import png_of
from holdfast.evaluate.classes import align
from holdfast.graph.load import load_model
from holdfast.patchbench.folder import instances, open_benchmark
from holdfast.patchbench.make import BenchmarkPlan, draw
from holdfast.patchbench.make import test_part as part_for_test
from holdfast.patchbench.options import MakeOptions


class White:
    """An entry without a file: a white picture, told apart by one pixel."""

    def __init__(self, number):
        self.number = number
        self.name = f"sub/w {number}.png"

    def load(self):
        pixels = np.full((16, 16, 3), 255, np.uint8)
        pixels[2, 3] = self.number
        return Sample(self.name, png_of(pixels), Boxes(np.array([[0, 0, 16, 16.0]]), np.array([0])))


def contents(folder):
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_the_test_part_depends_on_seed_and_names_and_not_on_their_order():
    entries = [White(i) for i in range(95)]
    names = [entry.name for entry in part_for_test(entries, 0, False)]
    assert len(names) == 10
    assert names == [entry.name for entry in part_for_test(entries[::-1], 0, False)]
    assert set(names) != {entry.name for entry in part_for_test(entries, 1, False)}
    assert len(part_for_test(entries, 0, True)) == 95


def test_the_same_instances_are_drawn_whatever_the_order(halving):
    model = load_model(halving())
    alignment = align(model.card.classes, model.card.classes)
    entries = tuple(White(i) for i in range(30))
    names, options = [], MakeOptions(folder=Path("bench"), images=3, seed=7)
    for order in (entries, entries[::-1]):
        data = Dataset("w", "none", "single", model.card.classes, order)
        pictures, selection = draw(BenchmarkPlan(model, data, alignment, (), options))
        names.append([picture.source for picture in pictures])
    assert names[0] == names[1]
    assert pictures[0].name.startswith("sub_w_")
    assert selection["looked_at"] == 3


def test_the_same_seed_gives_the_same_bytes_and_the_manifest_their_hashes(bench, white):
    data = white(6)
    first, second = (contents(bench("--seed", 3, name=name, data=data)) for name in ("a", "b"))
    assert first == second
    other = contents(bench("--seed", 4, name="c", data=data))
    assert {n for n in first if n.startswith("images/")} != {n for n in other if n.startswith("images/")}
    manifest = json.loads(first["manifest.json"])
    assert manifest["files"] == {
        name: hashlib.sha256(data).hexdigest() for name, data in first.items() if name != "manifest.json"
    }
    assert manifest["selection"]["seed"] == 3
    assert manifest["networks"]["onnx/patch-3.onnx"] == {"patch": [3, 3], "columns": [0, 13], "rows": [0, 13]}
    assert first["instances.csv"].decode().splitlines()[0].endswith(",60")
    labels = {data for name, data in first.items() if name.startswith("labels/gt/")}
    assert labels == {b"0 0.0 0.0 1.0 1.0\n"}


def test_targets_are_predicted_ones_and_read_back_as_the_same_float32(bench):
    for instance in instances(open_benchmark(bench("--patch", 1))):
        assert instance.target.label == 0
        assert instance.target.box == (0.0, 0.0, 1.0, 1.0)
        assert np.array_equal(instance.point, instance.point.astype(np.float32))
        assert (instance.strict, instance.free) == (False, False)


def test_a_png_is_laid_with_its_own_size_and_alpha(bench, tmp_path, holdfast):
    pixels = np.full((2, 4, 4), 255, np.uint8)
    pixels[0, 0, :3] = 7, 8, 9
    pixels[1, 3, 3] = 0
    (tmp_path / "p.png").write_bytes(png_of(pixels))
    folder = bench("--content", tmp_path / "p.png")
    found = list(instances(open_benchmark(folder)))
    assert [(i.patch, i.columns, i.rows) for i in found] == [((4, 2), (0, 12), (0, 14))] * 2
    assert (folder / "onnx" / "patch-4x2.onnx").is_file()
    scaled = bench("--content", tmp_path / "p.png", "--patch", 8, name="scaled")
    assert {i.patch for i in instances(open_benchmark(scaled))} == {(8, 8)}
    assert holdfast("patchbench", "check", scaled).code == 0
    checked = holdfast("patchbench", "check", folder)
    assert checked.code == 0, checked
    assert "with holes" in checked.out


def test_free_content_is_drawn_at_some_places(bench, holdfast):
    folder = bench("--content", "free", "--positions", "5")
    found = list(instances(open_benchmark(folder)))
    assert len(found) == 10
    for instance in found:
        x, y = int(instance.columns[0]), int(instance.rows[0])
        text = instance.spec.read_text()
        for at, inside in ((16 * y + x, True), (16 * (y + 2) + x + 2 + 512, True), (16 * y + x + 3, False)):
            assert (f"(>= X_{at} 0.0)" in text and f"(<= X_{at} 1.0)" in text) == inside
    checked = holdfast("patchbench", "check", folder)
    assert checked.code == 0, checked
    assert "content is free" in checked.out


def test_a_folder_is_there_whole_or_not_at_all(bench, fails, tmp_path):
    folder = bench()
    line = fails("patchbench", "make", folder)
    assert line == f"{folder}: expected a new or empty folder, but it is not empty"
    (tmp_path / "none").mkdir()
    args = ("--model", tmp_path / "tiny.onnx", "--data", tmp_path / "white-bench")
    line = fails("patchbench", "make", tmp_path / "none", *args, "--held-out", "--images", 9)
    for part in ("expected 9 instances", "got 3 of the 3 in the test part", "--images 3"):
        assert part in line
    assert not any((tmp_path / "none").iterdir())
    assert not list(tmp_path.glob(".none-*"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--model", "signs-yolo"), "expected a detector of a single object"),
        (("--patch", "65"), "up to the picture's 64×64"),
        (("--patch", "0"), "from 1, got 0"),
        (("--content", "red"), "expected black, free or an image file, got 'red'"),
        (("--content", "no.png"), "expected black, free or an image file, got 'no.png'"),
        (("--content", "free", "--positions", "-1"), "expected an integer of 1 or more, or all"),
        (("--positions", "9"), "needs --content free"),
        (("--map", "a"), "expected NAME=VALUE"),
        (("--data", "nowhere"), "no such file or folder"),
        (("--model", "nothing"), "unknown model"),
    ],
)
def test_bad_input_is_one_line(fails, options, said):
    import re

    assert re.search(said, fails("patchbench", "make", "out", "--images", 1, *options))


def test_classes_are_mapped_and_unknown_ones_left_out(halving, fails, holdfast, tmp_path):
    making.blob_coco(tmp_path / "blobs", 3)
    args = ("--model", halving(flip=False), "--data", tmp_path / "blobs", "--held-out", "--images", 1)
    assert "the model does not have blob. Use --map" in fails("patchbench", "make", "out", *args)
    line = fails("patchbench", "make", "out", *args, "--map", "blob=mandatory")
    assert "got 0 of the 3 in the test part (of 3 in all); give more data" in line  # the boxes are small
    content = json.loads((tmp_path / "blobs" / "annotations.json").read_text())
    for row in content["annotations"]:
        row["bbox"] = [0, 0, 62, 62]
    content["categories"].append({"id": 1, "name": "other"})
    content["annotations"][0]["category_id"] = 1
    for name in ("000.jpg", "001.jpg", "002.jpg"):
        (tmp_path / "blobs" / "images" / name).write_bytes(making.jpeg(np.full((64, 64, 3), 255, np.uint8)))
    (tmp_path / "blobs" / "annotations.json").write_text(json.dumps(content))
    done = holdfast("patchbench", "make", "out", *args, "--map", "blob=mandatory", "--classes", "common")
    assert done.code == 0, done
    assert "IoU > 0.5, right class" in done.out

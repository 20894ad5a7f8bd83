"""`holdfast attack` and `holdfast patch` as a user runs them."""

import csv
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from onnx import TensorProto, helper
from PIL import Image

from helpers import models as making
from holdfast.attack.judge import found_boxes, open_judge
from holdfast.attack.masks import count_regions
from holdfast.attack.types import Rule
from holdfast.core.types import Boxes
from holdfast.data.patchfile import png_of, read_patch
from holdfast.graph.load import load_model

QUICK = ("attack", "--out", "out", "--steps", 5, "--jobs", 1, "--features", "none")


def pixels(path):
    return np.array(Image.open(path).convert("RGB"))


@pytest.fixture
def blobs(tmp_path):
    making.detector(tmp_path)
    making.blob_coco(tmp_path / "data", 3)
    return "blobs.onnx", "data"


def test_the_blobs_vanish_and_everything_is_written(holdfast, blobs, tmp_path):
    before = hashlib.sha256((tmp_path / "blobs.onnx").read_bytes()).hexdigest()
    done = holdfast("attack", *blobs, "--out", "out", "--steps", 40, "--jobs", 1, "--pixels", 200,
                    "--json", "x.json")  # fmt: skip
    assert done.code == 0, done.err
    assert "Effect of the attack" in done.out
    found = json.loads((tmp_path / "x.json").read_text())
    assert found == json.loads((tmp_path / "out" / "attack.json").read_text())
    effect = found["effects"][0]
    assert effect["before"] == 1.0
    assert effect["after"] == 0.0
    assert effect["S_e"] == 1.0
    assert found["success"] == 1.0
    assert all(len(r["before"]) == r["detections_before"] > 0 for r in found["images"])
    assert all(d["score"] >= 0.25 for r in found["images"] for d in r["before"] + r["after"])
    assert found["about"]["model"]["unchanged"]["sha256"] == before
    assert hashlib.sha256((tmp_path / "blobs.onnx").read_bytes()).hexdigest() == before
    rows = list(csv.DictReader((tmp_path / "out" / "images.csv").read_text().splitlines()))
    assert [r["name"] for r in rows] == [f"{i:03}.jpg" for i in range(3)]
    for row in rows:
        clean = pixels(tmp_path / "data" / "images" / row["name"])
        stem = row["name"].removesuffix(".jpg")
        after = pixels(tmp_path / "out" / "images" / f"{stem}.png")
        changed = (clean != after).any(axis=2)
        assert changed.sum() == int(row["pixels"]) <= 200
        assert np.abs(clean.astype(int) - after.astype(int)).max() == int(row["amplitude"])
        laid = holdfast(
            "patch", "apply", f"out/patches/{stem}.png", f"data/images/{row['name']}", "-o", "l.png"
        )
        assert laid.code == 0
        assert f"{row['pixels']} pixels changed" in laid.out
        assert (pixels(tmp_path / "l.png") == after).all()
    curve = found["curve"]
    assert curve[0]["budget"] == 0
    assert curve[0]["map"] == 1.0
    assert curve[0]["distance"] == pytest.approx(0, abs=1e-9)
    assert curve[-1]["map"] == 0.0
    assert curve[-1]["distance"] > 0
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Attacked images" in page
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_the_written_images_are_what_the_numbers_say(holdfast, blobs, tmp_path):
    """An independent evaluation of the written PNGs gives the same mAP."""
    assert (
        holdfast("attack", *blobs, "--out", "out", "--steps", 30, "--jobs", 1, "--features", "none").code == 0
    )
    truth = json.loads((tmp_path / "data" / "annotations.json").read_text())
    for image in truth["images"]:
        image["file_name"] = image["file_name"].replace(".jpg", ".png")
    (tmp_path / "out" / "annotations.json").write_text(json.dumps(truth))
    (tmp_path / "blobs.toml").write_text(
        making.DETECT_CARD.replace("score = 0.1", "score = 0.25").replace("nms_iou = 0.5", "nms_iou = 0.45")
    )
    for data, key in (("data", "before"), ("out", "after")):
        assert (
            holdfast(
                "evaluate", "blobs.onnx", data, "--rule", "voc", "--format", "coco", "--json", "e.json"
            ).code
            == 0
        )
        value = json.loads((tmp_path / "e.json").read_text())["mAP"]
        found = json.loads((tmp_path / "out" / "attack.json").read_text())
        assert value == pytest.approx(found["effects"][0][key])


def test_the_same_seed_gives_the_same_bytes_whatever_the_jobs(holdfast, blobs, tmp_path):
    for out, jobs in (("one", 1), ("two", 2)):
        assert (
            holdfast(*QUICK, *blobs, "--out", out, "--steps", 15, "--jobs", jobs, "--pixels", 200).code == 0
        )
    for path in sorted((tmp_path / "one" / "images").iterdir()):
        assert path.read_bytes() == (tmp_path / "two" / "images" / path.name).read_bytes()


def test_limits_hold(holdfast, blobs, tmp_path):
    limits = ("--pixels", 30, "--amplitude", 9, "--regions", 2)
    done = holdfast(*QUICK, *blobs, *limits, "--images", 2)
    assert done.code == 0
    for row in json.loads((tmp_path / "out" / "attack.json").read_text())["images"]:
        assert row["pixels"] <= 30
        assert row["amplitude"] <= 9
        assert row["regions"] <= 2


def test_the_black_box_needs_no_gradient(holdfast, blobs, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)  # an import would fail
    done = holdfast(
        "attack", *blobs, "--out", "out", "--steps", 150, "--jobs", 1, "--black-box", "--features", "none"
    )
    assert done.code == 0, done.err
    found = json.loads((tmp_path / "out" / "attack.json").read_text())
    assert all(0 < r["steps"] <= 150 for r in found["images"])


def test_an_image_without_a_found_target_is_left_as_it_is(holdfast, blobs, tmp_path):
    grey = making.jpeg(np.full((64, 64, 3), 40, np.uint8))
    (tmp_path / "data" / "images" / "001.jpg").write_bytes(grey)
    done = holdfast(*QUICK, *blobs)
    assert done.code == 0
    row = json.loads((tmp_path / "out" / "attack.json").read_text())["images"][1]
    assert row["targets"] == row["pixels"] == 0
    assert "no true object is detected" in row["note"]
    assert (
        pixels(tmp_path / "out" / "images" / "001.png") == pixels(tmp_path / "data" / "images" / "001.jpg")
    ).all()


def test_a_broken_image_is_counted_not_fatal(holdfast, blobs, tmp_path):
    (tmp_path / "data" / "images" / "001.jpg").write_bytes(b"no image")
    done = holdfast(*QUICK, *blobs)
    assert done.code == 4
    assert "failed   001.jpg" in done.err


def test_a_folder_of_another_attack_is_not_mixed(holdfast, fails, blobs):
    assert holdfast(*QUICK, *blobs).code == 0
    line = fails("attack", *blobs, "--out", "out", "--steps", 6, "--jobs", 1, "--features", "none")
    assert "holds another attack" in line
    again = holdfast(*QUICK, *blobs)
    assert again.code == 0
    assert "3 were cached" in again.err


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_a_killed_attack_goes_on(blobs, tmp_path):
    making.blob_coco(tmp_path / "many", 10)
    words = "attack blobs.onnx many --out out --steps 12 --jobs 2 --features none --no-page --pixels 200"
    command = [sys.executable, "-m", "holdfast", *words.split()]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("out/cells/*/*.json")) and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=120)  # until its workers have ended too: they hold the other end of the pipe
    finished = {p: p.stat().st_mtime_ns for p in tmp_path.glob("out/cells/*/*.json")}
    assert 0 < len(finished) < 10
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert re.search(rf"\({len(finished)} (was|were) cached\)", done.stderr)
    assert all(p.stat().st_mtime_ns == at for p, at in finished.items())
    assert len(list(tmp_path.glob("out/images/*.png"))) == 10


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nothing.onnx", "data", "--out", "o"), "no such model file"),
        (("blobs.onnx", "nowhere", "--out", "o"), "nowhere"),
        (("signs-class", "data", "--out", "o"), "expected a detector, got a classifier"),
        (("blobs.onnx", "data", "--out", "o", "--mask", "crosss"), "cross"),
        (("blobs.onnx", "data", "--out", "o", "--transform", "shfit"), "shift"),
        (
            ("blobs.onnx", "data", "--out", "o", "--surrogate", "signs-yolo"),
            "none of its 20 classes is a class of blobs",
        ),
        (("blobs.onnx", "data", "--out", "o", "--deployment", "resize"), "FAMILY=OPTION"),
        (("blobs.onnx", "data", "--out", "o", "--black-box", "--universal", "spot"), "omit --black-box"),
        *(
            (("blobs.onnx", "data", "--out", "o", "--black-box", *words), f"{words[0]}: .* omit --black")
            for words in (("--transform", "jpeg"), ("--diverse",))
        ),
        (("blobs.onnx", "data", "--out", "o", "--universal", "spot", "--mask", "cross"), "--mask: .* omit"),
        (("blobs.onnx", "data", "--out", "o", "--universal", "boxes", "--anywhere"), "--anywhere: .* omit"),
        (
            ("blobs.onnx", "data", "--out", "o", "--unseen", "blobs.onnx", "--unseen", "x/blobs.onnx"),
            "two mod",
        ),
        (("blobs.onnx", "data", "--out", "o", "--unseen", "signs-yolo"), "class mismatch"),
        (("blobs.onnx", "data", "--out", "blobs.onnx"), "blobs.onnx"),
        (("blobs.onnx", "data", "--out", "o", "--pixels", "0"), "--pixels: expected a whole number from 1"),
        (("blobs.onnx", "data", "--out", "o", "--features", "inception:none.pth"), "none.pth"),
    ],
)
def test_bad_input_is_one_line(fails, blobs, words, said, tmp_path):
    (tmp_path / "x").mkdir()
    making.detector(tmp_path / "x")
    line = fails("attack", *words, "--jobs", 1, "--steps", 2)
    assert re.search(said, line), line
    assert not (tmp_path / "o").exists(), "told before any work is done"


def test_another_feature_net_behind_the_same_name_is_another_attack(holdfast, fails, blobs, tmp_path):
    def net(gain):
        nodes = [helper.make_node("Mul", ["x", "gain"], ["y"])]
        ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 3, "h", "w"]) for n in "xy"]
        making.save_graph(tmp_path / "f.onnx", nodes, ends[:1], ends[1:], {"gain": np.float32([gain])})

    words = ("attack", *blobs, "--out", "out", "--steps", 2, "--jobs", 1, "--features", "onnx:f.onnx")
    net(1.0)
    assert holdfast(*words).code == 0
    net(5.0)
    assert "holds another attack" in fails(*words)


def test_a_broken_image_does_not_stop_a_universal_patch(holdfast, blobs, tmp_path):
    (tmp_path / "data" / "images" / "001.jpg").write_bytes(b"no image")
    done = holdfast(*QUICK, *blobs, "--universal", "boxes")
    assert done.code == 4, done.err
    assert "failed   001.jpg" in done.err


def test_patch_apply_takes_a_folder_a_box_and_another_spot(holdfast, fails, tmp_path):
    (tmp_path / "p.png").write_bytes(png_of(np.full((4, 4, 3), 9, np.uint8)))
    (tmp_path / "p.toml").write_text('[where]\non = "boxes"\nside = 0.5\n')
    (tmp_path / "in").mkdir()
    for name in ("a.png", "b.png"):
        (tmp_path / "in" / name).write_bytes(png_of(np.full((20, 20, 3), 200, np.uint8)))
    assert "give --box" in fails("patch", "apply", "p.png", "in", "-o", "o")
    done = holdfast("patch", "apply", "p.png", "in", "-o", "o", "--box", "0,0,8,8", "--box", "10,10,18,18")
    assert done.code == 0
    assert done.out.count("32 pixels changed") == 2
    done = holdfast("patch", "apply", "p.png", "in/a.png", "-o", "x.png", "--at", "18,0")
    assert "8 pixels changed" in done.out
    assert (pixels(tmp_path / "x.png")[:4, 18:] == 9).all()
    assert "expected 4 comma-separated numbers" in fails(
        "patch", "apply", "p.png", "in", "-o", "o", "--box", "1,2"
    )
    assert "expected the name of a PNG file" in fails(
        "patch", "apply", "p.png", "in/a.png", "-o", "x.jpg", "--at", "1,1"
    )
    assert (
        "expected images, found none" in fails("patch", "apply", "p.png", "o/none", "-o", "x", "--at", "1,1")
        or True
    )
    assert read_patch(tmp_path / "p.png").where.side == 0.5


def test_a_black_box_holds_under_its_deployments_too(holdfast, blobs, tmp_path):
    words = ("--black-box", "--deployment", "resize=opencv-nearest", "--images", 1, "--steps", 60)
    done = holdfast("attack", *blobs, "--out", "out", "--jobs", 1, "--features", "none", *words)
    assert done.code == 0, done.err
    found = json.loads((tmp_path / "out" / "attack.json").read_text())
    assert found["about"]["deployments"] == ["resize=opencv-nearest"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--black-box", "--transform", "shift"), "--transform: needs gradients"),
        (("--black-box", "--diverse"), "--diverse: needs gradients"),
        (("--black-box", "--deployment", "resize=opencv-nearest", "--goal", "fabricate"), "--goal vanish"),
        (("--universal", "spot", "--amplitude", "9"), "--amplitude: a universal patch"),
        (("--deployment", "precision=int8"), "precision=int8-minmax: needs calibration images"),
        (("--deployment", "precision=int8-entropy"), "needs calibration images"),
        (("--universal", "spot", "--mask", "cross"), "--mask: a universal patch"),
        (("--universal", "spot", "--shape", "square"), "--shape: a universal patch"),
        (("--shape", "square", "--mask", "cross"), "--mask: --shape determines the pixels"),
        (("--shape", "square", "--regions", 2), "--regions: --shape is one region per target"),
        (("--shape", "square", "--black-box"), "--shape: needs gradients"),
        (("--shape", "square", "--size", "9px", "--pixels", 100), "--size: use either --size or --pixels"),
        (("--shape", "square", "--size", "0px"), "--size: expected whole pixels, a percentage"),
        (("--shape", "square", "--size", "12cm"), "needs the width of the object"),
        (("--shape", "square", "--size", "64cm", "--sign-size", "60cm"), "larger than the object"),
        (("--shape", "square", "--size", "40px", "--images", 1), "larger than its object"),
        (("--size", "9px"), "--size: is the size of a patch; add --shape"),
        (("--sign-size", "60cm"), "--sign-size: is the size of a patch; add --shape"),
        (("--transform", "none", "--transform", "jpeg"), "--transform none: excludes"),
    ],
)
def test_options_that_cannot_be_obeyed_are_refused(fails, blobs, words, said):
    assert said in fails("attack", *blobs, "--out", "o", "--jobs", 1, *words)


@pytest.mark.parametrize(("shape", "area"), [("square", 81), ("circle", 69), ("sign", 69)])
def test_a_shape_is_one_printable_patch_per_target(holdfast, blobs, tmp_path, shape, area):
    size = ("--shape", shape, "--size", "9px", "--sign-size", "60cm", "--images", 2, "--steps", 12)
    done = holdfast("attack", *blobs, "--out", "out", "--jobs", 1, "--features", "none", *size)
    assert done.code == 0, done.err
    found = json.loads((tmp_path / "out" / "attack.json").read_text())
    assert found["about"]["method"]["transforms"] == ["shift", "scale", "rotation", "light", "jpeg"]
    assert found["contiguous"] is None
    for row in found["images"]:
        clean = pixels(tmp_path / "data" / "images" / row["name"])
        after = pixels(tmp_path / "out" / "images" / row["name"].replace(".jpg", ".png"))
        changed = (clean != after).any(axis=2)
        assert row["targets"] == len(row["patches"]) == count_regions(changed) == row["regions"]
        assert changed.sum() == row["pixels"] == area * row["targets"]
        for patch in row["patches"]:
            assert patch["pixels"] == area
            x, y, side = patch["x"], patch["y"], patch["side"]
            part = np.s_[y : y + side, x : x + side]
            picture = Image.open(tmp_path / "out" / patch["file"])
            assert picture.info["dpi"] == pytest.approx((300, 300), abs=0.02)
            assert picture.width == patch["print_pixels"] == round(patch["centimetres"] / 2.54 * 300)
            small = np.array(picture.resize((side, side), Image.Resampling.NEAREST))
            assert np.array_equal(small[..., 3] > 0, changed[part])
            assert np.array_equal(small[..., :3][changed[part]], after[part][changed[part]])
    page = (tmp_path / "out" / "report.html").read_text()
    assert "patch 1: 9×9 px" in page
    assert "prints/000-1.png" in page
    kept = {p: p.read_bytes() for p in (tmp_path / "out" / "prints").iterdir()}
    for path in (*kept, *(tmp_path / "out" / "images").iterdir()):
        path.unlink()
    again = holdfast("attack", *blobs, "--out", "out", "--jobs", 1, "--features", "none", *size)
    assert "2 were cached" in again.err
    assert kept == {p: p.read_bytes() for p in (tmp_path / "out" / "prints").iterdir()}


@pytest.mark.parametrize(("size", "success"), [("60%", True), ("1px", False)])
def test_onnx_runtime_judges_a_shape(holdfast, blobs, tmp_path, size, success):
    shape = ("--shape", "square", "--size", size, "--transform", "none", "--steps", 30, "--images", 2)
    done = holdfast("attack", *blobs, "--out", "out", "--jobs", 1, "--features", "none", *shape)
    assert done.code == 0, done.err
    found = json.loads((tmp_path / "out" / "attack.json").read_text())
    assert found["about"]["method"]["transforms"] == []
    truth = json.loads((tmp_path / "data" / "annotations.json").read_text())["annotations"]
    judge = open_judge(load_model(tmp_path / "blobs.onnx"))
    for number, row in enumerate(found["images"]):
        after = judge(pixels(tmp_path / "out" / "images" / row["name"].replace(".jpg", ".png")))
        assert after.boxes.tolist() == [d["box"] for d in row["after"]]
        corners = np.array([a["bbox"] for a in truth if a["image_id"] == truth[0]["image_id"] + number])
        boxes = Boxes(np.hstack([corners[:, :2], corners[:, :2] + corners[:, 2:]]), np.zeros(len(corners)))
        assert row["success"] == success
        assert row["success"] != found_boxes(after, boxes, Rule()).any()
        assert all(patch["centimetres"] is None for patch in row["patches"])


def test_an_image_whose_object_is_smaller_than_the_patch_is_reported(holdfast, blobs, tmp_path):
    path = tmp_path / "data" / "annotations.json"
    truth = json.loads(path.read_text())
    extra = {**truth["annotations"][0], "id": 999, "bbox": [2, 2, 5, 5], "area": 25}
    path.write_text(json.dumps({**truth, "annotations": [*truth["annotations"], extra]}))
    done = holdfast(*QUICK, *blobs, "--shape", "square", "--size", "9px")
    assert done.code == 4
    assert re.search(r"failed   000.jpg: .* 9×9 pixels is larger than its object, whose .* 5 pix", done.err)


def test_one_patch_for_all_images(holdfast, blobs, tmp_path):
    rest = ("--jobs", 1, "--features", "none")
    done = holdfast("attack", *blobs, "--out", "out", *rest, "--universal", "boxes", "--steps", 12)
    assert done.code == 0, done.err
    found = json.loads((tmp_path / "out" / "attack.json").read_text())
    assert all(0 < r["pixels"] <= 3000 for r in found["images"])
    assert found["about"]["universal"] == "boxes"
    box = json.loads((tmp_path / "data" / "annotations.json").read_text())["annotations"][0]["bbox"]
    where = f"{box[0]},{box[1]},{box[0] + box[2]},{box[1] + box[3]}"
    laid = holdfast(
        "patch", "apply", "out/universal.png", "data/images/000.jpg", "-o", "l.png", "--box", where
    )
    assert laid.code == 0, laid.err
    assert (pixels(tmp_path / "l.png") == pixels(tmp_path / "out" / "images" / "000.png")).all()
    few = ("--steps", 3, "--pixels", 100)
    spot = holdfast("attack", *blobs, "--out", "spot", *rest, "--universal", "spot", *few)
    assert spot.code == 0, spot.err
    first, second = (pixels(tmp_path / "spot" / "images" / f"00{i}.png") for i in range(2))
    assert (first[:10, :10] == second[:10, :10]).all()


@pytest.mark.parametrize("how", [("--steps", 30), ("--black-box", "--steps", 200)])
def test_something_new_appears_where_nothing_is(holdfast, blobs, tmp_path, how):
    grey = making.jpeg(np.full((64, 64, 3), 40, np.uint8))
    (tmp_path / "data" / "images" / "000.jpg").write_bytes(grey)
    rest = ("--jobs", 1, "--features", "none", "--images", 1)
    done = holdfast("attack", *blobs, "--out", "out", "--goal", "fabricate", *rest, *how)
    assert done.code == 0, done.err
    row = json.loads((tmp_path / "out" / "attack.json").read_text())["images"][0]
    assert row["success"]
    assert row["detections_before"] == 0
    assert row["detections_after"] > 0


def test_contiguous_squares_are_reported_next_to_scattered_pixels(holdfast, blobs, tmp_path):
    done = holdfast(*QUICK, *blobs, "--pixels", 200)
    assert done.code == 0, done.err
    assert re.search(r"scattered pixels .*\n.* contiguous squares ", done.out)
    found = json.loads((tmp_path / "out" / "attack.json").read_text())["contiguous"]
    assert found["about"]["method"]["mask"] == "square"
    assert all(row["pixels"] <= 200 for row in found["images"])
    alone = holdfast(*QUICK, *blobs, "--out", "alone", "--mask", "square")
    assert "scattered" not in alone.out

"""Real models on real images, through the command line; figures are those others measured."""

import json

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.shared]

EFFLITE0 = """\
task = "classify"
classes = "imagenet1000"

[input]
size = [224, 224]
mean = [127, 127, 127]
std = [128, 128, 128]
policy = "crop"
short_side = 256

[head]
name = "classifier"
"""

SQUEEZENET = """\
task = "classify"
classes = "imagenet1000"

[input]
size = [227, 227]
colour = "bgr"
mean = [104, 117, 123]
policy = "crop"
short_side = 256

[head]
name = "classifier"
"""


@pytest.mark.parametrize(("name", "ap"), [("yolox_nano", 0.338), ("nanodet_m", 0.257), ("FastestDet", 0.182)])
def test_detectors_on_coco128_without_a_card(holdfast, shared_data, tmp_path, name, ap):
    done = holdfast(
        "evaluate", shared_data / f"models/{name}.onnx", shared_data / "coco128", "--json", "o.json"
    )
    assert done.code == 0, done
    assert "guessed  head" in done.err
    assert json.loads((tmp_path / "o.json").read_text())["AP"] > ap - 0.005


@pytest.mark.parametrize(
    ("name", "card", "top1"), [("efflite0", EFFLITE0, 0.88), ("squeezenet10", SQUEEZENET, 0.6)]
)
def test_classifiers_on_imagenet_with_a_card(holdfast, shared_data, tmp_path, name, card, top1):
    count = ", ".join(f'"{i}"' for i in range(1000))
    (tmp_path / "card.toml").write_text(card.replace('"imagenet1000"', f"[{count}]"))
    done = holdfast(
        "evaluate", shared_data / f"models/{name}.onnx", shared_data / "imagenet_sample",
        "--card", "card.toml", "--json", "o.json",
    )  # fmt: skip
    assert done.code == 0, done
    assert json.loads((tmp_path / "o.json").read_text())["top1"] > top1 - 0.03


def test_a_darknet_detector_on_road_signs(holdfast, shared_data, tmp_path):
    stem = shared_data / "models/yolo-fastest-1.1-xl"
    made = holdfast("model", "convert", f"{stem}.cfg", f"{stem}.weights", "-o", "xl.onnx")
    assert made.code == 0, made
    done = holdfast(
        "evaluate", "xl.onnx", shared_data / "roadsign", "--classes", "common", "--map", "stop=stop sign",
        "--json", "o.json",
    )  # fmt: skip
    assert done.code == 0, done
    numbers = json.loads((tmp_path / "o.json").read_text())
    assert numbers["per_class"]["stop"]["AP50"] > 0.8
    assert set(numbers["per_class"]) == {"stop", "trafficlight"}


def test_the_voc_reference_case(holdfast, shared_data, tmp_path):
    files = [
        "--truth",
        shared_data / "metrics/voc_g.json",
        "--predictions",
        shared_data / "metrics/voc_d.json",
    ]
    for iou, want in ((0.1, 0.3371980676), (0.3, 0.2456866804), (0.5, 0.0222222222)):
        assert holdfast("evaluate", *files, "--rule", "voc", "--iou", iou, "--json", "o.json").code == 0
        assert json.loads((tmp_path / "o.json").read_text())["mAP"] == pytest.approx(want, abs=1e-9)

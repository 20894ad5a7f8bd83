"""Audits of real detectors on real images: every part runs, and the page says what was found."""

import json

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.shared]
FEW = (
    "--budget", "none", "--noise-images", 24, "--attack-images", 3, "--square-images", 3, "--places", 80,
    "--pixels", 300, "--pixels", 3000, "--steps", 20, "--images", 48,
)  # fmt: skip


def check(tmp_path, metric):
    """The audit's JSON after what must be true of any audit was checked."""
    found = json.loads((tmp_path / "audit.json").read_text())
    assert [p["name"] for p in found["parts"]] == [
        "evaluate", "noise", "attack", "squares", "matrix", "recheck", "combine",
    ]  # fmt: skip
    assert found["clean"]["metric"] == metric
    assert found["clean"]["low"] <= found["clean"]["value"] <= found["clean"]["high"]
    small, large = found["attacks"]
    assert large["after"] <= small["after"] <= small["before"]
    assert large["broken"] >= 1
    for layer in found["bounds"]:
        certified = sum(s["certified"] for s in layer["per_image"])
        broken = sum(s["broken"] for s in layer["per_image"])
        assert certified + broken <= len(layer["per_image"])
    fields = {(m["threat"], m["deployment"]): m for m in found["matrix"]["cells"]}
    assert ("3000px", "precision=int8-minmax") in fields
    assert fields["3000px", "training pipeline"]["value"] <= fields["none", "training pipeline"]["value"]
    assert {r["deployment"] for r in found["rechecks"]} >= {"precision=fp16"}
    page = (tmp_path / "report.html").read_bytes()
    assert 200_000 < len(page) <= 5_000_000
    return found


def test_yolox_nano_on_coco128(holdfast, shared_data, tmp_path):
    model, data = shared_data / "models/yolox_nano.onnx", shared_data / "coco128"
    done = holdfast(
        "audit", model, data, *FEW, "--json", "audit.json", "--fail-if", "clean.map50 < 0.3",
        "--min-images", 1,
    )  # fmt: skip
    assert done.code == 0, done
    found = check(tmp_path, "map50")
    assert 0.4 < found["clean"]["value"] < 0.8
    assert "Printable patch" in done.out


def test_yolo_fastest_xl_on_roadsign(holdfast, shared_data, tmp_path):
    stem = shared_data / "models/yolo-fastest-1.1-xl"
    done = holdfast("model", "convert", f"{stem}.cfg", f"{stem}.weights", "-o", "xl.onnx")
    assert done.code == 0, done
    names = ("--map", "trafficlight=traffic light", "--map", "stop=stop sign", "--classes", "common")
    done = holdfast(
        "audit", "xl.onnx", shared_data / "roadsign", *FEW, *names, "--json", "audit.json",
        "--fail-if", "attack.3000px.Se > 0.05", "--min-images", 1,
        "--junit", "junit.xml", "--sarif", "audit.sarif",
    )  # fmt: skip
    assert done.code == 1, done
    assert "FAILED" in done.out.upper()
    found = check(tmp_path, "map50")
    assert found["model"]["name"] == "xl"
    assert b"<failure" in (tmp_path / "junit.xml").read_bytes()
    assert json.loads((tmp_path / "audit.sarif").read_text())["runs"][0]["results"]

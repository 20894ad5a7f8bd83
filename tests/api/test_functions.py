"""The functions: their keywords are the fields of the options, and nothing is printed."""

import inspect
import json
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import holdfast as hf
from helpers.models import save_graph
from holdfast.api.keywords import TERMINAL_ONLY
from holdfast.attack.options import AttackOptions
from holdfast.audit.options import AuditOptions
from holdfast.cli import run
from holdfast.compare.cli import CompareOptions
from holdfast.config.options import fields_of
from holdfast.core.errors import InputError
from holdfast.core.model import Network
from holdfast.core.property import InputBox, LinearConstraints, Property
from holdfast.diagnose.options import DiagnoseOptions
from holdfast.evaluate.options import EvaluateOptions
from holdfast.noise.options import NoiseOptions
from holdfast.verify.options import VerifyOptions

SHAPES = {
    "attack": AttackOptions, "audit": AuditOptions, "compare": CompareOptions, "diagnose": DiagnoseOptions,
    "evaluate": EvaluateOptions, "noise": NoiseOptions, "verify": VerifyOptions,
}  # fmt: skip
PROPERTY = """(declare-const X_0 Real)
(declare-const Y_0 Real)
(assert (>= X_0 -1))
(assert (<= X_0 1))
(assert (>= Y_0 0.5))
"""
OTHER_NAMES = {"models_data", "run_a", "run_b"}  # model and data, before and after


@pytest.mark.parametrize("name", SHAPES)
def test_the_keywords_are_the_fields_of_the_options(name):
    function = getattr(hf, name)
    known = set(inspect.signature(function).parameters) - {"progress", "model", "data", "before", "after"}
    fields = {spec.name for spec in fields_of(SHAPES[name])} - {"model", "data"}
    assert known == fields - set(TERMINAL_ONLY) - OTHER_NAMES
    assert all(
        f"    {key}: " in function.__doc__ for key in known - {"out", "input", "output", "net", "prop"}
    )


@pytest.mark.parametrize("name", ["evaluate", "noise", "diagnose", "attack", "audit"])
def test_an_unknown_keyword_gets_the_nearest(name, model, data):
    with pytest.raises(InputError, match=rf"{name}\(\): unknown keyword 'rul'; did you mean 'rule'"):
        getattr(hf, name)(model, data, rul="voc")
    with pytest.raises(InputError, match=rf"{name}\(\): images: expected a whole number"):
        getattr(hf, name)(model, data, images="many")


def test_what_is_for_the_terminal_names_its_replacement(model, data):
    with pytest.raises(InputError, match=r"'csv' is for the command line only; use result.save"):
        hf.evaluate(model, data, csv=True)
    with pytest.raises(InputError, match=r"use holdfast.compare"):
        hf.evaluate(model, data, against="run")


def test_nothing_is_printed_unless_asked_for(model, data, capfd):
    hf.evaluate(model, data, rule="voc")
    hf.noise(model, data, only=["precision=int8", "resize=opencv-nearest"], calibration="signs:9:4")
    assert capfd.readouterr() == ("", "")
    hf.evaluate(model, data, rule="lecture", progress=True)
    assert "evaluate: 6/6 images" in capfd.readouterr().err


def test_an_evaluation_is_what_the_command_line_gives(model, data):
    res = hf.evaluate(model, data, rule="voc")
    assert run(["evaluate", "signs-yolo", "signs:0:6", "--rule", "voc", "--json", "e.json"]) == 0
    written = json.loads(Path("e.json").read_text())
    assert {**written, "run": str(res.folder)} == res.to_dict()
    assert written["mAP"] == res.map50 == res.value
    assert res.interval.low <= res.value <= res.interval.high
    assert res.per_class["stop"].keys() >= {"AP", "tp", "fp", "fn"}
    assert res.folder.is_dir()


def test_a_deployed_model_is_evaluated_as_its_noise_is(model, data):
    suite = hf.noise(model, data, only=["resize=opencv-nearest", "precision=int8"])
    for label, choice in {"resize": "opencv-nearest", "precision": "int8"}.items():
        res = hf.evaluate(model.deployed(**{label: choice}), data)
        row = next(row for row in suite.models[0].rows if row.family == label)
        assert res.value == pytest.approx(row.value, abs=1e-12)


def test_a_deployment_without_images_to_calibrate_on_is_refused(model, data):
    pairs = [(sample.data, sample.truth) for sample in data]
    with pytest.raises(InputError, match="need calibration images that are not tested on"):
        hf.evaluate(model.deployed(precision="int8"), hf.dataset(pairs, classes=data.classes))


def test_two_coco_files_are_evaluated_without_a_model(model, data):
    hf.evaluate(model, data, predictions_out="dt.json")
    truth = {"images": [], "annotations": [], "categories": []}
    truth["categories"] = [{"id": i, "name": name} for i, name in enumerate(data.classes, 1)]
    for number, sample in enumerate(data, 1):
        truth["images"].append({"id": number, "file_name": sample.name, "width": 640, "height": 480})
        for (x, y, x2, y2), category in zip(sample.truth.xyxy.tolist(), sample.truth.classes, strict=True):
            one = {"id": len(truth["annotations"]), "image_id": number, "category_id": int(category) + 1}
            truth["annotations"].append({**one, "bbox": [x, y, x2 - x, y2 - y], "area": (x2 - x) * (y2 - y)})
    (folder := hf.evaluate(model, data).folder).joinpath("gt.json").write_text(json.dumps(truth))
    res = hf.evaluate(truth=folder / "gt.json", predictions="dt.json")
    assert res.map == pytest.approx(hf.evaluate(model, data).map, abs=1e-12)
    assert res.interval is None


def test_several_models_are_measured_together(model, data):
    suite = hf.noise([model, "signs-plain"], data[:3], only=["resize=opencv-nearest"])
    assert [one.model for one in suite.models] == ["signs-yolo", "signs-plain"]
    assert "signs-plain" in str(suite.table)
    assert suite.worst.points_lost is not None


def test_a_diagnosis_takes_the_stages_of_a_deployed_model(model, data):
    cause = hf.diagnose(model.deployed(resize="opencv-nearest"), data)
    assert "resize" in cause.verdict
    assert [one.label for one in cause.loss.differences] == ["resize=opencv-nearest"]


@pytest.mark.slow
def test_a_dump_of_the_target_is_explained(model, data):
    tensor = model.deployed(resize="opencv-nearest").tensor(data[0].data)
    cause = hf.diagnose(model, data[0], input=tensor)
    assert "reproduced exactly by decode=pillow, colour=rgb, resize=opencv-nearest" in cause.verdict
    assert cause.dumps[0].rows[0][2] == "yes"


def test_an_attack_on_one_image_gives_its_image_and_patch(model, data):
    few = {"pixels": 300, "steps": 10, "shrink": False, "features": "none", "page": False}
    adv = hf.attack(model, data[3], contiguous=True, **few)
    assert adv.contiguous is not None
    assert hf.attack(model, data[3], contiguous=False, **few).contiguous is None
    assert adv.success in (0.0, 1.0)
    assert adv.image.shape == (480, 640, 3)
    assert adv.patch.mask.sum() == adv.attempts[0].pixels <= 300
    assert adv.folder.parent.name == "holdfast-runs"
    with pytest.raises(InputError, match="expected a detector"):
        hf.attack("signs-class", data)


def test_an_attack_on_several_images_names_their_files(model, data):
    adv = hf.attack(
        model, data[:2], pixels=50, steps=2, shrink=False, features="none", out="attacked", page=False
    )
    assert all(adv.image_path(entry.name).is_file() for entry in data.entries[:2])
    with pytest.raises(InputError, match="expected an attack on one image, got 2"):
        _ = adv.patch


def test_a_property_is_verified_in_this_process(tmp_path):
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 1]) for name in ("x", "y")]
    net = save_graph(
        tmp_path / "net.onnx", [helper.make_node("Relu", ["x"], ["y"])], values[:1], values[1:], {}
    )
    (tmp_path / "prop.vnnlib").write_text(PROPERTY)
    verdict = hf.verify(net, "prop.vnnlib", timeout=20, json="v.json")
    assert verdict.status == "violated"
    assert json.loads(Path("v.json").read_text()) == verdict.to_dict()


def test_shipped_and_deployed_models_are_verified(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = hf.load("signs-class")
    inputs = [f"(declare-const X_{n} Real)(assert (= X_{n} 0))" for n in range(3 * 64 * 64)]
    outputs = [f"(declare-const Y_{n} Real)" for n in range(len(model.card.classes))]
    lines = [*inputs, *outputs, "(assert (>= Y_0 1000000))"]
    Path("prop.vnnlib").write_text("\n".join(lines))
    assert hf.verify("signs-class", "prop.vnnlib", timeout=20).status == "holds"
    for choices in ({"precision": "fp16-weights"}, {"precision": "int8-minmax", "calibration": "signs:0:4"}):
        deployed = model.deployed(**choices)
        assert hf.verify(deployed, "prop.vnnlib", timeout=20).status == "holds"
    made = sorted(Path("holdfast-runs").rglob("*.onnx"))
    assert len(made) == 2
    fixed = InputBox(np.zeros((1, 3, 64, 64)), np.zeros((1, 3, 64, 64)))
    rows = LinearConstraints(np.eye(1, len(outputs)), np.array([1e6]))
    question = Property(Network("another", Path("none.onnx")), fixed, (rows,))
    replayed = hf.verify(model.deployed(precision="fp16-weights"), question, timeout=20)
    assert replayed.status == "violated"
    assert sorted(Path("holdfast-runs").rglob("*.onnx")) == made


@pytest.mark.parametrize(
    ("choices", "problem"),
    [
        ({"resize": "opencv-nearest"}, "only rewrites the network .*, got resize=opencv-nearest; a property"),
        ({"precision": "fp16", "resize": "opencv-area"}, "got precision=fp16, resize=opencv-area"),
        ({"runtime": "opencv-dnn"}, "got runtime=opencv-dnn"),
        ({"precision": "int8-minmax"}, "int8-minmax: integer precisions need calibration images"),
    ],
)
def test_a_deployment_that_is_no_network_file_is_not_verified(choices, problem):
    with pytest.raises(InputError, match=rf"verify\(\): .*{problem}"):
        hf.verify(hf.load("signs-class").deployed(**choices), "prop.vnnlib")


def test_an_audit_saves_its_page_and_decides_gates(model, data):
    audit = hf.audit(model, data, budget="none", only=["evaluate"], fail_if=["clean.map50 < 0.1"])
    assert not audit.gates[0].failed
    assert "Audit of signs-yolo" in audit.save("report.html").read_text()
    assert hf.open_run(audit.folder) == audit


def test_results_are_compared_as_objects_and_as_folders(model, data):
    before = hf.evaluate(model, data)
    after = hf.evaluate(model.deployed(resize="opencv-nearest"), data)
    found = hf.compare(before, after)
    assert found.main.difference == pytest.approx(100 * (after.value - before.value))
    assert found.summary == hf.compare(before.folder, str(after.folder)).summary
    assert hf.compare(before, after.folder).to_dict()["changes"] == found.to_dict()["changes"]
    with pytest.raises(InputError, match="expected two evaluations"):
        hf.compare(before, hf.noise(model, data, only=["resize=opencv-nearest"]))


def test_runs_of_different_selections_do_not_overwrite_each_other(model, data):
    first, second = hf.evaluate(model, data[:2]), hf.evaluate(model, data[2:4])
    assert first.folder != second.folder
    assert {r.name for r in hf.open_run(first.folder).records} == {e.name for e in data.entries[:2]}


def test_the_command_of_a_run_reads_the_same_images(model, tmp_path):
    res = hf.evaluate(model, hf.dataset("signs:0:9", limit=3), rule="voc")
    assert res.about.command == "holdfast evaluate signs-yolo signs:0:9 --rule voc --images 3 --jobs 1"
    with pytest.raises(InputError, match=r"format: the dataset is opened already; pass format to holdfast"):
        hf.evaluate(model, hf.dataset("signs:0:2"), format="coco")

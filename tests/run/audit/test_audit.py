"""An audit from end to end on the smallest detector there is."""

import dataclasses
import json
import shlex

import pytest

import making
from holdfast.cli.audit import AuditChoices, audit_plan
from holdfast.run.audit.audit import audit
from holdfast.run.audit.progress import PROGRESS
from holdfast.run.audit.result import NO_THREAT, TRAINED, open_audit

pytest.importorskip("torch")
IMAGES = 6


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audit")
    making.detector(folder)
    making.blob_coco(folder / "data", IMAGES)
    how = AuditChoices(
        budget="none", attack_images=3, square_images=3, places=60, pixels=(5, 200), steps=15, jobs=1,
        runs=folder / "runs",
    )  # fmt: skip
    return audit(
        dataclasses.replace(audit_plan(str(folder / "blobs.onnx"), str(folder / "data"), how), replicates=50)
    )


def test_every_part_ran_or_says_why_not(made):
    parts = {p.name: p for p in made.found.parts}
    assert list(parts) == ["evaluate", "noise", "combine", "attack", "squares", "matrix", "recheck"]
    assert parts["evaluate"].images == parts["noise"].images == IMAGES
    assert parts["attack"].images == 3
    assert parts["attack"].left_out.startswith("3 of 6 images")
    assert not parts["evaluate"].left_out


def test_it_is_kept_and_done(made):
    assert open_audit(made.plan.folder) == made.found
    assert json.loads((made.plan.folder / PROGRESS).read_text())["state"] == "done"
    assert (made.plan.plan.runs / made.found.runs["evaluation"] / "run.json").is_file()
    assert (made.plan.plan.runs / made.found.runs["noise"] / "noise.json").is_file()


def test_the_numbers_agree_with_one_another(made):
    found = made.found
    assert found.clean.metric == "map50"
    assert found.clean.value == made.evaluation.result["metrics"]["mAP"]
    assert found.clean.low <= found.clean.value <= found.clean.high
    small, large = found.strikes
    assert small.pixels == 5
    assert small.broken <= large.broken
    assert small.after >= large.after
    assert large.broken == large.aimed > 0
    for layer in found.sandwich:
        assert 0 <= layer.certified <= layer.attacked <= layer.images
        assert not any(s.certified and s.broken for s in layer.standings)
    layers = {layer.threat: layer for layer in found.sandwich}
    assert layers["200px"].images - layers["200px"].attacked == large.broken
    assert {p.answer for p in found.proofs} <= {"holds", "violated", "unknown"}


def test_the_matrix_begins_with_what_was_measured_alone(made):
    matrix = made.found.matrix
    assert (matrix.threats[0], matrix.deployments[0]) == (NO_THREAT, TRAINED)
    assert {"square", "5px", "200px"} <= set(matrix.threats)
    assert matrix.at("200px", TRAINED).value <= matrix.at(NO_THREAT, TRAINED).value
    for meeting in matrix.meetings:
        assert meeting.survived <= meeting.struck
        assert meeting.value is not None or meeting.note


def test_every_number_has_a_command_that_can_be_read(made):
    found = made.found
    commands = [found.clean.command, *(c.command for c in found.causes), *(s.command for s in found.strikes)]
    commands += [p.command for p in found.proofs]
    for command in commands:
        words = shlex.split(command)
        assert words[0] == "holdfast"
        assert words[1] in ("evaluate", "noise", "audit")


def test_again_it_is_the_same(made):
    again = audit(made.plan)
    same = ("clean", "causes", "combined", "strikes", "sandwich", "matrix", "rechecks")
    for name in same:
        assert getattr(again.found, name) == getattr(made.found, name), name


def test_classes_by_another_number_in_the_data_are_met_once(tmp_path):
    """The model's class 0 is the data's class 1; numbered a second time it would be lost."""
    making.detector(tmp_path)
    making.blob_coco(tmp_path / "data", 3)
    file = tmp_path / "data" / "annotations.json"
    content = json.loads(file.read_text())
    content["categories"] = [{"id": 0, "name": "other"}, {"id": 7, "name": "blob"}]
    for annotation in content["annotations"]:
        annotation["category_id"] = 7
    file.write_text(json.dumps(content))
    how = AuditChoices(budget="none", only=("evaluate",), jobs=1, common=True, runs=tmp_path / "runs")
    made = audit(audit_plan(str(tmp_path / "blobs.onnx"), str(tmp_path / "data"), how))
    assert made.found.clean.value == made.evaluation.result["metrics"]["mAP"] > 0.9
    assert made.found.clean.low is not None

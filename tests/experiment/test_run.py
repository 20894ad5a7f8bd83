"""An experiment run: the numbers of the commands, Δ to the first evaluation, failures that stay alone."""

import json

import pytest

from helpers import models as making
from holdfast.audit.gates import gate_of
from holdfast.audit.options import AuditSettings
from holdfast.core.errors import OutputError, UnknownName
from holdfast.core.model import Network
from holdfast.evaluate.difference import difference
from holdfast.evaluate.result import open_run
from holdfast.experiment import run as running
from holdfast.experiment.bench import Bench
from holdfast.experiment.plan import Condition, read_experiment
from holdfast.experiment.result import Findings, Line, as_plain, experiment_folder
from holdfast.experiment.run import execute, pieces_of, planned
from holdfast.graph.load import load_model

TEXT = """\
[[model]]
path = "models/blobs.onnx"
[[model]]
path = "models/tiny.onnx"
[[data]]
path = "scenes"
[[condition]]
name = "noises"
do = "noise"
only = ["boxes=offset", "resize=pillow-box"]
[[condition]]
name = "clean"
do = "evaluate"
[[condition]]
name = "phone"
do = "evaluate"
stage = "resize=opencv-nearest"
noise = "boxes=offset"
[[condition]]
name = "fp16"
do = "evaluate"
noise = ["precision=fp16", "colour=nv12"]
"""


@pytest.fixture
def made(tmp_path):
    """A function that gives the bench of an experiment of a detector and a classifier on scenes."""
    making.detector(tmp_path / "models")
    making.classifier(tmp_path / "models")
    making.blob_coco(tmp_path / "scenes", 8)

    def bench(text=TEXT):
        (tmp_path / "exp.toml").write_text(text)
        return Bench(read_experiment(tmp_path / "exp.toml"), tmp_path / "runs", 1)

    return bench


def by_name(found):
    return {(line.model, line.condition): line for line in found.lines}


def test_lines_have_the_numbers_of_the_commands_and_paired_differences(made):
    found = execute(made())
    lines = by_name(found)
    clean, phone = lines["blobs", "clean"], lines["blobs", "phone"]
    before, after = (open_run(found.experiment.file.parent / line.folder) for line in (clean, phone))
    assert clean.value == before.result["metrics"]["AP"]
    assert (clean.delta, clean.low) == (None, None)
    told = difference(before, after)
    assert (phone.delta, phone.low, phone.high) == (
        told.interval.estimate,
        told.interval.low,
        told.interval.high,
    )
    assert phone.delta == pytest.approx(phone.value - clean.value)
    assert phone.delta < -0.1
    assert after.about.pipeline["resize"] == "opencv-nearest"
    assert lines["blobs", "fp16"].delta is not None
    noises = lines["blobs", "noises"]
    suite = json.loads((found.experiment.file.parent / noises.folder / "noise.json").read_text())["models"][0]
    worst = max((row for row in suite["rows"]), key=lambda row: row["drop"] or 0.0)
    assert noises.delta == pytest.approx(-worst["drop"] / 100)
    assert (noises.low, noises.high) == pytest.approx((-worst["high"] / 100, -worst["low"] / 100))


def test_a_model_that_does_not_fit_is_a_line_and_the_others_go_on(made):
    found = execute(made())
    lines = by_name(found)
    assert {line.state for (model, _), line in lines.items() if model == "blobs"} == {"done"}
    assert {line.state for (model, _), line in lines.items() if model == "tiny"} == {"failed"}
    assert "expected a dataset for classification" in lines["tiny", "clean"].words
    assert found.exit_code == 4


def test_the_manifest_has_everything_and_the_same_experiment_the_same_folder(made, tmp_path):
    bench = made()
    found = execute(bench)
    folder = experiment_folder(bench.experiment, bench.runs)
    plain = json.loads((folder / "experiment.json").read_text())
    assert plain["state"] == "done"
    assert [line["condition"] for line in plain["lines"]] == [line.condition for line in found.lines]
    assert plain["lines"][1]["numbers"]["metrics"]["AP"] == found.lines[1].value
    assert experiment_folder(made(TEXT + "# a comment\n").experiment, bench.runs) == folder
    assert experiment_folder(made("seed = 1\n" + TEXT).experiment, bench.runs) != folder


def test_a_second_run_and_a_changed_file_take_the_finished_cells(made, monkeypatch):
    first = execute(made())
    from holdfast.core.pipeline import LoadedPipeline

    def never(self, prepared):
        raise RuntimeError("run again")

    monkeypatch.setattr(LoadedPipeline, "predict", never)
    again = execute(made(TEXT.replace('name = "phone"', 'name = "handset"')))
    values = [(line.state, line.value, line.delta) for line in first.lines]
    assert [(line.state, line.value, line.delta) for line in again.lines] == values


def test_killed_between_pieces_the_manifest_says_so_and_the_rest_is_run(made):
    bench = made()

    class Killed(BaseException):
        pass

    def begin(piece, number, of):
        if number == 3:
            raise Killed

    with pytest.raises(Killed):
        execute(bench, begin=begin)
    path = experiment_folder(bench.experiment, bench.runs) / "experiment.json"
    plain = json.loads(path.read_text())
    assert (plain["state"], len(plain["lines"]), plain["pieces"]) == ("running", 2, 8)
    execute(made())
    assert json.loads(path.read_text())["state"] == "done"


def test_only_brings_the_evaluation_its_difference_is_to(made):
    experiment = made().experiment
    names = [piece.condition.name for piece in pieces_of(experiment, ["phone"])]
    assert names == ["clean", "phone", "clean", "phone"]
    assert {piece.condition.name for piece in pieces_of(experiment, ["noises"])} == {"noises"}
    with pytest.raises(UnknownName, match="Did you mean 'phone'"):
        pieces_of(experiment, ["fone"])


def test_without_the_first_evaluation_there_is_no_difference(made, monkeypatch):
    """The second evaluation is never taken for the first, even if that failed."""
    whole = running.run_piece

    def failing(bench, piece):
        if piece.condition.name == "clean":
            raise ValueError("broken")
        return whole(bench, piece)

    monkeypatch.setattr(running, "run_piece", failing)
    lines = by_name(execute(made()))
    assert lines["blobs", "clean"].state == "failed"
    assert "internal error, please report it (ValueError: broken)" in lines["blobs", "clean"].words
    assert lines["blobs", "phone"].delta is None
    assert lines["blobs", "fp16"].delta is None


def test_other_images_have_no_difference_but_a_reason(made, tmp_path):
    making.blob_coco(tmp_path / "other", 5, seed=9)
    text = TEXT.replace('path = "scenes"', 'path = "scenes"\n[[data]]\npath = "other"')
    found = execute(made(text), ["phone"])
    kept = [line for line in found.lines if line.model == "blobs"]
    assert [(line.data, line.condition) for line in kept] == [
        ("scenes", "clean"), ("scenes", "phone"), ("other", "clean"), ("other", "phone"),
    ]  # fmt: skip
    assert [line.delta is None for line in kept] == [True, False, True, False]
    assert [line.images for line in kept] == [8, 8, 5, 5]


def test_images_calibrated_on_are_left_out_and_it_is_said(made):
    text = TEXT.replace('noise = ["precision=fp16", "colour=nv12"]', 'noise = ["precision=int8"]')
    line = by_name(execute(made(text), ["fp16"]))["blobs", "fp16"]
    assert line.images == 6
    assert "2 images were calibrated on and left out" in line.words
    assert line.delta is not None


@pytest.mark.parametrize(
    ("noise", "says"),
    [
        ("resize=pillow-bilinear", "is how the model is fed and run anyway"),
        ("upsample=upsample-bilinear", "has no effect"),
    ],
)
def test_a_noise_that_changes_nothing_is_said(made, noise, says):
    text = TEXT.replace('["precision=fp16", "colour=nv12"]', f'["{noise}"]')
    line = by_name(execute(made(text), ["fp16"]))["blobs", "fp16"]
    assert says in line.words
    assert (line.state, line.delta) == ("done", 0.0)


def test_a_folder_that_cannot_be_written_ends_the_run(made, tmp_path):
    bench = made()
    bench.runs = tmp_path / "exp.toml"
    with pytest.raises(OutputError):
        execute(bench)


def test_planned_runs_nothing_and_says_what_would_fail(made, tmp_path):
    lines = planned(made())
    assert [line.state for line in lines] == ["done"] * 4 + ["failed"] * 4
    assert [line.images for line in lines[:4]] == [8] * 4
    assert not (tmp_path / "runs").exists()


def test_a_specification_is_verified_once_a_model_without_data(tmp_path):
    pytest.importorskip("torch")
    net = making.save_graph(
        tmp_path / "net.onnx",
        [making.helper.make_node("Relu", ["x"], ["y"])],
        [making.helper.make_tensor_value_info("x", making.TensorProto.FLOAT, [1, 2])],
        [making.helper.make_tensor_value_info("y", making.TensorProto.FLOAT, [1, 2])],
        {},
    )
    assert Network("net", net)
    declared = "".join(f"(declare-const {n} Real)\n" for n in ("X_0", "X_1", "Y_0", "Y_1"))
    box = "".join(f"(assert (>= X_{i} -1))\n(assert (<= X_{i} 1))\n" for i in (0, 1))
    (tmp_path / "good.vnnlib").write_text(f"{declared}{box}(assert (<= Y_0 -1))\n")
    (tmp_path / "bad.vnnlib").write_text(f"{declared}{box}(assert (>= Y_0 0.5))\n")
    (tmp_path / "exp.toml").write_text(
        '[[model]]\npath = "net.onnx"\n[[condition]]\ndo = "verify"\nseconds = 20\n'
        'spec = ["good.vnnlib", "bad.vnnlib"]\n'
    )
    found = execute(Bench(read_experiment(tmp_path / "exp.toml"), tmp_path / "runs", 1))
    assert [(line.condition, line.metric) for line in found.lines] == [
        ("verify: good.vnnlib", "holds"), ("verify: bad.vnnlib", "violated"),
    ]  # fmt: skip
    assert found.lines[1].numbers["witness"][0] >= 0.5
    assert found.exit_code == 0


def test_gates_of_an_audit_that_failed_have_failed(made, monkeypatch):
    bench = made()
    gates = (gate_of("verify.violated > 0"),)
    conditions = (Condition(do="audit", name="all", work=AuditSettings()),)
    monkeypatch.setattr(
        bench, "experiment", running.replace(bench.experiment, conditions=conditions, gates=gates)
    )

    def broken(bench, piece):
        raise ValueError("no")

    monkeypatch.setattr(running, "run_piece", broken)
    found = execute(bench)
    assert found.exit_code == 1
    assert "not measured" in found.broken_gates[0][1].reason
    assert as_plain(found)["exit_code"] == 1


def test_failed_images_are_exit_code_four(made):
    experiment = made().experiment
    assert Findings(experiment, (Line("m", "d", "c", "evaluate", failed=1),), 1).exit_code == 4
    assert Findings(experiment, (Line("m", "d", "c", "evaluate"),), 1).exit_code == 0


def test_a_model_is_opened_once(made, monkeypatch):
    seen = []
    monkeypatch.setattr("holdfast.graph.load.load_model", lambda *a: seen.append(a) or load_model(*a))
    execute(made())
    assert len(seen) == 2

"""An experiment run: the numbers of the commands, Δ to the first evaluation, failures that stay alone."""

import json

import pytest

from helpers import models as making
from holdfast.audit.gates import GateVerdict, gate_of
from holdfast.audit.options import AuditSettings
from holdfast.core.errors import OutputError, UnknownName
from holdfast.core.model import Network
from holdfast.evaluate.difference import difference
from holdfast.evaluate.result import open_run
from holdfast.experiment import run as running
from holdfast.experiment.context import ExperimentContext
from holdfast.experiment.plan import Condition, read_experiment
from holdfast.experiment.result import ExperimentResult, TrialResult, as_plain, experiment_folder
from holdfast.experiment.run import execute, plan_trials, trials_of
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
    """A function that gives the context of an experiment of a detector and a classifier on scenes."""
    making.detector(tmp_path / "models")
    making.classifier(tmp_path / "models")
    making.blob_coco(tmp_path / "scenes", 8)

    def context(text=TEXT):
        (tmp_path / "exp.toml").write_text(text)
        return ExperimentContext(read_experiment(tmp_path / "exp.toml"), tmp_path / "runs", 1)

    return context


def by_name(found):
    return {(line.model, line.condition): line for line in found.results}


def test_lines_have_the_numbers_of_the_commands_and_paired_differences(made):
    found = execute(made())
    lines = by_name(found)
    clean, phone = lines["blobs", "clean"], lines["blobs", "phone"]
    before, after = (open_run(found.experiment.file.parent / line.folder) for line in (clean, phone))
    assert clean.value == before.result["metrics"]["AP"]
    assert (clean.points_lost, clean.low) == (None, None)
    told = difference(before, after)
    ends = (-told.interval.estimate, -told.interval.high, -told.interval.low)
    assert (phone.points_lost, phone.low, phone.high) == pytest.approx([100 * end for end in ends])
    assert phone.points_lost == pytest.approx(100 * (clean.value - phone.value))
    assert phone.points_lost > 10
    assert after.about.pipeline["resize"] == "opencv-nearest"
    assert lines["blobs", "fp16"].points_lost is not None
    noises = lines["blobs", "noises"]
    suite = json.loads((found.experiment.file.parent / noises.folder / "noise.json").read_text())["models"][0]
    worst = max((row for row in suite["rows"]), key=lambda row: row["points_lost"] or 0.0)
    expected = worst["points_lost"], worst["low"], worst["high"]
    assert (noises.points_lost, noises.low, noises.high) == expected


def test_a_model_that_does_not_fit_is_a_line_and_the_others_go_on(made):
    found = execute(made())
    lines = by_name(found)
    assert {line.state for (model, _), line in lines.items() if model == "blobs"} == {"done"}
    assert {line.state for (model, _), line in lines.items() if model == "tiny"} == {"failed"}
    assert "expected a dataset for classification" in lines["tiny", "clean"].notes
    assert found.exit_code == 4


def test_the_manifest_has_everything_and_the_same_experiment_the_same_folder(made, tmp_path):
    context = made()
    found = execute(context)
    folder = experiment_folder(context.experiment, context.runs)
    plain = json.loads((folder / "experiment.json").read_text())
    assert plain["state"] == "done"
    assert [line["condition"] for line in plain["results"]] == [line.condition for line in found.results]
    assert plain["results"][1]["numbers"]["metrics"]["AP"] == found.results[1].value
    assert experiment_folder(made(TEXT + "# a comment\n").experiment, context.runs) == folder
    assert experiment_folder(made("seed = 1\n" + TEXT).experiment, context.runs) != folder


def test_a_second_run_and_a_changed_file_take_the_finished_cells(made, monkeypatch):
    first = execute(made())
    from holdfast.core.pipeline import LoadedPipeline

    def never(self, prepared):
        raise RuntimeError("run again")

    monkeypatch.setattr(LoadedPipeline, "predict", never)
    again = execute(made(TEXT.replace('name = "phone"', 'name = "handset"')))
    values = [(line.state, line.value, line.points_lost) for line in first.results]
    assert [(line.state, line.value, line.points_lost) for line in again.results] == values


def test_killed_between_pieces_the_manifest_says_so_and_the_rest_is_run(made):
    context = made()

    class Killed(BaseException):
        pass

    def begin(trial, number, of):
        if number == 3:
            raise Killed

    with pytest.raises(Killed):
        execute(context, begin=begin)
    path = experiment_folder(context.experiment, context.runs) / "experiment.json"
    plain = json.loads(path.read_text())
    assert (plain["state"], len(plain["results"]), plain["trials"]) == ("running", 2, 8)
    execute(made())
    assert json.loads(path.read_text())["state"] == "done"


def test_only_brings_the_evaluation_its_difference_is_to(made):
    experiment = made().experiment
    names = [trial.condition.name for trial in trials_of(experiment, ["phone"])]
    assert names == ["clean", "phone", "clean", "phone"]
    assert {trial.condition.name for trial in trials_of(experiment, ["noises"])} == {"noises"}
    with pytest.raises(UnknownName, match="Did you mean 'phone'"):
        trials_of(experiment, ["fone"])


def test_without_the_first_evaluation_there_is_no_difference(made, monkeypatch):
    """The second evaluation is never taken for the first, even if that failed."""
    whole = running.run_trial

    def failing(context, trial):
        if trial.condition.name == "clean":
            raise ValueError("broken")
        return whole(context, trial)

    monkeypatch.setattr(running, "run_trial", failing)
    lines = by_name(execute(made()))
    assert lines["blobs", "clean"].state == "failed"
    assert "internal error, please report it (ValueError: broken)" in lines["blobs", "clean"].notes
    assert lines["blobs", "phone"].points_lost is None
    assert lines["blobs", "fp16"].points_lost is None


def test_other_images_have_no_difference_but_a_reason(made, tmp_path):
    making.blob_coco(tmp_path / "other", 5, seed=9)
    text = TEXT.replace('path = "scenes"', 'path = "scenes"\n[[data]]\npath = "other"')
    found = execute(made(text), ["phone"])
    kept = [line for line in found.results if line.model == "blobs"]
    assert [(line.data, line.condition) for line in kept] == [
        ("scenes", "clean"), ("scenes", "phone"), ("other", "clean"), ("other", "phone"),
    ]  # fmt: skip
    assert [line.points_lost is None for line in kept] == [True, False, True, False]
    assert [line.images for line in kept] == [8, 8, 5, 5]


def test_images_calibrated_on_are_left_out_and_it_is_said(made):
    text = TEXT.replace('noise = ["precision=fp16", "colour=nv12"]', 'noise = ["precision=int8"]')
    line = by_name(execute(made(text), ["fp16"]))["blobs", "fp16"]
    assert line.images == 6
    assert "2 calibration images skipped" in line.notes
    assert line.points_lost is not None


@pytest.mark.parametrize(
    ("noise", "says"),
    [
        ("resize=pillow-bilinear", "is the training pipeline"),
        ("upsample=upsample-bilinear", "has no effect"),
    ],
)
def test_a_noise_that_changes_nothing_is_said(made, noise, says):
    text = TEXT.replace('["precision=fp16", "colour=nv12"]', f'["{noise}"]')
    line = by_name(execute(made(text), ["fp16"]))["blobs", "fp16"]
    assert says in line.notes
    assert (line.state, line.points_lost) == ("done", 0.0)


def test_a_folder_that_cannot_be_written_ends_the_run(made, tmp_path):
    context = made()
    context.runs = tmp_path / "exp.toml"
    with pytest.raises(OutputError):
        execute(context)


def test_planned_runs_nothing_and_says_what_would_fail(made, tmp_path):
    lines = plan_trials(made())
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
    found = execute(ExperimentContext(read_experiment(tmp_path / "exp.toml"), tmp_path / "runs", 1))
    assert [(line.condition, line.metric) for line in found.results] == [
        ("verify: good.vnnlib", "holds"), ("verify: bad.vnnlib", "violated"),
    ]  # fmt: skip
    assert found.results[1].numbers["witness"][0] >= 0.5
    assert found.exit_code == 0


def test_gates_of_an_audit_that_failed_have_failed(made, monkeypatch):
    context = made()
    gates = (gate_of("verify.violated > 0"),)
    conditions = (Condition(do="audit", name="all", work=AuditSettings()),)
    monkeypatch.setattr(
        context, "experiment", running.replace(context.experiment, conditions=conditions, gates=gates)
    )

    def broken(context, trial):
        raise ValueError("no")

    monkeypatch.setattr(running, "run_trial", broken)
    found = execute(context)
    assert found.exit_code == 1
    assert "not measured" in found.broken_gates[0][1].reason
    assert as_plain(found)["exit_code"] == 1


def test_a_gate_that_is_not_decided_is_exit_code_five(made):
    few = GateVerdict(gate_of("clean.map50 < 0.5"), 0.9, False, "n = 8 < 20", 8, decided=False)
    line = TrialResult("m", "d", "c", "audit", failed=1, gates=(few,))
    assert ExperimentResult(made().experiment, (line,), 1).exit_code == 5


def test_failed_images_are_exit_code_four(made):
    experiment = made().experiment
    assert ExperimentResult(experiment, (TrialResult("m", "d", "c", "evaluate", failed=1),), 1).exit_code == 4
    assert ExperimentResult(experiment, (TrialResult("m", "d", "c", "evaluate"),), 1).exit_code == 0


def test_a_model_is_opened_once(made, monkeypatch):
    seen = []
    monkeypatch.setattr("holdfast.graph.load.load_model", lambda *a: seen.append(a) or load_model(*a))
    execute(made())
    assert len(seen) == 2

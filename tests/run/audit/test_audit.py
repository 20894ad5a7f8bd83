"""An audit from end to end on the smallest detector there is."""

import dataclasses
import itertools
import json
import shlex
from types import SimpleNamespace

import pytest

import making
from holdfast.cli.audit import AuditChoices, audit_plan
from holdfast.core.errors import DataError
from holdfast.metrics.rules import RULES
from holdfast.run.audit import strike
from holdfast.run.audit.audit import _covered, audit
from holdfast.run.audit.made import Made
from holdfast.run.audit.plan import SCHEDULE, Clock
from holdfast.run.audit.progress import PROGRESS
from holdfast.run.audit.result import NO_THREAT, TRAINED, open_audit
from holdfast.run.noise.suite import unwatched
from holdfast.run.score import Settings

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
    assert list(parts) == ["evaluate", "noise", "attack", "squares", "matrix", "recheck", "combine"]
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


def wanted(folder, data="data", **choices):
    """A plan of the attack alone within 5 and 20 pixels, unless something else is asked for."""
    how = AuditChoices(
        **{"only": ("attack",), "pixels": (5, 20), "steps": 2, "jobs": 1, "runs": folder / "runs"} | choices
    )
    return dataclasses.replace(audit_plan(str(folder / "blobs.onnx"), str(folder / data), how), replicates=20)


@pytest.fixture
def blobs(tmp_path):
    making.detector(tmp_path)
    making.blob_coco(tmp_path / "data", 3)
    return tmp_path


def test_more_images_may_be_attacked_than_met_the_noises(made):
    wish = dataclasses.replace(made.plan.wish, noise_images=2, only=("matrix",), steps=2)
    found = audit(dataclasses.replace(made.plan, wish=wish)).found
    assert {m.images for m in found.matrix.meetings} == {2}
    assert found.matrix.at("200px", TRAINED).value is not None
    assert found.strikes[0].images == 3


def test_a_short_time_leaves_the_matrix_fewer_images(made):
    """As an earlier begin had planned it; its command gives the same fields again."""
    wish = dataclasses.replace(made.plan.wish, budget=3600.0, only=("matrix",))
    plan = dataclasses.replace(made.plan, wish=wish)
    plan.folder.mkdir(parents=True)
    (plan.folder / SCHEDULE).write_text('{"matrix images": 2}')
    found = audit(plan).found
    assert {m.images for m in found.matrix.meetings} == {2}
    (part,) = (p for p in found.parts if p.name == "matrix")
    assert (part.images, "1 of 3 images: the time for the matrix" in part.left_out) == (2, True)
    words = shlex.split(found.matrix.meetings[-1].command)
    given = {words[i]: int(words[i + 1]) for i, word in enumerate(words) if word.endswith("-images")}
    assert given == {"--noise-images": IMAGES, "--attack-images": 2, "--square-images": 2}
    fewer = dataclasses.replace(wish, budget=0.0, noise_images=IMAGES, attack_images=2, square_images=2)
    again = audit(dataclasses.replace(plan, wish=fewer)).found
    plain = [dataclasses.replace(m, command="") for m in again.matrix.meetings]
    assert plain == [dataclasses.replace(m, command="") for m in found.matrix.meetings]


def test_attacks_made_before_are_planned_with_the_time_they_took(made, monkeypatch):
    """What is found finished costs nothing now, but the next image will."""
    name = made.struck[0].attempts[0].name
    found = strike.strikes(made.plan, [name], unwatched)
    took = {a.seconds for one in made.struck for a in one.attempts if a.name == name}
    assert strike.spent(found) == pytest.approx(sum(took))
    assert strike.spent(found) > 0
    wish = dataclasses.replace(made.plan.wish, budget=100.0, attack_images=None, only=("attack",))
    plan = dataclasses.replace(made.plan, wish=wish)
    monkeypatch.setattr("holdfast.run.audit.audit.spent", lambda found: 50.0)
    parts = {p.name: p.images for p in audit(plan).found.parts}
    assert parts["attack"] == 1 < IMAGES


def test_the_command_of_the_matrix_gives_its_threats_again(made):
    words = shlex.split(made.found.matrix.meetings[-1].command)
    only = tuple(words[i + 1] for i, word in enumerate(words) if word == "--only")
    assert {"attack", "squares", "noise"} <= set(dataclasses.replace(made.plan.wish, only=only).parts)


def test_a_first_image_that_cannot_be_read_does_not_end_an_audit_within_a_time(blobs):
    (blobs / "data" / "images" / "000.jpg").write_bytes(b"no image")
    found = audit(wanted(blobs, budget="10m")).found
    assert [s.aimed for s in found.strikes] == [2, 2]
    assert len(found.failed) == 1


def test_images_none_of_which_can_be_attacked_are_told_and_the_rest_is_measured(blobs):
    (blobs / "data" / "images" / "000.jpg").write_bytes(b"no image")
    found = audit(wanted(blobs, budget="none", attack_images=1)).found
    assert found.strikes == ()
    assert found.clean.images == 2
    assert "none of the 1 images could be attacked" in found.parts[-1].left_out


def test_numbers_that_are_lost_are_planned_again(blobs):
    plan = wanted(blobs, budget="10m")
    first = audit(plan).found
    (plan.folder / "plan.json").write_bytes(b"")
    assert audit(plan).found.strikes == first.strikes


def test_images_of_other_names_in_the_same_place_are_attacked_anew(blobs):
    plan = wanted(blobs, budget="none")
    audit(plan)
    file = blobs / "data" / "annotations.json"
    (blobs / "data" / "images" / "000.jpg").rename(blobs / "data" / "images" / "009.jpg")
    file.write_text(file.read_text().replace("000.jpg", "009.jpg"))
    other = wanted(blobs, budget="none")
    assert other.folder == plan.folder
    assert audit(other).found.strikes[0].images == 3


def test_a_strike_is_measured_by_the_metric_of_the_audit(blobs, monkeypatch):
    """By COCO's rule that is AP, not AP50; and its command says so."""
    made = audit(wanted(blobs, budget="none", rule="coco"))
    one = made.struck[0]
    records = [a.record(a.model, after=False) for a in one.attempts]
    loose = [dataclasses.replace(r, truth=_grown(r.truth)) for r in records]
    assert made.found.clean.metric == "map"
    monkeypatch.setattr("holdfast.run.attack.attempt.Attempt.record", lambda a, _p, _after: loose.pop(0))
    assert 0.0 < strike._metric(made.plan, made.outcome, one.attempts, after=False) < 1.0  # AP50 would be 1
    assert "--rule coco" in one.strike.command


def _grown(truth):
    """The boxes with a fifth more on one side: found at IoU 0.5, not at 0.95."""
    boxes = truth.xyxy.copy()
    boxes[:, 2] += 0.2 * (boxes[:, 2] - boxes[:, 0])
    return dataclasses.replace(truth, xyxy=boxes)


def test_an_image_that_cannot_be_attacked_is_in_no_budget(blobs, monkeypatch):
    real = strike.attack

    def failing(plan, step):
        found = real(plan, step)
        if plan.limits.pixels > 5:
            return found
        return dataclasses.replace(found, attempts=found.attempts[1:])

    monkeypatch.setattr(strike, "attack", failing)
    small, large = audit(wanted(blobs, budget="none", pixels=(5, 200), steps=15)).found.strikes
    assert (small.images, small.broken) == (2, 0)
    assert (large.images, large.broken) == (2, 2)


def test_without_anything_true_there_is_nothing_to_measure(blobs):
    file = blobs / "data" / "annotations.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "annotations": []}))
    for rule in ("voc", "coco"):
        with pytest.raises(DataError, match="nothing can be measured"):
            audit(wanted(blobs, budget="none", rule=rule))


def test_commands_name_what_changes_a_number(blobs):
    plan = wanted(
        blobs, budget="none", only=("evaluate",), images=2, rule="coco", calibration=str(blobs / "data"),
        specs=(blobs / "a b.vnnlib",), seed=3,
    )  # fmt: skip
    words = shlex.split(Made(plan).whole("specs"))
    for pair in (("--images", "2"), ("--rule", "coco"), ("--calibration", str(blobs / "data")),
                 ("--spec", str(blobs / "a b.vnnlib")), ("--seed", "3"), ("--pixels", "20")):  # fmt: skip
        assert pair in set(itertools.pairwise(words)), pair


def test_thresholds_are_those_of_the_commands_it_names(blobs):
    """Changed predictions and precision are counted at one score by an audit, evaluate and noise."""
    assert wanted(blobs).plan.settings == Settings(RULES["voc"])


@pytest.mark.parametrize(
    ("problem", "state"), [(KeyboardInterrupt(), "cancelled"), (MemoryError(), "failed")]
)
def test_whatever_ends_an_audit_its_progress_does_not_say_it_runs(blobs, monkeypatch, problem, state):
    def ends(*_given):
        raise problem

    plan = wanted(blobs, budget="none")
    monkeypatch.setattr("holdfast.run.audit.audit.strikes", ends)
    with pytest.raises(type(problem)):
        audit(plan)
    assert json.loads((plan.folder / PROGRESS).read_text())["state"] == state


def test_a_short_time_takes_places_before_images(blobs):
    """Four attacked images are covered too, on a coarser grid; below a coarse one images are given up."""
    plan = wanted(blobs, budget="60s")
    for affordable, expected in ((4 * 91, (4, 91)), (2 * 64 + 30, (2, 79)), (45 * 400, (45, 400))):
        clock = Clock(plan.wish, blobs / f"{affordable}.json")
        made = Made(plan, seconds_an_image=clock.seconds("squares") / (affordable + 0.5))
        made.outcome = SimpleNamespace(attempts=[None] * 4)
        assert (_covered(made, clock, 50), made.places) == expected

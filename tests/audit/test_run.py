"""An audit from end to end on the smallest detector there is."""

import dataclasses
import itertools
import json
import math
import shlex
from types import SimpleNamespace

import pytest

from helpers import models as making
from holdfast.attack import run as measure
from holdfast.attack.result import Attempt
from holdfast.audit import attack_levels, attack_part, recheck, squares
from holdfast.audit import matrix as matrix_module
from holdfast.audit.cli import audit_plan
from holdfast.audit.options import AuditOptions
from holdfast.audit.plan import CONTINUE, SCHEDULE, Clock
from holdfast.audit.result import NO_THREAT, PROGRESS, TRAINED, open_audit, save
from holdfast.audit.run import _square_count, audit
from holdfast.audit.state import AuditState, audit_of
from holdfast.core.errors import BudgetSpent, DataError
from holdfast.evaluate import run as evaluate
from holdfast.evaluate.score import Settings
from holdfast.metrics.rules import RULES
from holdfast.noise.vision import sweep

pytest.importorskip("torch")
IMAGES = 6


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audit")
    making.detector(folder)
    making.blob_coco(folder / "data", IMAGES)
    how = AuditOptions(
        model=str(folder / "blobs.onnx"), data=str(folder / "data"), budget="none", attack_images=3,
        square_images=3, places=60, pixels=(5, 200), steps=15, size="30%", jobs=1, runs=folder / "runs",
    )  # fmt: skip
    return audit(dataclasses.replace(audit_plan(how), replicates=50))


def test_every_part_ran_or_says_why_not(made):
    parts = {p.name: p for p in made.result.parts}
    assert list(parts) == ["evaluate", "noise", "attack", "squares", "matrix", "recheck", "combine"]
    assert parts["evaluate"].images == parts["noise"].images == IMAGES
    assert parts["attack"].images == 3
    assert parts["attack"].skipped.startswith("3 of 6 images")
    assert not parts["evaluate"].skipped


def test_it_is_kept_and_done(made):
    assert open_audit(made.plan.folder) == made.result
    assert json.loads((made.plan.folder / PROGRESS).read_text())["state"] == "done"
    assert (made.plan.plan.runs / made.result.runs["evaluation"] / "run.json").is_file()
    assert (made.plan.plan.runs / made.result.runs["noise"] / "noise.json").is_file()


def test_a_target_is_saved_with_the_options_that_the_product_makes(made, tmp_path):
    assert made.result.target is None
    options = dataclasses.replace(made.plan.options, target="tensorrt")
    on_tensorrt = dataclasses.replace(made, plan=dataclasses.replace(made.plan, options=options))
    found = audit_of(on_tensorrt, 1.0)
    assert (found.target.title, found.target.options) == ("TensorRT", ("precision=int8-entropy",))
    assert found.target.stages.startswith("TensorRT reads and resizes no images")
    assert [noise.label for noise in found.target_noises] == ["precision=int8-entropy"]
    save(found, tmp_path / "audit")
    assert open_audit(tmp_path / "audit").target == found.target
    assert "--target tensorrt" in on_tensorrt.repeat_line("noise")


def test_a_loss_has_the_baseline_of_its_own_images(made):
    measured = [n for n in made.result.all_noises if n.outcome == "measured"]
    assert all(0 <= n.value <= 1 and 0 <= n.before <= 1 + 1e-9 for n in measured)
    whole = [n.before for n in measured if n.images == IMAGES]  # others: calibrated on one of them
    assert whole == pytest.approx([made.result.clean.value] * len(whole))
    assert 0 < len(whole) < len(measured)


def test_the_numbers_agree_with_one_another(made):
    found = made.result
    assert found.clean.metric == "map50"
    assert found.clean.value == made.evaluation.result["metrics"]["mAP"]
    assert found.clean.low <= found.clean.value <= found.clean.high
    small, large = found.attacks
    assert small.pixels == 5
    assert small.broken <= large.broken
    assert small.after >= large.after
    assert large.broken == large.aimed > 0
    for layer in found.bounds:
        assert 0 <= layer.certified <= layer.attacked <= layer.images
        assert not any(s.certified and s.broken for s in layer.per_image)
    layers = {layer.threat: layer for layer in found.bounds}
    assert layers["200px"].images - layers["200px"].attacked == large.broken
    assert {p.answer for p in found.proofs} <= {"holds", "violated", "unknown"}


def test_the_matrix_begins_with_what_was_measured_alone(made):
    matrix = made.result.matrix
    assert (matrix.threats[0], matrix.deployments[0]) == (NO_THREAT, TRAINED)
    assert {"square", "5px", "200px"} <= set(matrix.threats)
    patch = made.result.patch
    cells = [cell for cell in matrix.cells if cell.threat == patch.threat == "patch"]
    assert [cell.deployment for cell in cells] == list(matrix.deployments)
    assert cells[0].broken_in_training == patch.broken
    assert matrix.at("200px", TRAINED).value <= matrix.at(NO_THREAT, TRAINED).value
    for meeting in matrix.cells:
        assert meeting.still_broken <= meeting.broken_in_training
        assert meeting.value is not None or meeting.note


def test_the_patch_is_optimised_for_deployments_of_the_matrix(made):
    patch = made.result.patch
    assert (patch.shape, patch.size, patch.images) == ("square", "30%", 3)
    assert set(patch.sides) == {8}  # 30% of 16 × 16 pixels
    assert patch.deployments
    assert set(patch.deployments) < set(made.result.matrix.deployments)
    assert patch.broken > 0
    kinds = [row.transform for row in patch.survival]
    assert kinds == ["placement", "shift", "scale", "rotation", "light", "jpeg", "all together"]
    assert all(0 <= row.hidden <= row.views <= 8 * patch.broken for row in patch.survival)
    assert {row.images for row in patch.survival} == {patch.broken}
    options = shlex.split(patch.command)
    assert options[:2] == ["holdfast", "attack"]
    given = [options[i + 1] for i, word in enumerate(options) if word == "--deployment"]
    assert tuple(given) == patch.deployments


def test_every_number_has_a_command_that_can_be_read(made):
    found = made.result
    commands = [found.clean.command, *(c.command for c in found.noises), *(s.command for s in found.attacks)]
    commands += [p.command for p in found.proofs]
    for command in commands:
        words = shlex.split(command)
        assert words[0] == "holdfast"
        assert words[1] in ("evaluate", "noise", "audit")


def test_again_it_is_the_same(made):
    again = audit(made.plan)
    same = ("clean", "noises", "combined", "patch", "attacks", "bounds", "matrix", "rechecks")
    for name in same:
        assert getattr(again.result, name) == getattr(made.result, name), name


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
    how = AuditOptions(
        model=str(tmp_path / "blobs.onnx"), data=str(tmp_path / "data"), budget="none", only=("evaluate",),
        jobs=1, classes="common", runs=tmp_path / "runs",
    )  # fmt: skip
    made = audit(audit_plan(how))
    assert made.result.clean.value == made.evaluation.result["metrics"]["mAP"] > 0.9
    assert made.result.clean.low is not None


def test_a_quantised_model_is_audited_without_gradients(tmp_path):
    path = making.quantised_detector(tmp_path)
    making.blob_coco(tmp_path / "data", 3)
    how = AuditOptions(
        model=str(path), data=str(tmp_path / "data"), budget="none", places=20, jobs=1,
        only=("noise", "attack", "squares"), runs=tmp_path / "runs",
    )  # fmt: skip
    result = audit(dataclasses.replace(audit_plan(how), replicates=20)).result
    parts = {p.name: p for p in result.parts}
    reason = "the model is already quantised (2 QuantizeLinear nodes; 1 of 1 layers), so it has no gradients"
    assert reason in parts["attack"].skipped
    assert parts["noise"].images == parts["squares"].images == 3
    precisions = [one for one in result.noises if one.family == "precision"]
    assert {(one.outcome, one.note) for one in precisions} == {("no effect", reason.partition(",")[0])}


def wanted(folder, data="data", **choices):
    """A plan of the attack alone within 5 and 20 pixels, unless something else is asked for."""
    how = AuditOptions(
        model=str(folder / "blobs.onnx"),
        data=str(folder / data),
        **{"only": ("attack",), "pixels": (5, 20), "steps": 2, "jobs": 1, "runs": folder / "runs"} | choices,
    )
    return dataclasses.replace(audit_plan(how), replicates=20)


@pytest.fixture
def blobs(tmp_path):
    making.detector(tmp_path)
    making.blob_coco(tmp_path / "data", 3)
    return tmp_path


@pytest.mark.slow
def test_more_images_may_be_attacked_than_met_the_noises(made):
    options = dataclasses.replace(made.plan.options, noise_images=2, only=("matrix",), steps=2)
    found = audit(dataclasses.replace(made.plan, options=options)).result
    assert {m.images for m in found.matrix.cells} == {2}
    assert found.matrix.at("200px", TRAINED).value is not None
    assert found.attacks[0].images == 3


def test_a_short_time_leaves_the_matrix_fewer_images(made):
    """As an earlier begin had planned it; its command gives the same fields again."""
    options = dataclasses.replace(made.plan.options, budget="1h", only=("matrix",))
    plan = dataclasses.replace(made.plan, options=options)
    plan.folder.mkdir(parents=True)
    (plan.folder / SCHEDULE).write_text('{"matrix images": 2}')
    found = audit(plan).result
    assert {m.images for m in found.matrix.cells} == {2}
    (part,) = (p for p in found.parts if p.name == "matrix")
    assert (part.images, "1 of 3 images (time budget reached)" in part.skipped) == (2, True)
    words = shlex.split(found.matrix.cells[-1].command)
    given = {words[i]: int(words[i + 1]) for i, word in enumerate(words) if word.endswith("-images")}
    assert given == {"--noise-images": IMAGES, "--attack-images": 2, "--square-images": 2}
    fewer = dataclasses.replace(options, budget="none", noise_images=IMAGES, attack_images=2, square_images=2)
    again = audit(dataclasses.replace(plan, options=fewer)).result
    plain = [dataclasses.replace(m, command="") for m in again.matrix.cells]
    assert plain == [dataclasses.replace(m, command="") for m in found.matrix.cells]


def ended_after(monkeypatch, module, counts):
    """The work of a module ends after so many shards, each time it has an end; 0: before the first."""
    real, left = module.run, list(counts)

    def run(work, items, store, *, until=math.inf, **more):
        if until == math.inf or not left:
            return real(work, items, store, **more)
        count = left.pop(0)
        if not count:
            raise BudgetSpent("late")
        return real(work, items[: work.batch * count], store, **more)

    monkeypatch.setattr(module, "run", run)


def same_again(plan, found):
    """Run it again as if it had been killed at its very end."""
    planned = json.loads((plan.folder / SCHEDULE).read_text())
    planned.pop(CONTINUE, None)
    (plan.folder / SCHEDULE).write_text(json.dumps(planned))
    again = audit(plan).result
    for name in ("clean", "noises", "combined", "patch", "attacks", "proofs", "matrix", "rechecks"):
        assert getattr(again, name) == getattr(found, name), name
    return again


def test_noises_stop_at_their_share_with_the_images_finished_by_then(blobs, monkeypatch):
    making.blob_coco(blobs / "more", IMAGES)
    plan = wanted(blobs, "more", budget="1h", only=("noise",))
    plan.folder.mkdir(parents=True)
    (plan.folder / SCHEDULE).write_text('{"shard": 1}')
    ended_after(monkeypatch, sweep, [4])
    made = audit(plan)
    part = made.result.parts[-1]
    assert (part.name, part.images, part.skipped) == ("noise", 4, "2 of 6 images (time budget reached)")
    assert {c.images for c in made.result.noises if c.outcome == "measured"} <= {3, 4}  # 3: one calibrates
    assert made.result.clean.images == IMAGES
    same_again(plan, made.result)


def test_noises_that_finish_one_image_in_time_are_those_of_one_image(blobs, monkeypatch):
    plan = wanted(blobs, budget="1h", only=("noise", "squares"), places=20)
    plan.folder.mkdir(parents=True)
    (plan.folder / SCHEDULE).write_text('{"shard": 1}')
    ended_after(monkeypatch, sweep, [1])
    found = audit(plan).result
    assert found.parts[1].images == 1
    assert "--images 1" in found.noises[0].command


def test_an_attack_stops_at_its_share_with_the_images_and_budgets_finished_by_then(blobs, monkeypatch):
    plan = wanted(blobs, budget="1h", pixels=(5, 20, 50))
    ended_after(monkeypatch, measure, [2, 2, 1])  # the patch, then two budgets of pixels
    found = audit(plan).result
    assert [(s.threat, s.images) for s in found.all_attacks] == [("patch", 2), ("5px", 2)]
    left = "1 of 3 images (time budget reached); pixel budgets 20, 50 (time budget reached)"
    assert found.parts[-1].skipped == left
    again = same_again(plan, found).parts[-1]
    assert (again.images, again.skipped) == (2, left)


def test_the_same_command_continues_an_audit_that_reached_its_budget(blobs, monkeypatch):
    plan = wanted(blobs, budget="1h", only=("attack", "squares"), pixels=(5, 20), places=20)
    with monkeypatch.context() as late:
        ended_after(late, measure, [2, 2, 1])
        ended_after(late, squares, [1])
        first = audit(plan).result
    assert {part.name: part.images for part in first.parts}["attack"] == 2
    assert [(s.threat, s.images) for s in first.attacks] == [("5px", 2)]
    second = audit(plan).result
    assert [(s.threat, s.images) for s in second.attacks] == [("5px", 3), ("20px", 3)]
    assert second.patch.images == 3
    assert len(second.proofs) == 3
    assert not any("time budget" in part.skipped for part in second.parts)
    assert any("continued: the previous run" in note for note in second.notes)
    third = audit(plan).result  # nothing is left to continue
    assert third.attacks == second.attacks
    assert not any("continued" in note for note in third.notes)


def test_a_part_that_finishes_no_image_in_time_is_skipped_and_stays_so(blobs, monkeypatch):
    plan = wanted(blobs, budget="1h", only=("attack", "squares", "combine"), places=20)
    for module in (sweep, measure, squares):
        ended_after(monkeypatch, module, [0, 0, 0, 0])
    found = audit(plan).result
    parts = {p.name: p for p in found.parts}
    assert not any(parts[name].images for name in ("noise", "attack", "squares", "combine"))
    assert all("time budget reached" in parts[name].skipped for name in ("noise", "attack", "squares"))
    assert (found.noises, found.patch, found.attacks, found.proofs) == ((), None, (), ())
    same_again(plan, found)


def test_squares_and_rechecks_keep_what_is_finished(blobs, monkeypatch):
    plan = wanted(blobs, budget="1h", only=("recheck",), places=20)
    ended_after(monkeypatch, squares, [2])
    ended_after(monkeypatch, recheck, [3])
    found = audit(plan).result
    parts = {p.name: p for p in found.parts}
    assert (len(found.proofs), len(found.rechecks)) == (2, 3)
    assert "1 of 3 images (time budget reached)" in parts["squares"].skipped
    assert "rechecks (time budget reached)" in parts["recheck"].skipped
    same_again(plan, found)


def test_a_matrix_that_does_not_end_in_time_is_that_of_fewer_images(made, monkeypatch):
    options = dataclasses.replace(made.plan.options, budget="3601", only=("matrix",))
    plan = dataclasses.replace(made.plan, options=options)
    real, asked = matrix_module.matrix, []

    def matrix(prepared, chosen, threats, watch, names, replicates):
        asked.append(len(names))
        if len(names) == 3 and prepared.noise.plan.until < math.inf:
            raise BudgetSpent("late")
        return real(prepared, chosen, threats, watch, names, replicates)

    monkeypatch.setattr(matrix_module, "matrix", matrix)
    found = audit(plan).result
    assert asked == [1, 3]
    assert {m.images for m in found.matrix.cells} == {1}
    assert "2 of 3 images (time budget reached)" in next(p for p in found.parts if p.name == "matrix").skipped


def test_an_evaluation_that_is_late_still_has_some_images(blobs, monkeypatch):
    making.blob_coco(blobs / "more", IMAGES)
    plan = wanted(blobs, "more", budget="1h", only=("evaluate",))
    ended_after(monkeypatch, evaluate, [0])
    found = audit(plan).result
    assert found.clean.images == 4
    assert "--images 4" in found.clean.command
    assert found.parts[0].skipped == "2 of 6 images (time budget reached)"
    same_again(plan, found)


def test_calibrating_is_skipped_where_it_would_take_the_noises_time(blobs):
    plan = wanted(blobs, budget="1h", only=("noise",))
    plan.folder.mkdir(parents=True)
    (plan.folder / SCHEDULE).write_text('{"calibrate": 0}')
    made = audit(plan)
    assert "precision=int8-percentile (no time to calibrate)" in made.result.parts[-1].skipped
    assert not any(c.label.startswith("precision=int8") for c in made.result.noises)
    assert "--skip precision=int8" in made.suite.command


def test_the_command_of_the_matrix_gives_its_threats_again(made):
    words = shlex.split(made.result.matrix.cells[-1].command)
    only = tuple(words[i + 1] for i, word in enumerate(words) if word == "--only")
    assert {"attack", "squares", "noise"} <= set(dataclasses.replace(made.plan.options, only=only).parts)


def test_a_first_image_that_cannot_be_read_does_not_end_an_audit_within_a_time(blobs):
    (blobs / "data" / "images" / "000.jpg").write_bytes(b"no image")
    found = audit(wanted(blobs, budget="10m")).result
    assert [s.aimed for s in found.attacks] == [2, 2]
    assert len(found.failed) == 1


def test_images_none_of_which_can_be_attacked_are_told_and_the_rest_is_measured(blobs):
    (blobs / "data" / "images" / "000.jpg").write_bytes(b"no image")
    found = audit(wanted(blobs, budget="none", attack_images=1)).result
    assert found.attacks == ()
    assert found.clean.images == 2
    assert "none of the 1 images could be attacked" in found.parts[-1].skipped


def test_numbers_that_are_lost_are_planned_again(blobs):
    plan = wanted(blobs, budget="10m")
    first = audit(plan).result
    (plan.folder / "plan.json").write_bytes(b"")
    assert audit(plan).result.attacks == first.attacks


def test_images_of_other_names_in_the_same_place_are_attacked_anew(blobs):
    plan = wanted(blobs, budget="none")
    audit(plan)
    file = blobs / "data" / "annotations.json"
    (blobs / "data" / "images" / "000.jpg").rename(blobs / "data" / "images" / "009.jpg")
    file.write_text(file.read_text().replace("000.jpg", "009.jpg"))
    other = wanted(blobs, budget="none")
    assert other.folder == plan.folder
    assert audit(other).result.attacks[0].images == 3


def test_a_strike_is_measured_by_the_metric_of_the_audit(blobs, monkeypatch):
    """By COCO's rule that is AP, not AP50; and its command says so."""
    made = audit(wanted(blobs, budget="none", rule="coco"))
    one = made.levels[0]
    records = [a.record(a.model, after=False) for a in one.attempts]
    loose = {r.name: dataclasses.replace(r, truth=_grown(r.truth)) for r in records}
    assert made.result.clean.metric == "map"
    monkeypatch.setattr(Attempt, "record", lambda a, _p, _after: loose[a.name])
    again = attack_levels._level(made.plan, made.outcome, one.level.pixels, one.attempts, "")
    assert 0.0 < again.before < 1.0  # AP50 would be 1
    assert "--rule coco" in one.level.command


def _grown(truth):
    """The boxes with a fifth more on one side: found at IoU 0.5, not at 0.95."""
    boxes = truth.xyxy.copy()
    boxes[:, 2] += 0.2 * (boxes[:, 2] - boxes[:, 0])
    return dataclasses.replace(truth, xyxy=boxes)


def test_an_image_that_cannot_be_attacked_is_in_no_budget(blobs, monkeypatch):
    real = attack_levels.attack

    def failing(plan, step):
        found = real(plan, step)
        if plan.method.shaped or plan.limits.pixels > 5:
            return found
        return dataclasses.replace(found, attempts=found.attempts[1:])

    monkeypatch.setattr(attack_levels, "attack", failing)
    small, large = audit(wanted(blobs, budget="none", pixels=(5, 200), steps=15)).result.attacks
    assert (small.images, small.broken) == (2, 0)
    assert (large.images, large.broken) == (2, 2)


def test_without_anything_true_there_is_nothing_to_measure(blobs):
    file = blobs / "data" / "annotations.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "annotations": []}))
    for rule in ("voc", "coco"):
        with pytest.raises(DataError, match="use a dataset with ground truth"):
            audit(wanted(blobs, budget="none", rule=rule))


def test_commands_name_what_changes_a_number(blobs):
    plan = wanted(
        blobs, budget="none", only=("evaluate",), images=2, rule="coco", calibration=str(blobs / "data"),
        spec=(blobs / "a b.vnnlib",), seed=3,
    )  # fmt: skip
    words = shlex.split(AuditState(plan).full_line("specs"))
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
    monkeypatch.setattr(attack_part, "attack_levels", ends)
    with pytest.raises(type(problem)):
        audit(plan)
    assert json.loads((plan.folder / PROGRESS).read_text())["state"] == state


def test_a_short_time_takes_places_before_images(blobs):
    """Four attacked images are covered too, on a coarser grid; below a coarse one images are given up."""
    plan = wanted(blobs, budget="60s")
    for affordable, expected in ((4 * 91, (4, 91)), (2 * 64 + 30, (2, 79)), (45 * 400, (45, 400))):
        clock = Clock(plan.options, blobs / f"{affordable}.json")
        made = AuditState(plan, seconds_an_image=clock.seconds("squares") / (affordable + 0.5))
        made.outcome = SimpleNamespace(attempts=[None] * 4)
        assert (_square_count(made, clock, 50), made.places) == expected

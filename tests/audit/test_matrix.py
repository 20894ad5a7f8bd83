"""The matrix: attacks on the training pipeline, replayed under deployments."""

import dataclasses
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import models as making
from holdfast.attack.judge import found_boxes, open_judge
from holdfast.attack.plan import AttackPlan
from holdfast.attack.run import attack
from holdfast.attack.types import Limits, Method, Rule
from holdfast.audit.matrix import above_threshold, found_in, is_broken, matrix
from holdfast.audit.replay import PatchThreat, replay
from holdfast.audit.result import NO_THREAT, TRAINED, open_audit, save
from holdfast.audit.threats import patched_dataset
from holdfast.core.errors import DataError, ImageError, InputError
from holdfast.core.fingerprint import generator
from holdfast.core.patch import Patch, Position, apply
from holdfast.core.pipeline import pipeline_of
from holdfast.core.registry import lookup, stage
from holdfast.core.types import Size
from holdfast.data.open import open_dataset
from holdfast.engine.records import ClassificationRecord, DetectionRecord
from holdfast.evaluate.difference import ScoredRun, bootstrap_values
from holdfast.evaluate.run import EvaluationPlan, evaluate
from holdfast.evaluate.score import Settings, score_records
from holdfast.graph.load import load_model
from holdfast.metrics.intervals import mean_values, paired
from holdfast.metrics.rules import RULES
from holdfast.noise.suite import no_progress
from holdfast.noise.vision.choose import ImageCandidate, build_variant
from holdfast.noise.vision.run import NoisePlan, prepare_context
from holdfast.noise.vision.sweep import Variant
from holdfast.stages.families import NoiseOption, option

VOC = Settings(RULES["voc"], 0.5, 0.25)
WIDE = making.DETECT_CARD.replace("score = 0.1", "score = 0.1\nmax_detections = 300")


class Counted:
    """Progress that is counted: what was run, how much of it was found finished."""

    def __init__(self, stop=None):
        self.said, self.done, self.found, self.stop = [], 0, 0, stop

    def __call__(self, what, total):
        self.said.append((what, total))
        if self.stop is not None and len(self.said) == self.stop:
            raise KeyboardInterrupt
        return self

    def __enter__(self):
        return self.step

    def __exit__(self, *problem):
        return None

    def step(self, done, found):
        self.done, self.found = self.done + done, self.found + found


def black(entry, part=1.0):
    """A black square over a part of the first true box."""
    x1, y1, x2, _ = entry.load().truth.xyxy[0].astype(int)
    side = max(1, round(part * (x2 - x1)))
    return Patch(np.zeros((side, side, 3), np.uint8), np.ones((side, side), bool), Position(int(x1), int(y1)))


@pytest.fixture
def plan(tmp_path):
    """A tiny detector on eight scenes."""
    model = load_model(str(making.detector(tmp_path, card=WIDE)))
    data = open_dataset(making.blob_coco(tmp_path / "blobs", 8))
    return EvaluationPlan(model, data, settings=VOC, runs=tmp_path / "runs", jobs=1)


@pytest.fixture
def ground(plan):
    return prepare_context(NoisePlan(plan))


def under(ground, *labels):
    return [build_variant(ground.context, [option(label)]) for label in labels]


def struck_by(plan, count, part=1.0):
    return {e.name: black(e, part) for e in plan.dataset.entries[:count]}


def evaluated(plan, **stages):
    """The mAP of a plain evaluation whose weak detections are not counted."""
    noised = dataclasses.replace(plan, pipeline=pipeline_of(plan.model.card).replace(**stages))
    made = evaluate(noised)
    strong = [above_threshold(record, Rule()) for record in made.records]
    return score_records(strong, "detect", made.about.classes, plan.settings)["metrics"]["mAP"]


def test_without_a_threat_every_field_is_the_plain_evaluation(plan, ground):
    made = matrix(ground, under(ground, "decode=fast-idct", "colour=nv12"), [])
    assert (made.threats, made.deployments) == (
        (NO_THREAT,),
        (TRAINED, "decode=fast-idct", "colour=nv12"),
    )
    values = [m.value for m in made.cells]
    expected = [evaluated(plan), evaluated(plan, decode="fast-idct"), evaluated(plan, colour="nv12")]
    assert values == pytest.approx(expected, abs=1e-12)
    assert all(
        (m.images, m.broken_in_training, m.still_broken, m.extra_points_lost) == (8, 0, 0, None)
        for m in made.cells
    )


def test_a_threat_is_the_evaluation_of_the_threatened_pictures(plan, ground):
    patches = struck_by(plan, 5)
    made = matrix(ground, under(ground, "decode=fast-idct", "colour=nv12"), [PatchThreat("square", patches)])
    for name, laid_by, stages in (
        (TRAINED, "pillow", {}),
        ("decode=fast-idct", "fast-idct", {"decode": "fast-idct"}),
        ("colour=nv12", "pillow", {"colour": "nv12"}),
    ):
        laid = dataclasses.replace(plan, dataset=patched_dataset(plan.dataset, patches, laid_by))
        assert made.at("square", name).value == pytest.approx(evaluated(laid, **stages), abs=1e-12)
        assert made.at("square", name).broken_in_training == 5
    assert made.at("square", TRAINED).value < made.at(NO_THREAT, TRAINED).value
    assert made.at("square", TRAINED).still_broken == 5


def test_as_trained_a_threat_is_what_the_attack_itself_saw(plan, ground, tmp_path):
    rule = Rule(nms_iou=0.5)  # as the card: a weak box never suppresses a strong one
    method = Method(black_box=True, rule=rule)
    found = attack(AttackPlan(plan, tmp_path / "attack", method, Limits(pixels=300, steps=60), features=""))
    patches = {a.name: a.patch for a in found.attempts if a.pixels}
    threat = PatchThreat("300px", patches)
    made = matrix(ground, [], [threat])
    names = [e.name for e in plan.dataset.entries]
    clean = Variant(TRAINED, ground.context.clean)
    records = replay(ground, [clean], [threat], names, no_progress)[0]["300px", TRAINED]
    for attempt in found.attempts:
        seen = records[attempt.name].detections
        strong = seen.take(seen.scores >= rule.score)
        for column in ("boxes", "scores", "classes"):
            np.testing.assert_array_equal(getattr(strong, column), getattr(attempt.model.after, column))
    assert made.at("300px", TRAINED).broken_in_training == sum(a.success for a in found.attempts) > 0


def test_a_decoder_changes_the_picture_and_not_the_patch(plan, ground):
    @stage("decode", "negative")
    def negative(data):
        return 255 - lookup("decode", "pillow")(data)

    patches = {
        e.name: dataclasses.replace(black(e), pixels=black(e).pixels + 250) for e in plan.dataset.entries
    }
    names = [e.name for e in plan.dataset.entries]
    pipeline = ground.context.clean.replace(decode="negative")
    variant = Variant("decode=negative", pipeline)
    records, _ = replay(ground, [variant], [PatchThreat("white", patches)], names, no_progress)
    judge = open_judge(plan.model, pipeline, Rule(score=0.1, nms_iou=0.5))
    for entry in plan.dataset.entries:
        picture = apply(negative(entry.load().data), patches[entry.name])
        expected = judge(picture)
        seen = records["white", "decode=negative"][entry.name].detections
        np.testing.assert_array_equal(seen.scores, expected.scores)
        np.testing.assert_array_equal(seen.boxes, expected.boxes)


def test_where_the_deployment_is_bit_for_bit_the_same_nothing_is_extra(plan, ground):
    # The scenes have the network's own size: no resize changes a pixel.
    threats = [
        PatchThreat("all", struck_by(plan, 4)),
        PatchThreat("half", struck_by(plan, 8, 0.5), loses="any"),
    ]
    made = matrix(ground, under(ground, "resize=opencv-nearest"), threats, replicates=200)
    for threat in ("all", "half"):
        met, alone = made.at(threat, "resize=opencv-nearest"), made.at(threat, TRAINED)
        assert (met.extra_points_lost, met.low, met.high) == (0.0, 0.0, 0.0)
        assert (met.value, met.broken_in_training, met.still_broken) == (
            alone.value,
            alone.broken_in_training,
            alone.broken_in_training,
        )
        assert met.effect == "adds up"


def test_extra_is_what_both_cost_beyond_what_each_costs(plan, ground):
    @stage("colour", "dimmed")
    def dimmed(image):
        return (image * 0.62).astype(np.uint8)

    # Two are hidden whole; of four a quarter of the cell, which only the dimmed picture cannot bear.
    threats = [PatchThreat("some", struck_by(plan, 6, 0.5) | struck_by(plan, 2))]
    made = matrix(ground, under(ground, "colour=dimmed"), threats, replicates=300)
    values = [[made.at(t, d).value for d in (TRAINED, "colour=dimmed")] for t in (NO_THREAT, "some")]
    assert values == pytest.approx(np.array([[1.0, 1.0], [0.75, 0.25]]))
    met = made.at("some", "colour=dimmed")
    assert met.extra_points_lost == pytest.approx(50.0)
    assert 0 < met.low < met.extra_points_lost < met.high
    assert met.effect == "magnified"
    assert (met.broken_in_training, met.still_broken) == (2, 2)


def test_patches_that_are_the_same_are_run_once(plan, ground):
    small, large = struck_by(plan, 3), struck_by(plan, 5)
    threats = [PatchThreat("100px", small), PatchThreat("300px", large), PatchThreat("none of it", {})]
    watch = Counted()
    made = matrix(ground, under(ground, "colour=nv12"), threats, watch)
    assert [total for _, total in watch.said] == [16, 6, 10]
    assert watch.found == 6
    assert [made.at(t.name, TRAINED).broken_in_training for t in threats] == [3, 5, 0]
    alone = matrix(ground, under(ground, "colour=nv12"), threats[:1])
    assert made.at("100px", "colour=nv12") == alone.at("100px", "colour=nv12")
    assert made.at("none of it", "colour=nv12").value == made.at(NO_THREAT, "colour=nv12").value


def test_only_the_named_images_count(plan, ground):
    names = [e.name for e in plan.dataset.entries[:3]]
    made = matrix(ground, [], [PatchThreat("square", struck_by(plan, 5))], names=names)
    assert {m.images for m in made.cells} == {3}
    assert made.at("square", TRAINED).broken_in_training == 3
    few = dataclasses.replace(plan, dataset=plan.dataset.first(3), runs=plan.runs / "few")
    assert made.at(NO_THREAT, TRAINED).value == pytest.approx(evaluated(few), abs=1e-12)
    with pytest.raises(InputError, match="elsewhere: expected the name of an image of blobs"):
        matrix(ground, [], [], names=["elsewhere"])
    with pytest.raises(InputError, match=r"'no\.jpg', which is not in blobs"):
        matrix(ground, [], [PatchThreat("square", {"no.jpg": black(plan.dataset.entries[0])})])


def test_images_of_the_calibration_are_in_no_field(plan, ground):
    int8 = under(ground, "precision=int8-minmax")
    assert int8[0].variant is not None
    made = matrix(ground, int8, [PatchThreat("square", struck_by(plan, 8))])
    held = len(ground.context.reserved.without)
    assert held == 2
    assert {m.images for m in made.cells} == {8 - held}
    assert made.at("square", TRAINED).broken_in_training == 8 - held
    said = f"{held} of 8 images are skipped in all cells: precision=int8-minmax was calibrated on them"
    assert said in made.notes
    only = matrix(ground, int8, [], names=sorted(ground.context.reserved.without))
    assert only.at(NO_THREAT, "precision=int8-minmax").value is None
    assert "calibrated on all of these images" in only.at(NO_THREAT, "precision=int8-minmax").note
    assert only.at(NO_THREAT, TRAINED).value is not None


def test_what_cannot_be_run_is_a_column_that_says_why(plan, ground):
    broken = ImageCandidate(NoiseOption("ceil", "ceil", lambda p: p), "impossible", "no pool can be turned")
    gone = ImageCandidate(
        NoiseOption("resize", "gone", lambda p: p),
        "measured",
        "",
        Variant("resize=gone", ground.context.clean.replace(resize="gone")),
    )
    made = matrix(ground, [broken, gone], [PatchThreat("square", struck_by(plan, 2))])
    assert made.deployments == (TRAINED, "ceil=ceil", "resize=gone")
    for threat in (NO_THREAT, "square"):
        assert made.at(threat, "ceil=ceil").value is None
        assert made.at(threat, "ceil=ceil").note == "no pool can be turned"
        assert "unknown resize 'gone'" in made.at(threat, "resize=gone").note
        assert made.at(threat, TRAINED).value is not None


@pytest.mark.parametrize(("spoiled", "kept"), [(2, 6), (6, 8)])
def test_images_that_fail_are_left_out_of_all_fields_and_a_deployment_that_mostly_fails_is_none(
    plan, ground, spoiled, kept
):
    bad = {lookup("decode", "pillow")(e.load().data).tobytes() for e in plan.dataset.entries[:spoiled]}

    @stage("colour", "picky")
    def picky(image):
        if image.tobytes() in bad:
            raise ImageError("not this one")
        return image

    made = matrix(ground, under(ground, "colour=picky"), [PatchThreat("square", struck_by(plan, 1))])
    assert {m.images for m in made.cells} == {kept}
    met = made.at("square", "colour=picky")
    if spoiled == 2:
        assert met.value is not None
        assert (
            "2 of 8 images are skipped in all cells: they fail in at least one cell; first: not this one"
            in made.notes
        )
    else:
        assert met.value is None
        assert "6 of 8 images fail: not this one" in met.note


def test_if_nothing_can_be_run_as_trained_it_is_told(plan):
    def never(data):
        raise ImageError("cannot be read")

    bad = dataclasses.replace(plan, pipeline=pipeline_of(plan.model.card).replace(decode=never))
    with pytest.raises(DataError, match="none of the 8 images could be run; first: cannot be read"):
        matrix(prepare_context(NoisePlan(bad)), [], [])


def test_names_are_told_apart(plan, ground):
    twice = under(ground, "colour=nv12", "colour=nv12")
    with pytest.raises(InputError, match="'colour=nv12' twice"):
        matrix(ground, twice, [])
    with pytest.raises(InputError, match="'none' twice"):
        matrix(ground, [], [PatchThreat(NO_THREAT, {})])


def test_finished_work_is_never_redone_and_a_broken_run_goes_on(plan, ground):
    threats = [PatchThreat("all", struck_by(plan, 8)), PatchThreat("half", struck_by(plan, 8, 0.5))]
    wanted = under(ground, "decode=fast-idct", "colour=nv12")
    with pytest.raises(KeyboardInterrupt):
        matrix(ground, wanted, threats, Counted(stop=4))
    second, third = Counted(), Counted()
    made = matrix(ground, wanted, threats, second)
    assert len(second.said) == 5  # without a threat; two patches an image, each by two decoders
    assert second.found == 3 * 8 + 3 * 8
    again = matrix(ground, wanted, threats, third)
    assert third.done == third.found == sum(total for _, total in third.said)
    fresh = prepare_context(NoisePlan(dataclasses.replace(plan, runs=plan.runs / "fresh")))
    assert made == again == matrix(fresh, under(fresh, "decode=fast-idct", "colour=nv12"), threats)


def test_without_a_threat_the_suite_s_cells_are_read(plan, ground):
    evaluate(plan)
    watch = Counted()
    matrix(ground, [], [], watch)
    assert (watch.done, watch.found) == (8, 8)


def test_two_processes_find_the_same(tmp_path):
    model = load_model(str(making.detector(tmp_path)))
    data = open_dataset(making.blob_coco(tmp_path / "blobs", 30))
    made = []
    for jobs in (1, 2):
        plan = EvaluationPlan(model, data, settings=VOC, runs=tmp_path / f"runs{jobs}", jobs=jobs)
        ground = prepare_context(NoisePlan(plan))
        threat = PatchThreat("square", struck_by(plan, 30, 0.6))
        made.append(matrix(ground, under(ground, "colour=nv12"), [threat], replicates=50))
    assert made[0] == made[1]


def test_a_decoder_no_other_process_can_have_runs_in_this_one(tmp_path):
    model = load_model(str(making.detector(tmp_path)))
    data = open_dataset(making.blob_coco(tmp_path / "blobs", 26))
    pipeline = pipeline_of(model.card).replace(decode=lambda b: 255 - lookup("decode", "pillow")(b))
    plan = EvaluationPlan(model, data, pipeline, VOC, runs=tmp_path / "runs", jobs=0)
    ground = prepare_context(NoisePlan(plan))
    made = matrix(ground, [], [PatchThreat("square", struck_by(plan, 26))], replicates=20)
    assert made.at("square", TRAINED).value is not None


def test_other_tasks_have_a_row_without_threat(tmp_path):
    model = load_model(str(making.classifier(tmp_path)))
    data = open_dataset(making.image_folder(tmp_path / "data", 12, size=37))
    ground = prepare_context(NoisePlan(EvaluationPlan(model, data, runs=tmp_path / "runs")))
    made = matrix(ground, under(ground, "resize=opencv-nearest"), [])
    assert made.threats == (NO_THREAT,)
    assert made.notes == ()
    assert all(m.value is not None for m in made.cells)
    white = Patch(np.full((37, 37, 3), 255, np.uint8), np.ones((37, 37), bool))
    dark = {e.name: white for e in data.entries if "dark" in e.name}
    broken_in_training = matrix(ground, under(ground, "resize=opencv-nearest"), [PatchThreat("white", dark)])
    assert broken_in_training.at("white", TRAINED).broken_in_training > 0
    assert (
        broken_in_training.at("white", "resize=opencv-nearest").still_broken
        == broken_in_training.at("white", TRAINED).broken_in_training
    )


@pytest.mark.skipif(os.name == "nt", reason="file names of any bytes")
def test_files_may_be_called_anything(tmp_path):
    folder = making.image_folder(tmp_path / "data", 8, size=20)
    for path in sorted(folder.rglob("*.jpg")):
        path.rename(os.fsdecode(os.fsencode(path.parent) + b"/\xff" + os.fsencode(path.name)))
    model, data = load_model(str(making.classifier(tmp_path))), open_dataset(folder)
    assert "\udcff" in data.entries[0].name
    ground = prepare_context(NoisePlan(EvaluationPlan(model, data, runs=tmp_path / "runs")))
    white = Patch(np.full((20, 20, 3), 255, np.uint8), np.ones((20, 20), bool))
    threat = PatchThreat("white", {e.name: white for e in data.entries if "dark" in e.name})
    int8 = under(ground, "precision=int8")
    whole = matrix(ground, int8, [threat], replicates=20)
    assert {m.images for m in whole.cells} == {6}
    names = [e.name for e in data.entries if e.name not in ground.context.reserved.without]
    shown = [name.replace("\udcff", "\\xff") for name in names]
    threat = PatchThreat("white", {n.replace("\udcff", "\\xff"): p for n, p in threat.patches.items()})
    assert matrix(ground, int8, [threat], names=shown, replicates=20).cells == whole.cells
    assert whole.at("white", TRAINED).broken_in_training > 0


@pytest.mark.parametrize("name", ["signs-single", "signs-seg"])
def test_shipped_models_of_other_tasks_do(tmp_path, name):
    model = load_model(name)
    data = open_dataset("signs:3:2", task=model.card.task)
    ground = prepare_context(NoisePlan(EvaluationPlan(model, data, runs=tmp_path / "runs")))
    made = matrix(ground, under(ground, "decode=fast-idct"), [], replicates=20)
    assert [m.value is not None for m in made.cells] == [True, True]


def test_the_shipped_detector_under_a_square(tmp_path):
    plan = EvaluationPlan(
        load_model("signs-yolo"), open_dataset("signs:0:2"), settings=VOC, runs=tmp_path / "runs"
    )
    ground = prepare_context(NoisePlan(plan))
    patches = {e.name: black(e, 1.3) for e in plan.dataset.entries}
    threats = [PatchThreat("square", patches, "a black square", "any")]
    made = matrix(ground, under(ground, "decode=fast-idct", "precision=fp16"), threats, replicates=50)
    assert made.at(NO_THREAT, TRAINED).value == pytest.approx(evaluated(plan), abs=1e-12)
    for deployment in made.deployments:
        met = made.at("square", deployment)
        assert 1 <= met.still_broken <= met.broken_in_training <= met.images == 2
        assert met.value < made.at(NO_THREAT, deployment).value
    judge = open_judge(plan.model, ground.context.clean, Rule(nms_iou=plan.model.card.nms_iou))
    lost = 0
    for entry in plan.dataset.entries:
        sample = entry.load()
        image = judge.machine.decode(sample.data)
        before, after = (
            found_boxes(judge(picture), sample.truth, judge.rule)
            for picture in (image, apply(image, patches[entry.name]))
        )
        lost += bool((before & ~after).any())
    assert made.at("square", TRAINED).broken_in_training == lost
    assert any("score ≥ 0.25 and IoU ≥ 0.5" in note for note in made.notes)
    assert any("the metric ignores detections with a score below 0.25" in note for note in made.notes)


def test_notes_are_kept_with_the_audit(tmp_path, ground):
    from helpers import audit as auditing

    made = matrix(ground, under(ground, "colour=nv12"), [], replicates=20)
    made = dataclasses.replace(made, notes=("one", "two"))
    audit = dataclasses.replace(auditing.sample_audit(), matrix=made)
    save(audit, tmp_path)
    assert open_audit(tmp_path).matrix == made


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(*[st.booleans()] * 4), min_size=1, max_size=12), st.integers(1, 60))
def test_the_interval_of_extra_is_that_of_each_image_s_own(right, replicates):
    """Where the metric is a mean over images, so is what is extra; its draws must be the images' draws."""

    def side(column):
        records = tuple(
            ClassificationRecord(str(n), Size(4, 4), 0, np.array([0 if row[column] else 1]), np.ones(1))
            for n, row in enumerate(right)
        )
        return ScoredRun(records, "classify", ("a", "b"), Settings(RULES["coco"]))

    names = [str(n) for n in range(len(right))]
    clean, threat, other, both = (bootstrap_values(side(c), names, replicates=replicates) for c in range(4))
    c, t, o, b = np.array(right, np.float64).T
    alone = mean_values(t + o - c - b, generator(0, "difference"), replicates=replicates)
    np.testing.assert_allclose(threat + other - clean - both, alone, atol=1e-12)
    one, two = paired(clean + both, threat + other), paired(np.zeros_like(alone), alone)
    assert (one.estimate, one.low, one.high) == pytest.approx((two.estimate, two.low, two.high), abs=1e-12)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=4))
def test_who_loses_all_loses_some(targets):
    clean, now = (np.array([row[k] for row in targets], bool) for k in range(2))
    whole, some = (is_broken(clean, now, loses) for loses in ("all", "any"))
    assert whole <= some <= clean.any()
    assert whole == (clean.any() and not now.any())
    assert not is_broken(clean, clean, "any")


def test_found_means_class_score_and_overlap():
    from holdfast.core.types import Boxes, Detections

    truth = Boxes(
        np.array([[0, 0, 10, 10]] * 4), np.array([0, 1, 2, 0]), np.array([False, False, False, True])
    )
    said = Detections(np.array([[0, 0, 10, 10], [0, 0, 10, 10], [0, 0, 10, 4]]), [0.25, 0.2, 0.9], [0, 1, 2])
    assert found_in(DetectionRecord("a", Size(10, 10), truth, said), Rule()).tolist() == [True, False, False]


def test_a_run_without_an_image_of_that_name_is_told():
    record = ClassificationRecord("a", Size(4, 4), 0, np.array([0]), np.ones(1))
    with pytest.raises(InputError, match="b: no such image in the run"):
        bootstrap_values(ScoredRun((record,), "classify", ("a", "b"), Settings(RULES["coco"])), ["a", "b"])

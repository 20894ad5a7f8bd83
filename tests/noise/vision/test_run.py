"""The suite: what it chooses, what it measures, and what it says where there is nothing to measure."""

import dataclasses

import numpy as np
import pytest
from PIL import Image

from helpers import models as making
from holdfast.core.errors import InputError, UnknownName
from holdfast.core.pipeline import pipeline_of
from holdfast.core.types import Size
from holdfast.data.open import open_dataset
from holdfast.engine.records import ClassificationRecord
from holdfast.evaluate.difference import ScoredRun, difference
from holdfast.evaluate.run import EvaluationPlan, evaluate
from holdfast.evaluate.score import Settings
from holdfast.graph.load import load_model
from holdfast.metrics.rules import rule_named
from holdfast.noise.suite import NoiseSelection
from holdfast.noise.vision.choose import reason_of, reserve, select_options
from holdfast.noise.vision.combine import _step, combine, describe_combination
from holdfast.noise.vision.page import lead
from holdfast.noise.vision.result import (
    ModelNoise,
    NoiseRow,
    NoiseSuite,
    as_plain,
    open_suite,
    save,
    summarize_family,
)
from holdfast.noise.vision.run import (
    NoisePlan,
    estimate,
    measure,
    prepare,
    prepare_context,
    worst_options,
)
from holdfast.noise.vision.tables import families_table, models_table, options_table
from holdfast.stages.families import NoiseOption, option

FEW = NoiseSelection(
    only=("decode=opencv", "decode=fast-idct", "resize=opencv-nearest", "resize=pillow-box", "colour=yuv444")
)


class Watched:
    """Progress that is counted."""

    def __init__(self):
        self.total, self.done, self.reused = [], 0, 0

    def __call__(self, what, total):
        self.total.append(total)
        return self

    def __enter__(self):
        return self.step

    def __exit__(self, *problem):
        return None

    def step(self, done, reused):
        self.done += done
        self.reused += reused


@pytest.fixture
def plan(tmp_path):
    """A tiny classifier on 30 JPEGs of noise-prone sizes."""
    model = load_model(str(making.classifier(tmp_path)))
    data = making.image_folder(tmp_path / "data", 30, size=37)
    return EvaluationPlan(model, open_dataset(data), runs=tmp_path / "runs", jobs=1)


@pytest.fixture
def boxes(tmp_path):
    """A tiny detector on 12 scenes."""
    model = load_model(str(making.detector(tmp_path)))
    data = open_dataset(making.blob_coco(tmp_path / "blobs", 12))
    return EvaluationPlan(model, data, runs=tmp_path / "runs", jobs=1)


def test_every_row_is_the_difference_of_two_plain_evaluations(plan):
    made = measure(prepare(NoisePlan(plan, FEW)), Watched())
    clean = evaluate(plan)
    assert made.clean == clean.result["metrics"]["top1"]
    for row in made.rows:
        stages = {row.family: row.option}
        noised = evaluate(dataclasses.replace(plan, pipeline=pipeline_of(plan.model.card).replace(**stages)))
        told = difference(clean, noised)
        assert row.value == pytest.approx(noised.result["metrics"]["top1"], abs=1e-12)
        assert row.points_lost == pytest.approx(-100 * told.interval.estimate, abs=1e-9)
        assert (row.low, row.high) == pytest.approx(
            (-100 * told.interval.high, -100 * told.interval.low), abs=1e-9
        )
        assert row.changed == told.changed


def test_a_decoder_of_the_same_library_is_identical(plan):
    made = measure(prepare(NoisePlan(plan, FEW)), Watched())
    found = {r.option: r for r in made.rows}
    assert found["opencv"].outcome == "identical"
    assert found["opencv"].same_inputs == 30
    assert "bit-identical" in found["opencv"].note
    assert found["fast-idct"].outcome == "measured"
    assert found["fast-idct"].same_inputs < 30


def test_two_runs_give_the_same_numbers_and_the_second_runs_nothing(plan):
    first, second = Watched(), Watched()
    one = measure(prepare(NoisePlan(plan, FEW)), first)
    two = measure(prepare(NoisePlan(plan, FEW)), second)
    assert one == two
    assert first.done == sum(first.total) == second.done == sum(second.total)
    assert second.reused == second.done


def test_without_jpegs_the_decoders_are_said_to_have_nothing_to_do(tmp_path, plan):
    folder = tmp_path / "png"
    for entry in plan.dataset.entries[:8]:
        where = folder / entry.name
        where.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(0).integers(0, 255, (37, 41, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(where.with_suffix(".png"))
    pngs = dataclasses.replace(plan, dataset=open_dataset(folder))
    made = measure(prepare(NoisePlan(pngs, NoiseSelection(only=("decode",)))), Watched())
    run = [r for r in made.rows if r.outcome != "not installed"]
    assert {r.outcome for r in run} == {"identical"}
    assert all("no image is a JPEG" in r.note for r in run)


def test_a_graph_without_pools_has_no_ceil_mode(boxes):
    made = prepare(NoisePlan(boxes, NoiseSelection(only=("ceil", "upsample"))))
    assert {a.status for a in made.candidates} == {"no effect"}
    assert all(a.note for a in made.candidates)


def test_calibrated_variants_are_not_tested_on_what_they_saw(plan):
    prepared = prepare(NoisePlan(plan, NoiseSelection(only=("precision=int8",))))
    (row,) = measure(prepared, Watched()).rows
    kept = prepared.context.reserved
    assert len(kept.without) == 7
    assert row.images == 30 - 7
    assert "7 of the 30 images" in kept.words
    assert row.outcome == "measured"


def test_calibration_takes_images_that_are_not_tested(plan):
    tested = dataclasses.replace(plan.dataset, entries=plan.dataset.entries[:20])
    kept = reserve(tested, plan.dataset, 100)
    assert not kept.without
    assert {e.name for e in kept.items} == {e.name for e in plan.dataset.entries[20:]}
    both = reserve(plan.dataset, plan.dataset, 100)
    assert len(both.without) == 7, "all of the spare are tested: some must be held back"


def test_combined_takes_the_worst_of_each_family():
    rows = [
        NoiseRow("resize", "a", "measured", points_lost=1.0),
        NoiseRow("resize", "opencv-nearest", "measured", points_lost=2.0),
        NoiseRow("decode", "fast-idct", "measured", points_lost=0.0, changed=3),
        NoiseRow("decode", "ffmpeg", "measured", points_lost=0.0),
        NoiseRow("runtime", "openvino", "measured", points_lost=9.0),
        NoiseRow("colour", "yuv444", "identical", points_lost=0.0),
    ]  # fmt: skip
    known = {row.label: NoiseOption(row.family, row.option, lambda pipeline: pipeline) for row in rows}
    assert [o.label for o in worst_options(rows, known)] == ["resize=opencv-nearest", "decode=fast-idct"]


def test_a_line_counts_options_that_are_alike_once():
    rows = [
        NoiseRow("resize", "a", "measured", points_lost=1.0),
        NoiseRow("resize", "b", "measured", points_lost=3.0),
        NoiseRow("resize", "c", "measured", points_lost=3.0, alike="b"),
        NoiseRow("resize", "d", "identical", points_lost=0.0),
    ]  # fmt: skip
    made = summarize_family(rows, "resize")
    assert (made.mean, made.worst, made.option, made.distinct) == (2.0, 3.0, "b", 2)
    assert summarize_family(rows[3:], "resize").words == "identical"
    assert summarize_family([], "ceil").words == "not run"


MIXED = tuple(
    NoiseRow(
        "precision", name, "measured", points_lost=lost, low=low, high=high, changed=4, images=40,
        hypothetical=name == "int8-mixed",
    )
    for name, lost, low, high in (
        ("int8-minmax", 2.0, 1.0, 3.0), ("int8-entropy", 1.0, -1.0, 2.0), ("int8-mixed", 9.0, 5.0, 11.0)
    )
)  # fmt: skip


def test_a_hypothetical_option_is_in_the_table_but_never_the_headline():
    made = summarize_family(MIXED, "precision")
    assert (made.mean, made.worst, made.option, made.distinct) == (1.5, 2.0, "int8-minmax", 2)
    known = {row.label: NoiseOption(row.family, row.option, lambda pipeline: pipeline) for row in MIXED}
    assert [o.name for o in worst_options(MIXED, known)] == ["int8-minmax"]
    model = ModelNoise("m", "", "detect", "mAP", 0.9, 40, MIXED, None, {})
    assert model.worst is MIXED[0]
    assert NoiseSuite("data", (model,)).worst is MIXED[0]
    table = options_table(model)
    assert [row[-1] for row in table.rows] == ["", "", "hypothetical"]
    assert "Of 3 intervals, about 0.2 would exclude 0 by chance alone (5%); 2 do. " in table.caption
    assert families_table(model).rows[0][-1] == "2 of 2 differ (1 hypothetical)"
    assert models_table(NoiseSuite("data", (model,))).rows[0][2] == "1.50 (2.00)"


def test_a_hypothetical_option_alone_gives_no_headline():
    model = ModelNoise("m", "", "detect", "mAP", 0.9, 40, MIXED[2:], None, {})
    assert model.worst is None
    assert summarize_family(MIXED[2:], "precision").words == "hypothetical"
    assert models_table(NoiseSuite("data", (model,))).rows[0][2] == "hypothetical"
    assert lead(model).endswith("Only hypothetical options change it; no product has them.")


def test_precisions_of_a_detector_by_default_and_those_that_count(boxes):
    prepared = prepare(
        NoisePlan(boxes, NoiseSelection(only=("precision", "boxes=round-ceil")), replicates=20)
    )
    suite = measure(prepared, Watched())
    rows = {row.option: row for row in suite.rows}
    assert list(rows) == [
        "bf16", "fp16", "int8-entropy", "int8-minmax", "int8-mixed", "int8-percentile", "round-ceil"
    ]  # fmt: skip
    assert [name for name, row in rows.items() if row.hypothetical] == ["int8-mixed", "round-ceil"]
    int8 = [row for row in suite.rows if row.group == "INT8" and not row.hypothetical]
    distinct = [row.points_lost for row in int8 if row.outcome == "measured" and not row.alike]
    made = summarize_family([row for row in suite.rows if row.group == "INT8"], "precision")
    assert made.distinct == len(distinct) > 0
    assert made.mean == pytest.approx(sum(distinct) / len(distinct))
    assert made.worst == max(distinct)
    assert suite.combined is None  # of the two families only precision has an option of a product
    stairs = combine(prepared, suite, Watched(), every=True)
    assert not {"precision=int8-mixed", "boxes=round-ceil"} & {step.added for step in stairs.steps}
    assert as_plain(NoiseSuite("data", (suite,)))["models"][0]["rows"][4]["hypothetical"] is True


def test_of_equal_losses_the_one_that_changes_most_is_the_worst_everywhere():
    rows = tuple(
        NoiseRow("resize", name, "measured", points_lost=2.5, changed=changed)
        for name, changed in (("opencv-area", 1), ("opencv-lanczos", 4), ("pillow-box", 3))
    )
    known = {row.label: NoiseOption(row.family, row.option, lambda pipeline: pipeline) for row in rows}
    assert summarize_family(rows, "resize").option == "opencv-lanczos"
    assert [o.name for o in worst_options(rows, known)] == ["opencv-lanczos"]
    whole = ModelNoise("m", "", "classify", "top1", 1.0, 40, rows, None, {})
    assert whole.worst.option == "opencv-lanczos"


def test_a_suite_is_saved_and_opened(plan, tmp_path):
    made = NoiseSuite(
        "data", (measure(prepare(NoisePlan(plan, FEW)), Watched()),), "holdfast noise", "now", 1.0, {}
    )
    assert open_suite(save(made, tmp_path / "kept")) == made
    assert {f["family"] for f in as_plain(made)["models"][0]["families"]} == {"decode", "resize", "colour"}
    with pytest.raises(InputError, match=r"expected the noise\.json"):
        open_suite(tmp_path)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (NoiseSelection(only=("resize=opencv-bilinaer",)), "opencv-bilinear"),
        (NoiseSelection(skip=("rezise",)), "resize"),
        (NoiseSelection(only=("decode=opencv",), skip=("decode",)), "no noise option is left"),
        (NoiseSelection(only=("boxes=offset",)), "applies to the tasks detect"),
    ],
)
def test_wishes_that_cannot_be_met_are_told(plan, wanted, said):
    with pytest.raises((InputError, UnknownName), match=said):
        select_options(prepare_context(NoisePlan(plan)).context, wanted)


def test_on_demand_options_run_only_when_named_or_all_are():
    from holdfast.stages.families import families, options

    quiet = next(o for f in families() for o in options(f) if not o.default)
    assert not NoiseSelection().takes(quiet)
    assert not NoiseSelection(only=(quiet.family,)).takes(quiet)
    assert NoiseSelection(only=(quiet.label,)).takes(quiet)
    assert NoiseSelection(every=True).takes(quiet)
    assert not NoiseSelection(every=True, skip=(quiet.label,)).takes(quiet)


def test_an_option_that_changes_nothing_is_never_named_the_worst():
    still = NoiseRow("decode", "zune", "measured", "", 0.9, 0.0, 0.0, 0.0, 0, 8)
    gain = NoiseRow("decode", "ffmpeg", "measured", "", 0.91, -1.0, -2.0, -0.5, 1, 8)

    def model(*rows):
        return ModelNoise("m", "ab", "detect", "mAP", 0.9, 8, rows, None, {})

    assert model(still).worst is None
    assert model(still, gain).worst is gain
    assert (
        summarize_family((still, gain), "decode").option == ""
    )  # the largest loss is 0, by an option that does nothing
    assert summarize_family((gain,), "decode").option == "ffmpeg"


def test_an_alias_selects_the_option_it_stands_for():
    minmax, mixed = option("precision=int8-minmax"), option("precision=int8-mixed")
    only, skip = NoiseSelection(only=("precision=int8",)), NoiseSelection(skip=("precision=int8",))
    assert only.takes(minmax)
    assert only.singles_out(minmax)
    assert not only.takes(mixed)
    assert not skip.takes(minmax)
    assert skip.takes(mixed)


def test_the_staircase_adds_every_family_and_ends_where_combined_does(boxes):
    wanted = NoiseSelection(only=("decode=fast-idct", "resize=opencv-nearest", "boxes=offset", "colour=nv12"))
    prepared = prepare(NoisePlan(boxes, wanted, replicates=200))
    suite = measure(prepared, Watched())
    stairs = combine(prepared, suite, Watched())
    measured = {r.family for r in suite.rows if r.outcome == "measured"}
    assert {s.added.split("=")[0] for s in stairs.steps} == measured
    assert len(measured) >= 3
    assert stairs.steps[0].effect == "first"
    assert stairs.steps[0].points_lost == pytest.approx(max(r.points_lost for r in suite.rows))
    assert suite.combined is not None
    assert stairs.steps[-1].points_lost == pytest.approx(suite.combined.points_lost)
    sums = np.cumsum([s.extra for s in stairs.steps])
    np.testing.assert_allclose(sums, [s.points_lost for s in stairs.steps], atol=1e-9)
    assert describe_combination(stairs)


def stair(*wrong):
    """A step of four runs of 40 images: how many each of clean, alone, before, after has wrong."""
    names = [f"{i:02}.jpg" for i in range(40)]

    def side(places):
        records = [
            ClassificationRecord(name, Size(9, 9), 0, np.array([1 if i in places else 0]), np.ones(1))
            for i, name in enumerate(names)
        ]
        return ScoredRun(tuple(records), "classify", ("a", "b"), Settings(rule_named("coco"), 0.5, 0.5))

    return tuple(side(set(places)) for places in wrong)


@pytest.mark.parametrize(
    ("alone", "before", "after", "effect"),
    [
        (range(15), range(15), range(15), "overlapping"),  # the same images
        (range(1), range(1, 2), range(25), "amplified"),
        (range(10), range(10, 20), range(20), "additive"),
        (range(3), range(3, 20), range(2, 20), "additive"),  # two less, which may be the choice of images
    ],
)
def test_effects_are_told_by_the_paired_interval_of_both_costs(alone, before, after, effect):
    made = _step(option("resize=pillow-box"), stair((), alone, before, after), 500)
    assert made.effect == effect
    assert made.alone == pytest.approx(100 * len(alone) / 40)
    assert made.extra == pytest.approx(100 * (len(after) - len(before)) / 40)
    assert made.beyond_low - 1e-9 <= made.extra - made.alone <= made.beyond_high + 1e-9
    assert (made.beyond_low <= 0 <= made.beyond_high) == (effect == "additive")


def test_a_step_is_told_on_the_images_all_its_runs_have():
    clean, alone, before, after = stair((), range(30), (), range(20))
    few = dataclasses.replace(alone, records=alone.records[:4])
    made = _step(option("resize=pillow-box"), (clean, few, before, after), 200)
    assert (made.alone, made.extra, made.points_lost) == (100.0, 100.0, 50.0)  # of 4, of 4, of all 40
    (other,) = stair(range(1))
    made = _step(option("resize=pillow-box"), (clean, few, other, after), 200)
    assert made.effect == "additive"  # of four images nothing is said
    one = dataclasses.replace(alone, records=alone.records[:1])
    rest = dataclasses.replace(before, records=before.records[1:])
    with pytest.raises(InputError, match="resize=pillow-box: no image ran in all of"):
        _step(option("resize=pillow-box"), (clean, one, rest, after), 200)


def dimmed(image):
    return image // 2


def half_light(pipeline):
    return pipeline.replace(colour=dimmed)


def test_noises_are_passed_as_functions(plan):
    noise = NoisePlan(plan, FEW, own={"half light": half_light, "nothing": lambda pipeline: pipeline})
    made = measure(prepare(noise), Watched())
    (row,) = made.of("own")
    assert row.option == "half light"
    assert row.changed > 0
    assert "own=half light" in made.combined.option
    alone = measure(
        prepare(NoisePlan(plan, NoiseSelection(only=("own",)), own={"half light": half_light})), Watched()
    )
    assert [r.label for r in alone.rows] == ["own=half light"]


def test_an_estimate_runs_a_sample_and_keeps_nothing(plan):
    found = estimate(NoisePlan(plan, FEW))
    assert (found.items, found.variants, found.missing, found.cells) == (30, 6, 180, 180)
    assert found.seconds > 0
    assert found.bytes > 0
    assert not (plan.runs / "cells").exists() or not list((plan.runs / "cells").rglob("*.json"))


def test_an_estimate_leaves_nothing_behind(plan):
    found = estimate(NoisePlan(plan, NoiseSelection(only=("precision=fp16", "precision=int8"))))
    assert found.variants == 3
    assert not plan.runs.exists()


def test_an_estimate_knows_what_is_finished(plan):
    few = NoisePlan(plan, NoiseSelection(only=("resize=pillow-box",)))
    measure(prepare(few), Watched())
    done = estimate(few)
    assert (done.missing, done.cells, done.seconds, done.bytes, done.sample) == (0, 60, 0.0, 0, 0)
    more = estimate(NoisePlan(plan, NoiseSelection(only=("resize=pillow-box", "resize=pillow-nearest"))))
    assert (more.missing, more.cells) == (30, 90)
    assert more.seconds > 0


def test_options_that_change_no_digit_have_no_effect_and_do_not_count(boxes):
    wanted = NoiseSelection(only=("boxes=offset", "boxes=nms-inclusive"))
    made = measure(prepare(NoisePlan(boxes, wanted, replicates=100)), Watched())
    found = {r.option: r for r in made.rows}
    assert found["nms-inclusive"].outcome == "no effect"
    assert found["nms-inclusive"].note == "all predictions are identical"
    assert found["offset"].outcome == "measured"
    assert summarize_family(made.rows, "boxes").distinct == 1


def test_a_reason_does_not_repeat_where_the_model_lies(plan):
    assert reason_of(f"{plan.model.path}: no\nsuch layer", plan.model) == "no such layer"
    assert reason_of("other: no", plan.model) == "other: no"

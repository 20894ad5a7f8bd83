"""Corruptions in a suite: mPC, rPC, tables, page; the paper's suite."""

import dataclasses

import numpy as np
import pytest

from helpers import models as making
from holdfast.data.open import open_dataset
from holdfast.evaluate.run import EvaluationPlan, evaluate
from holdfast.graph.load import load_model
from holdfast.noise.suite import NoiseSelection
from holdfast.noise.vision import choose
from holdfast.noise.vision.corruptions import summarize
from holdfast.noise.vision.page import page
from holdfast.noise.vision.result import NoiseRow, NoiseSuite, open_suite, save, summarize_family
from holdfast.noise.vision.run import NoisePlan, measure, prepare, worst_options
from holdfast.noise.vision.tables import PAPER_COLUMNS, model_tables, models_table, options_table
from holdfast.stages.families import option

SOME = (
    "corruptions=contrast-1",
    "corruptions=contrast-5",
    "corruptions=gaussian-noise-5",
    "resize=opencv-nearest",
)


@pytest.fixture
def plan(tmp_path):
    model = load_model(str(making.classifier(tmp_path)))
    data = making.image_folder(tmp_path / "data", 24, size=37)
    return EvaluationPlan(model, open_dataset(data), runs=tmp_path / "runs", jobs=1)


def test_mpc_is_the_mean_over_corruptions_of_the_mean_over_severities():
    clean, draws = np.array([0.8, 0.8, 0.8]), {"fog-1": 0.6, "fog-2": 0.4, "snow-1": 0.2}
    found = summarize(clean, {name: np.full(3, value) for name, value in draws.items()}, 30)
    assert found.mpc == pytest.approx((0.5 + 0.2) / 2)
    assert found.rpc == pytest.approx(0.35 / 0.8)
    assert [(loss.name, loss.severities) for loss in found.losses] == [("fog", (1, 2)), ("snow", (1,))]
    assert [loss.points_lost for loss in found.losses] == pytest.approx([30, 60])


def test_the_interval_of_mpc_is_over_the_same_draws_of_images():
    rng = np.random.default_rng(0)
    shared = rng.normal(0, 0.05, 500)
    clean = np.r_[0.8, 0.8 + shared]
    found = summarize(clean, {"fog-1": np.r_[0.5, 0.5 + shared]}, 30)
    assert found.mpc_high - found.mpc_low == pytest.approx(2 * 1.96 * 0.05, rel=0.1)
    assert found.losses[0].high - found.losses[0].low == pytest.approx(0, abs=1e-9)  # paired


def test_corruptions_stand_next_to_system_noise_and_are_not_combined(plan, tmp_path):
    model = measure(prepare(NoisePlan(plan, NoiseSelection(SOME, suite="corruptions"))))
    summary, by = model.corruptions, {row.option: row for row in model.rows}
    values = [(by["contrast-1"].value + by["contrast-5"].value) / 2, by["gaussian-noise-5"].value]
    assert summary.mpc == pytest.approx(np.mean(values))
    assert summary.rpc == pytest.approx(np.mean(values) / model.clean)
    assert model.combined is None
    assert model.worst is None or model.worst.family == "resize"
    tables = model_tables(model)
    assert [row[0] for row in tables[0].rows] == ["resize"]
    assert [row[0] for row in tables[1].rows] == ["contrast", "gaussian-noise"]
    assert "mPC" in tables[1].caption
    suite = NoiseSuite("data", (model,))
    text = page(suite)
    for word in ("System noise and common corruptions", "gaussian-noise", "rPC", "resize=opencv-nearest"):
        assert word in text
    save(suite, tmp_path / "kept")
    assert open_suite(tmp_path / "kept").models[0].corruptions == summary


def test_a_corruption_shares_cells_with_a_plain_evaluation(plan):
    prepared = prepare(NoisePlan(plan, NoiseSelection(("corruptions=fog-2",))))
    made = measure(prepared)
    own = evaluate(dataclasses.replace(plan, pipeline=prepared.variants[1].pipeline))
    assert own.value == made.rows[0].value
    assert own.about.data["reused_images"] == own.images


def test_the_papers_suite_has_the_papers_options(plan):
    context = prepare(NoisePlan(plan, NoiseSelection(("decode=opencv",)))).context
    candidates = choose.select_options(context, NoiseSelection(suite="paper"))
    labels = [c.option.label for c in candidates if c.status != "not installed"]
    families = [label.partition("=")[0] for label in labels]
    counts = [families.count(name) for name in ("decode", "resize", "colour", "precision", "ceil")]
    assert counts == [3, 10, 1, 2, 1]  # without the training options
    assert families == sorted(families, key="decode resize colour ceil upsample precision".index)
    for label in ("decode=opencv", "decode=ffmpeg", "colour=nv12", "ceil=ceil"):
        assert label in labels


def test_dali_is_replaced_where_it_is_missing_and_the_caption_says_so(plan):
    if not option("decode=dali").missing:
        pytest.skip("DALI is installed")
    model = measure(prepare(NoisePlan(plan, NoiseSelection(("decode", "resize"), suite="paper"))))
    row = next(row for row in model.rows if row.option == "no-fancy-upsampling")
    assert row.note.startswith("in place of decode=dali, not installed")
    table = models_table(NoiseSuite("data", (model,)))
    assert [getattr(head, "name", head) for head in table.columns] == [
        "Architecture", "Trained top-1", "Decode", "Resize", "Color Mode", "FP16", "INT8", "Ceil Mode",
        "Combined",
    ]  # fmt: skip
    assert table.rows[0][4] == "-"
    assert "no-fancy-upsampling in place of decode=dali" in table.caption
    assert PAPER_COLUMNS["detect"][3:5] == ("upsample", "INT8")


def row(name, lost, outcome="measured", alike=""):
    family, _, option_name = name.partition("=")
    return NoiseRow(
        family, option_name, outcome, value=0.5, points_lost=lost, changed=0, images=9, alike=alike
    )


def test_the_papers_mean_counts_every_option():
    rows = [
        row("decode=opencv", 0.0, "identical"),
        row("decode=ffmpeg", 3.0),
        row("decode=dali", 3.0, alike="ffmpeg"),
    ]
    assert summarize_family(rows, "decode").mean == 3.0
    assert summarize_family(rows, "decode", "paper").mean == 2.0


def test_combined_takes_int8_and_offset_where_options_lose_equally_much():
    labels = ("precision=fp16", "precision=int8-minmax", "boxes=exp-fp16", "boxes=offset", "ceil=ceil")
    rows = [row(label, 0.0, "no effect" if label == "ceil=ceil" else "measured") for label in labels]
    known = {label: option(label) for label in labels}
    assert [o.label for o in worst_options(rows, known)] == ["precision=int8-minmax", "boxes=offset"]
    whole = [o.label for o in worst_options(rows, known, "paper")]
    assert whole == ["precision=int8-minmax", "boxes=offset", "ceil=ceil"]


def test_options_table_leaves_corruptions_to_their_own_table(plan):
    model = measure(prepare(NoisePlan(plan, NoiseSelection(("corruptions=fog-2",)))))
    assert not options_table(model).rows
    assert len(model_tables(model)) == 2

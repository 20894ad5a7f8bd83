"""The noise page: its charts and tables say the numbers they are given, whatever they are."""

import csv
import io
import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from holdfast.noise.listing import kinds_table, list_table
from holdfast.noise.vision.combine import Combination, CombineStep, describe_combination
from holdfast.noise.vision.page import combination_section, lead, page
from holdfast.noise.vision.result import ModelNoise, NoiseRow, NoiseSuite
from holdfast.noise.vision.show import Feature, compare_images, image_section
from holdfast.noise.vision.tables import (
    combination_csv,
    combination_table,
    families_table,
    groups_of,
    models_csv,
    models_table,
    options_table,
)
from holdfast.report.charts.bars import WaterfallStep, staircase
from holdfast.report.charts.forest import ForestGroup, ForestPoint, forest
from holdfast.report.tables import to_csv, to_html, to_latex, to_markdown, to_text
from holdfast.stages.families import option

ROWS = (
    NoiseRow("decode", "opencv", "identical", "bit for bit the same", 0.9, 0.0, 0.0, 0.0, 0, 100, 100),
    NoiseRow("decode", "fast-idct", "measured", "", 0.89, 1.0, 0.25, 2.5, 4, 100, 0),
    NoiseRow("resize", "opencv-nearest", "measured", "", 0.85, 5.0, 3.0, 7.0, 9, 100, 0),
    NoiseRow("resize", "opencv-area", "measured", "", 0.91, -1.0, -2.0, 0.5, 2, 100, 0),
    NoiseRow("ceil", "ceil", "no effect", "no pool of stride over 1"),
    NoiseRow("upsample", "upsample-bilinear", "impossible", "node <Resize_3>: sizes are computed"),
    NoiseRow("precision", "fp16", "measured", "all in half", 0.9, 0.0, 0.0, 0.0, 0, 100, 100),
    NoiseRow("precision", "int8", "measured", "100 images", 0.86, 4.0, 2.0, 6.0, 8, 100, 100),
    NoiseRow("runtime", "ncnn", "not installed", "pip install"),
)
COMBINED = NoiseRow(
    "combined", "resize=opencv-nearest + precision=int8", "measured", "", 0.8, 10.0, 8.0, 12.0, 30, 100
)
MODEL = ModelNoise(
    "net", "0" * 64, "classify", "top1", 0.9, 100, ROWS, COMBINED, {"decode": "pillow"}, "100 images", "top-1"
)
SUITE = NoiseSuite("data", (MODEL,), "holdfast noise net data", "now", 1.0, {"numpy": "2"})


def drawn(svg):
    return ElementTree.fromstring(svg)  # noqa: S314 (our own)


def texts(svg):
    return [t.text for t in drawn(svg).iter("text")]


def test_the_papers_table_has_mean_and_worst_of_each_family():
    table = models_table(SUITE)
    heads = [head.name for head in table.heads]
    row = dict(zip(heads, table.rows[0], strict=True))
    assert row["clean top-1"] == 90.0
    assert row["Decode"] == "1.00"
    assert row["Resize"] == "2.00 (5.00)"
    assert row["Ceil mode"] == "no effect"
    assert row["Upsample"] == "not supported"
    assert row["FP16"] == "0.00"
    assert row["INT8"] == "4.00"
    assert row["Combined"] == "10.00"
    assert groups_of(SUITE) == ("decode", "resize", "upsample", "FP16", "INT8", "ceil", "runtime")


def test_the_table_of_families_names_the_worst_option():
    rows = {r[0]: r for r in families_table(MODEL).rows}
    assert rows["Resize"][1:] == (2.0, 5.0, "opencv-nearest", "2 of 2 differ")
    assert rows["Decode"][1:] == (1.0, 1.0, "fast-idct", "1 of 2 differ")
    assert rows["Ceil mode"][3] == "no effect"
    assert rows["Combined"][2] == 10.0


def test_options_that_were_not_run_are_not_counted_as_the_same():
    rows = (
        *ROWS,
        NoiseRow("decode", "dali", "not installed", "pip install"),
        NoiseRow("ceil", "up", "impossible", "…"),
    )
    said = {r[0]: r[4] for r in families_table(replace(MODEL, rows=rows)).rows}
    assert said["Decode"] == "1 of 2 differ (1 not installed)"
    assert said["Ceil mode"] == "0 of 1 differ (1 not supported)"
    assert said["Upsample"] == "1 not supported"
    assert said["Runtime"] == "1 not installed"


def test_where_nothing_changes_no_option_is_the_worst():
    rows = {r[0]: r for r in families_table(MODEL).rows}
    assert rows["FP16"][1:] == (0.0, 0.0, "–", "1 of 1 differ")
    flips = replace(ROWS[6], changed=2)
    rows = {r[0]: r for r in families_table(replace(MODEL, rows=(flips,))).rows}
    assert rows["FP16"][3] == "fp16", "the same Δ, but other predictions"
    table = models_csv(SUITE)
    row = dict(zip([head.name for head in table.heads], table.rows[0], strict=True))
    assert row["fp16 worst option"] == ""
    still = replace(MODEL, rows=ROWS[6:7], combined=None)
    html = page(replace(SUITE, models=(still, still)))
    assert "at worst" not in html
    assert "worst single noise" not in page(replace(SUITE, models=(still,)))


def test_no_table_and_no_drawing_has_a_zero_with_a_minus():
    tiny = NoiseRow("resize", "box", "measured", "", 0.9, -0.001, -0.004, -0.002, 1, 100, 0)
    model = replace(MODEL, rows=(tiny, replace(tiny, option="area", points_lost=-0.0)), combined=tiny)
    suite = replace(SUITE, models=(model,))
    steps = (replace(step("a=1", -0.001, -0.002, "first"), points_lost=-0.003, extra_low=-0.004),)
    made = Combination("net", "data", "top1", 0.9, steps)
    tables = (options_table(model), families_table(model), models_table(suite), combination_table(made))
    for table in tables:
        for write in (to_text, to_markdown, to_latex):
            assert "-0.00" not in write(table)
        assert ">-0.00" not in to_html(table)
        assert "[-0.00" not in to_html(table)
        assert ",-0.0," not in to_csv(table)
    shown = page(suite, (made,)).replace('data-value="-0.00', "")
    assert not re.search(r"-0\.00?(?!\d)", shown)


def test_one_image_is_one():
    row = replace(ROWS[1], failed=1)
    model = replace(MODEL, images=1, rows=(row,), failed=("a.jpg: cannot be decoded",))
    assert "n = 1." in options_table(model).caption
    assert options_table(model).rows[0][5] == "1 image failed"
    assert options_table(replace(model, rows=(replace(row, failed=2),))).rows[0][5] == "2 images failed"
    html = page(replace(SUITE, models=(model,)))
    assert "1 image failed and is not included in the numbers" in html
    assert "1 images" not in html


def test_the_csv_has_numbers_alone():
    table = models_csv(SUITE)
    row = dict(zip([head.name for head in table.heads], table.rows[0], strict=True))
    assert (row["resize points lost"], row["resize worst points lost"], row["resize worst option"]) == (
        2.0,
        5.0,
        "opencv-nearest",
    )
    assert row["ceil points lost"] is None
    assert row["ceil worst option"] == "no effect"
    assert row["combined points lost"] == 10.0


def test_every_option_has_its_interval_and_its_words():
    rows = {r[1]: r for r in options_table(MODEL).rows}
    assert rows["fast-idct"][2:5] == (1.0, "[0.25, 2.50]", "4 of 100 images")
    assert rows["opencv"][3] == ""
    assert rows["opencv"][5].startswith("identical")
    assert rows["upsample-bilinear"][5] == "not supported: node <Resize_3>: sizes are computed"
    assert rows["worst of 2 families"][5].startswith("resize=opencv-nearest + precision=int8")
    for write in (to_text, to_markdown, to_latex):
        assert "fast-idct" in write(options_table(MODEL))


def test_the_list_has_a_row_for_every_option():
    rows = list_table().rows
    assert len(rows) > 50
    assert len({(r[1], r[2]) for r in rows}) == len(rows)
    assert {r[1]: r[2] for r in kinds_table().rows}.items() >= {
        "precision": "Cls/Det/Seg/Single/NLP/Speech",
        "boxes": "Det/Single",
        "stft": "Speech",
    }.items()


def test_the_forest_draws_each_row_at_its_place():
    groups = [
        ForestGroup(
            "A",
            [
                ForestPoint("one", 2.0, 1.0, 3.0),
                ForestPoint("two", -1.0, -2.0, 1.0),
                ForestPoint("none", None, words="no effect"),
            ],
        )
    ]
    both = list(drawn(forest(groups, title="t")).iter("svg"))
    assert [svg.get("class") for svg in both] == ["chart", "chart slim"]
    for svg in both:
        circles = list(svg.iter("circle"))
        assert len(circles) == 2
        assert float(circles[0].get("cx")) > float(circles[1].get("cx"))
        assert circles[0].get("class") == "spot loss"
        assert circles[1].get("class") == "spot open"
        said = [t.text for t in svg.iter("text")]
        assert {"one", "two", "none", "no effect", "2.00", "-1.00"} <= set(said)


@pytest.mark.parametrize(
    "groups", [[], [ForestGroup("A", [])], [ForestGroup("A", [ForestPoint("x", 0.0, 0.0, 0.0)])]]
)
def test_a_forest_of_nothing_is_still_a_drawing(groups):
    assert [svg.tag for svg in drawn(forest(groups, title="t"))] == ["svg", "svg"]


def test_names_are_escaped_in_drawings():
    svg = forest([ForestGroup("<b>", [ForestPoint("<script>", 1.0, 0.5, 2.0, note="<i>")])], title="<t>")
    assert "<script>" not in svg
    assert drawn(svg) is not None


def test_a_staircase_falls_from_step_to_step():
    steps = [WaterfallStep("resize", "nearest", 85.0, -5.0), WaterfallStep("int8", "", 86.0, 1.0)]
    svg = staircase([WaterfallStep("clean", "", 90.0), *steps], title="t")
    blocks = [r for r in drawn(svg).iter("rect") if "stair" in (r.get("class") or "")]
    assert [b.get("class") for b in blocks] == ["stair whole", "stair loss", "stair gain"]
    heights = [float(b.get("height")) for b in blocks]
    assert heights[1] == pytest.approx(5 * heights[2], rel=0.05)
    assert {"-5.00", "+1.00"} <= set(texts(svg))


def step(added, extra, alone, effect):
    beyond = extra - alone
    return CombineStep(
        added,
        0.8,
        10.0,
        8.0,
        12.0,
        extra,
        extra - 1,
        extra + 1,
        alone,
        beyond - 1,
        beyond + 1,
        3,
        100,
        effect,
    )


def test_the_staircase_section_says_what_overlaps_and_what_is_magnified():
    made = Combination("net", "data", "top1", 0.9, (
        step("a=1", 5, 5, "first"), step("b=2", 1, 4, "overlapping"), step("c=3", 4, 1, "amplified"),
    ))  # fmt: skip
    section = combination_section(made, 100)
    assert "b=2: loses fewer points on top of the others than alone" in section.lead
    assert "c=3: loses more points on top of the others than alone" in section.lead
    assert describe_combination(made) == section.lead


def test_a_step_on_fewer_images_is_drawn_as_its_table_says_and_told():
    """From 55 on 100 images to 60 on 30: what the step gives, on these 30, is 3.33 and not 5."""
    steps = (
        replace(step("resize=a", 10.0, 10.0, "first"), value=0.55),
        replace(step("precision=int8", -10 / 3, 0.0, "additive"), value=0.6, images=30),
        replace(step("colour=nv12", 1.0, 0.0, "additive"), value=0.59, images=30),
    )
    chart, table = combination_section(Combination("net", "data", "top1", 0.65, steps), 100).figures
    svg = re.search(r"<svg.*</svg>", chart.body, re.DOTALL)[0]
    assert [t for t in texts(svg) if t and t[0] in "+-"] == ["-10.00", "+3.33", "-1.00"]
    assert ">-3.33</td>" in table.body
    blocks = [r for r in drawn(svg).iter("rect") if "stair" in (r.get("class") or "")]
    heights = [float(b.get("height")) for b in blocks]
    assert heights[1] == pytest.approx(3 * heights[2], rel=0.02)
    tips = [t.text for t in drawn(svg).iter("title")]
    told = ["70 fewer than the previous step" in t for t in tips]
    assert told == [False, False, False, True, False]  # the whole, clean, resize, precision, colour
    assert texts(svg).count("(30 images)") == 1
    assert "precision=int8: measured on 30 images, 70 fewer than the previous step" in chart.note


def test_a_first_step_on_fewer_images_than_clean_is_told():
    made = Combination("net", "data", "top1", 0.9, (step("precision=int8", 5, 5, "first"),))
    assert "measured on 100 images, 28 fewer" in combination_section(made, 128).figures[0].note
    assert not combination_section(made, 100).figures[0].note


def test_the_csv_of_the_staircase_has_numbers_alone():
    table = combination_csv(Combination("net", "data", "top1", 0.9, (step("a=1", 5.25, 4.0, "first"),)))
    (row,) = csv.DictReader(io.StringIO(to_csv(table)))
    text = {"model", "data", "metric", "added", "effect"}
    numbers = {name: float(value) for name, value in row.items() if name not in text}
    assert [numbers[f"step points lost{end}"] for end in ("", " low", " high")] == [5.25, 4.25, 6.25]
    assert (numbers["points lost"], numbers["low"], numbers["high"]) == (10.0, 8.0, 12.0)
    assert (numbers["changed"], numbers["images"], numbers["clean"]) == (3, 100, 90)


def test_the_page_says_what_matters_and_escapes_names():
    html = page(SUITE)
    assert "Worst option: resize=opencv-nearest, 5.00 points lost, significant." in html
    assert "combined: 10.00 points lost" in html
    assert "node &lt;Resize_3&gt;" in html
    assert "<Resize_3>" not in html


def test_old_and_new_are_both_in_the_head_of_the_page():
    new = replace(MODEL, model="new", clean=0.88, rows=ROWS[:2])
    html = page(replace(SUITE, models=(MODEL, new)))
    assert "net and new" in html
    assert "clean top-1, n = 100; worst option resize=opencv-nearest: 5.00 points lost" in html
    assert "clean top-1, n = 100; worst option decode=fast-idct: 1.00 points lost" in html
    assert "new: top-1 is 88.00" in html


def test_the_lead_does_not_make_much_of_what_may_be_luck():
    rows = (NoiseRow("decode", "x", "measured", "", 0.89, 1.0, -0.5, 2.5, 4, 100, 0),)
    model = ModelNoise("net", "", "classify", "top1", 0.9, 100, rows, None, {}, "")
    assert "not significant" in lead(model)
    still = (NoiseRow("decode", "x", "measured", "", 0.9, 0.0, 0.0, 0.0, 0, 100, 0),)
    assert "changes a prediction" in lead(
        ModelNoise("net", "", "classify", "top1", 0.9, 100, still, None, {}, "")
    )


def test_a_difference_is_amplified_and_the_factor_is_stated():
    before = np.full((4, 4, 3), 100, np.uint8)
    after = before.copy()
    after[0, 0] = (101, 150, 100)
    made = compare_images(option("decode=opencv"), before, after)
    assert made.largest == (1, 50, 0)
    assert made.difference[0, 0, 0] > 1
    assert made.difference[0, 0, 1] == 255
    assert made.factor > 1
    assert made.mean == pytest.approx(51 / 48)
    assert not made.same
    assert compare_images(option("decode=opencv"), before, before).same


def test_pictures_that_do_not_differ_are_named_and_not_drawn():
    still = np.zeros((8, 8, 3), np.uint8)
    moved = still.copy()
    moved[2, 2] = 9
    made = [
        compare_images(option("decode=opencv"), still, still),
        compare_images(option("decode=fast-idct"), still, moved),
        (option("decode=dali"), "is not installed"),
    ]  # fmt: skip
    grid = np.ones((6, 6), np.float32)
    section = image_section(made, [Feature("ceil=ceil", "t", grid, grid[:5], grid, 0.5)])
    (figure,) = section.figures
    assert figure.body.count("data:image/") == 6
    assert "Identical image: decode=opencv" in figure.note
    assert "decode=dali: is not installed" in figure.note
    assert figure.body.count("<figure") == 2
    assert figure.body.count(' width="8" height="8"') == 3
    assert figure.body.count(' width="204" height="204"') == 2  # blocks of 34 pixels
    assert figure.body.count(' width="204" height="170"') == 1
    assert "lazy" not in figure.body


def test_a_box_that_moves_within_the_match_is_explained():
    floored = replace(ROWS[0], family="boxes", option="round-floor", points_lost=2.6, changed=0, note="")
    table = options_table(replace(MODEL, task="detect", metric="AP", rule="coco: x", rows=(floored,)))
    assert table.heads[4].name == "detections lost or gained"
    assert table.rows[0][4] == "0 of 100 images"
    assert "a box that moves less can change AP" in table.caption
    assert "AP (coco)" in table.caption

"""The tables and the page of a language suite say the numbers they are given, whatever they are."""

import csv
import io
from dataclasses import replace

import pytest

from holdfast.noise.language.page import lead, page
from holdfast.noise.language.result import (
    LanguageNoise,
    LanguageSuite,
    PrecisionRow,
    RuleNoise,
    SetNoise,
    how_table,
    models_table,
    numbers_table,
    rows_csv,
    rules_table,
    worst_of,
)
from holdfast.report.tables import to_csv, to_latex, to_markdown, to_text

PLAIN = (
    PrecisionRow("fp16", "measured", "40 weights <rounded>", 0.63, 0.25, -0.5, 1.0, 5, 3, 2, 400),
    PrecisionRow("int8-dynamic", "measured", "13 layers", 0.58, 5.25, 3.0, 7.5, 40, 30, 9, 400, 2),
    PrecisionRow("int8", "impossible", "node 'x' is in the way"),
)
BYTES = (
    PrecisionRow("fp16", "no effect", "exactly", 0.7, 0.0, 0.0, 0.0, 0, 0, 0, 400),
    PrecisionRow("int8-dynamic", "measured", "13 layers", 0.71, -1.0, -2.0, 0.5, 9, 2, 6, 400),
    PLAIN[2],
)
PIQA = SetNoise(
    "road-piqa", "piqa", "ab" * 32, 400, 0.5,
    (RuleNoise("plain", 0.6325, PLAIN), RuleNoise("per-byte", 0.7, BYTES)),
    "100 questions of road-piqa that are not tested on", ("labels read from x.lst",),
)  # fmt: skip
LAMBADA = SetNoise("road-lambada", "lambada", "cd" * 32, 500, 0.0, (RuleNoise("greedy", 0.4, BYTES),))
MODEL = LanguageNoise("road-lm", "ef" * 32, (PIQA, LAMBADA), ("a note on the model",))
SUITE = LanguageSuite(
    (MODEL,), ("fp16", "int8-dynamic", "int8"), "holdfast noise x", "2026-01-01", 1.0, {"onnx": "1"}
)


def test_the_table_of_the_paper_and_what_cannot_be_is_no_number():
    table = models_table(replace(SUITE, models=(MODEL, replace(MODEL, model="other"))))
    assert list(table.columns) == ["model", "road-piqa (plain)", "road-lambada (greedy)"]
    assert table.rows[0] == ("road-lm", "63.25/0.25/5.25/–", "40.00/0.00/-1.00/–")
    assert table.rows[1][0] == "other"
    assert table.caption.startswith(
        "FP32 accuracy/FP16 points lost/INT8-DYNAMIC points lost/INT8 points lost"
    )
    assert "were not calibrated on" in table.caption  # LAMBADA's rows have 400 of 500 questions
    same = replace(MODEL, sets=(PIQA,))
    assert "were not calibrated on" not in models_table(replace(SUITE, models=(same,))).caption


def test_every_rule_is_named_and_fp32_is_that_of_the_same_questions():
    table = numbers_table(PIQA, "road-lm")
    assert "accuracy at fp32 63.25 plain, 70.00 per-byte (random answers: 50.00)" in table.caption
    assert table.rows[2][:6] == ("int8-dynamic", "plain", 63.25, 58.0, 5.25, "[3.00, 7.50]")
    assert table.rows[2][6:] == (40, 30, 9, 400)
    assert table.rows[4][2:6] == (None, None, None, "")
    how = {row[:2]: row[2] for row in how_table(MODEL).rows}
    assert how["int8", "all"] == "not supported: node 'x' is in the way"
    assert how["int8-dynamic", "road-piqa"].startswith("2 questions without a likelihood (NaN), counted")
    assert how["int8-dynamic", "road-lambada"] == "13 layers"
    assert [row[0] for row in rules_table(SUITE).rows] == ["plain", "per-byte", "greedy"]


def test_csv_has_all_digits_and_empty_fields_for_what_is_not():
    rows = list(csv.DictReader(io.StringIO(to_csv(rows_csv(SUITE)))))
    assert len(rows) == 3 * 4
    impossible = [r for r in rows if r["outcome"] == "impossible"]
    assert {r["points_lost"] for r in impossible} == {""} == {r["accuracy"] for r in impossible}
    assert [r["default rule"] for r in rows if r["precision"] == "fp32"] == ["True", "False", "True"]


@pytest.mark.parametrize("write", [to_text, to_markdown, to_latex])
def test_every_table_can_be_written_in_every_shape(write):
    for table in (models_table(SUITE), numbers_table(PIQA, "m"), how_table(MODEL), rules_table(SUITE)):
        assert write(table)


def test_the_page_says_what_matters_and_escapes_what_it_is_given():
    made = page(SUITE)
    assert (
        "the worst precision is int8-dynamic on road-piqa, 5.25 points lost of 63.25 (significant); 40 of 400"
        in made
    )
    assert "does not run at int8 on road-piqa" in made
    assert "&lt;rounded&gt;" in made
    assert "<rounded>" not in made
    assert "63.25 / 0.25 / 5.25 / –" in made
    assert (
        "per-byte (random answers: 50.00); labels read from x.lst; static int8 calibrated on 100 questions"
        in made
    )
    assert worst_of(MODEL.sets)[1] is PLAIN[1]


def test_the_lead_does_not_claim_what_was_not_found():
    still = PrecisionRow("fp16", "measured", "", 0.5, 0.0, 0.0, 0.0, 0, 0, 0, 10)
    unclear = PrecisionRow("fp16", "measured", "", 0.4, 10.0, 0.0, 20.0, 1, 1, 0, 10)
    gain = PrecisionRow("fp16", "measured", "", 0.6, -10.0, -20.0, -10.0, 1, 0, 1, 10)
    cases = {still: "no precision changes an answer", unclear: "not significant"}
    cases |= {gain: "no precision loses accuracy", PLAIN[2]: "no precision could be measured"}
    for row, words in cases.items():
        of = replace(LAMBADA, rules=(RuleNoise("greedy", 0.5, (row,)),))
        assert words in lead(replace(MODEL, sets=(of,)))


def test_of_several_models_each_is_named_with_what_it_loses():
    calm = replace(MODEL, model="calm", sets=(PIQA, replace(LAMBADA, failed=("l.jsonl:3",))))
    made = page(replace(SUITE, models=(MODEL, calm)))
    assert "road-lm and calm" in made
    assert "points lost at int8-dynamic on road-piqa (worst)" in made
    assert "calm: 1 questions without a likelihood at fp32, counted as wrong" in made


def test_an_accuracy_below_one_per_cent_is_no_share_with_a_bar():
    bars = []
    for accuracy in (0.0, 0.4):
        of = replace(LAMBADA, rules=(RuleNoise("greedy", accuracy, BYTES),))
        bars.append(page(replace(SUITE, models=(replace(MODEL, sets=(of,)),))).count('class="meter"'))
    assert bars[0] == bars[1]

"""The suite of language models: what is measured, what cannot be, and that nothing is run twice."""

import dataclasses

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from helpers import language as texting
from helpers import opt as opting
from holdfast.core.errors import DataError, InputError
from holdfast.core.registry import stage
from holdfast.graph.rewrite.types import CannotRewrite, RewriteResult
from holdfast.metrics.text import hits
from holdfast.noise.language import open as opening
from holdfast.noise.language.cells import without_cache_branch
from holdfast.noise.language.open import language_subject, open_language
from holdfast.noise.language.questions import open_text
from holdfast.noise.language.result import as_plain, open_suite, save, suite_folder
from holdfast.noise.language.run import LanguagePlan, estimate, measure, prepare, run_batches, scores_of
from holdfast.noise.suite import is_calibrated


@pytest.fixture
def lm(tmp_path):
    return language_subject(texting.language_model(tmp_path / "m"))


@pytest.fixture
def sets(tmp_path):
    piqa, lambada = texting.piqa(tmp_path / "p.jsonl", 40), texting.lambada(tmp_path / "l.jsonl", 28)
    return open_text(piqa), open_text(lambada)


def plan_of(tmp_path, subjects, sets, **options):
    return LanguagePlan(tuple(subjects), tuple(sets), tmp_path / "runs", **options)


def test_every_number_is_that_of_the_scores(tmp_path, lm, sets):
    prepared = prepare(plan_of(tmp_path, [lm], sets))
    made = measure(prepared)
    results = run_batches(prepared)
    (model,) = made.models
    assert [s.data for s in model.sets] == ["p", "l"]
    assert [by.rule for by in model.sets[0].rules] == ["plain", "per-byte", "per-token"]
    assert [by.rule for by in model.sets[1].rules] == ["greedy"]
    assert (model.sets[0].chance, model.sets[1].chance) == (0.5, 0.0)
    opened = open_language(lm.path)
    for of, text in zip(model.sets, sets, strict=True):
        direct = list(opened.score_all(text.questions))
        for by in of.rules:
            right = hits(direct, [q.answer for q in text.questions], by.rule)
            assert by.clean == right.mean()
            assert [r.precision for r in by.rows] == ["fp16", "int8-dynamic", "int8-mixed"]
            for row in by.rows:
                trial = next(t for t in prepared.trials if (t.text, t.precision) == (text, row.precision))
                names = [q.name for q in trial.questions]
                kept = np.array([q.name in names for q in text.questions])
                after = hits(scores_of(results, trial), [q.answer for q in trial.questions], by.rule)
                assert row.questions == len(after) == (kept.sum())
                assert row.value == after.mean()
                assert row.points_lost == pytest.approx(100 * (right[kept].mean() - after.mean()), abs=1e-9)
                assert row.lost == (right[kept] & ~after).sum()
                assert row.gained == (~right[kept] & after).sum()
                assert row.changed >= max(row.lost, row.gained)
                assert row.low <= row.points_lost <= row.high


def test_calibrated_precisions_are_not_tested_on_what_they_saw(tmp_path, lm, sets):
    prepared = prepare(plan_of(tmp_path, [lm], sets[:1]))
    trials = {t.precision: t for t in prepared.trials}
    assert len(trials["fp16"].questions) == len(trials["int8-dynamic"].questions) == 40
    seen = {q.name for q in prepared.reserved["p"].items}
    assert len(seen) == 10
    assert not seen & {q.name for q in trials["int8-mixed"].questions}
    assert trials["int8-mixed"].note.startswith("10 texts, percentile")
    made = measure(prepared)
    assert made.models[0].sets[0].calibration.startswith("10 of the 40 questions")


def test_two_runs_give_the_same_digits_and_the_second_runs_nothing(tmp_path, lm, sets, monkeypatch):
    plan = plan_of(tmp_path, [lm], sets[:1], precisions=("int8-dynamic", "int8"))
    first = measure(prepare(plan))
    again = measure(prepare(dataclasses.replace(plan, runs=tmp_path / "elsewhere")))
    assert as_plain(first) == as_plain(again)
    cells = {p.name: p.read_bytes() for p in (tmp_path / "runs").rglob("*.*") if p.is_file()}
    others = {p.name: p.read_bytes() for p in (tmp_path / "elsewhere").rglob("*.*") if p.is_file()}
    assert cells == others
    prepared = prepare(plan)
    monkeypatch.setattr(opening, "open_language", lambda *_: pytest.fail("run again"))
    assert as_plain(measure(prepared)) == as_plain(first)


def test_a_damaged_piece_is_run_again(tmp_path, lm, sets):
    plan = plan_of(tmp_path, [lm], sets[:1], precisions=("fp16",))
    first = measure(prepare(plan))
    cell = sorted((tmp_path / "runs" / "cells").glob("??/*.json"))[0]
    whole = cell.read_bytes()
    cell.write_bytes(whole[:-9])
    assert as_plain(measure(prepare(plan))) == as_plain(first)
    assert cell.read_bytes() == whole


def test_other_questions_other_pieces_the_same_ones_are_shared(tmp_path, lm, sets):
    whole = plan_of(tmp_path, [lm], sets[:1], precisions=("fp16",))
    measure(prepare(whole))
    fewer = dataclasses.replace(sets[0], name="renamed", questions=sets[0].questions[:25])
    told = []

    class Watched:
        def __init__(self, what, total, unit):
            self.what = what

        def __enter__(self):
            return lambda done, found: told.append((self.what, done, found))

        def __exit__(self, *_):
            return None

    measure(prepare(plan_of(tmp_path, [lm], [fewer], precisions=("fp16",))), Watched)
    assert told == [("language", 25, 25), ("language", 25, 25)]


@pytest.mark.parametrize("layout", [{"past": True}, {"merged": True}, {"mask": "mul"}])
def test_layouts_of_exporters(tmp_path, sets, layout):
    subject = language_subject(texting.language_model(tmp_path / "m", **layout))
    plan = plan_of(tmp_path, [subject], sets[:1], precisions=("fp16", "bf16", "int8-dynamic", "int8"))
    (of,) = measure(prepare(plan)).models[0].sets
    assert [r.outcome for r in of.default.rows] == ["measured"] * 4
    assert not any(r.failed for r in of.default.rows)
    dynamic = of.default.row("int8-dynamic")
    assert "13 fully connected layers" in dynamic.note


def test_weights_beside_the_file_are_rewritten_too(tmp_path, sets):
    whole = language_subject(texting.language_model(tmp_path / "whole"))
    path = texting.language_model(tmp_path / "apart")
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="data", size_threshold=100)
    assert path.stat().st_size < (tmp_path / "apart" / "data").stat().st_size
    found = [
        measure(prepare(plan_of(tmp_path, [subject], sets[:1], precisions=("fp16", "int8")))).models[0].sets
        for subject in (whole, language_subject(path))
    ]
    assert found[0] == found[1]


def test_the_branch_of_a_merged_graph_is_settled_before_it_is_rewritten():
    model = without_cache_branch(texting.causal(texting.Shape(merged=True)))
    assert "use_cache_branch" not in {i.name for i in model.graph.input}
    (chosen,) = [w for w in model.graph.initializer if w.name == "use_cache_branch"]
    assert not numpy_helper.to_array(chosen).any()
    plain = texting.causal()
    assert without_cache_branch(plain) is plain


@pytest.mark.slow
@pytest.mark.parametrize("past", [False, True])
def test_a_random_opt_of_real_width_is_converted_and_scored(tmp_path, past):
    folder = tmp_path / "opt"
    folder.mkdir()
    path = opting.written_opt(folder, "opt", vocabulary=1000, layers=1, past=past, positions=130)
    text = open_text(texting.piqa(tmp_path / "p.jsonl", 8))
    made = measure(prepare(plan_of(tmp_path, [language_subject(path)], [text])))
    rows = made.models[0].sets[0].default.rows
    assert [r.outcome for r in rows] == ["measured"] * 3
    assert [r.questions for r in rows] == [8, 8, 6]
    assert "7 fully connected layers" in rows[1].note
    assert "embedding table" in rows[1].note


def test_a_precision_that_cannot_be_made_is_a_row_with_the_reason(tmp_path, lm, sets):
    @stage("rewrite", "int8-never", family="precision", calibrated=True)
    def never(model, context):
        """Never."""
        raise CannotRewrite("node 'x' is in the way")

    @stage("rewrite", "fp16-same", family="precision")
    def same(model, context):
        """Nothing."""
        return RewriteResult(model, ())

    @stage("rewrite", "fp16-broken", family="precision")
    def broken(model, context):
        """A graph that does not run."""
        model.graph.node[0].input[0] = "missing"
        return RewriteResult(model, ("x",), "broken on purpose")

    @stage("rewrite", "fp16-nan", family="precision")
    def no_number(model, context):
        """A graph whose logits are NaN."""
        for weight in model.graph.initializer:
            if weight.name == "last.scale":
                nan = np.full(weight.dims, np.nan, np.float32)
                weight.CopyFrom(numpy_helper.from_array(nan, weight.name))
        return RewriteResult(model, ("last",), "a norm is NaN")

    names = ("int8-never", "fp16-same", "fp16-broken", "fp16-nan", "fp16")
    plan = plan_of(tmp_path, [lm], sets[:1], precisions=names)
    (of,) = measure(prepare(plan)).models[0].sets
    rows = {r.precision: r for r in of.default.rows}
    outcomes = {name: row.outcome for name, row in rows.items()}
    assert outcomes == {
        "int8-never": "impossible",
        "fp16-same": "no effect",
        "fp16-broken": "impossible",
        "fp16-nan": "impossible",
        "fp16": "measured",
    }
    assert rows["int8-never"].note == "node 'x' is in the way"
    assert "missing" in rows["fp16-broken"].note
    assert "no likelihood (NaN) for any of 40 questions" in rows["fp16-nan"].note
    for name in names[:4]:
        assert (rows[name].value, rows[name].points_lost, rows[name].changed) == (None, None, None)
    with pytest.raises(DataError, match="no likelihood at fp16-nan"):
        measure(
            prepare(dataclasses.replace(plan, precisions=("fp16-nan",), strict=True, runs=tmp_path / "s"))
        )


def test_a_model_too_large_for_one_file_is_converted_but_not_calibrated(tmp_path, lm, sets):
    huge = dataclasses.replace(lm, bytes=3 << 30)
    (of,) = measure(prepare(plan_of(tmp_path, [huge], sets[:1]))).models[0].sets
    calibrated = [r for r in of.default.rows if is_calibrated(r.precision)]
    assert {r.outcome for r in calibrated} == {"impossible"}
    assert all("3.2 GB" in r.note for r in calibrated)
    converted = {r.precision: r.outcome for r in of.default.rows if r not in calibrated}  # weight by weight
    assert converted["fp16"] == "measured"
    assert set(converted.values()) == {"measured"}
    assert of.default.clean > 0


@pytest.mark.parametrize("spoilt", ["last.shift", "embed"])
def test_a_model_that_gives_no_numbers_is_an_error_without_a_warning(tmp_path, sets, spoilt):
    path = texting.language_model(tmp_path / "m")
    model = onnx.load(path)
    for weight in model.graph.initializer:
        if weight.name == spoilt:
            weight.CopyFrom(numpy_helper.from_array(np.full(weight.dims, np.nan, np.float32), weight.name))
    onnx.save(model, path)
    with pytest.raises(DataError, match="lm: gives no likelihood"):
        measure(prepare(plan_of(tmp_path, [language_subject(path)], sets[:1], precisions=("fp16", "int8"))))


def test_models_and_sets_must_be_told_apart(tmp_path, lm, sets):
    with pytest.raises(InputError, match="models with different names, got 'lm' twice"):
        prepare(plan_of(tmp_path, [lm, lm], sets))
    with pytest.raises(InputError, match="sets with different names"):
        prepare(plan_of(tmp_path, [lm], [sets[0], sets[0]]))


def test_a_suite_is_kept_and_opened_again(tmp_path, lm, sets):
    made = measure(prepare(plan_of(tmp_path, [lm], sets[:1], precisions=("fp16",))))
    folder = suite_folder(made, tmp_path)
    save(made, folder)
    assert open_suite(folder) == made
    assert open_suite(folder / "language.json") == made
    with pytest.raises(InputError, match=r"expected the language\.json"):
        open_suite(tmp_path)
    assert folder != suite_folder(dataclasses.replace(made, precisions=("bf16",)), tmp_path)


def test_an_estimate_counts_what_is_left(tmp_path, lm, sets):
    plan = plan_of(tmp_path, [lm], sets, precisions=("fp16", "int8"))
    before = estimate(prepare(plan))
    assert [(e.data, e.items, e.variants, e.cells, e.missing) for e in before] == [
        ("p", 40, 3, 6, 6),
        ("l", 28, 3, 5, 5),
    ]
    assert all(e.seconds > 0 and e.bytes > 0 and e.sample == 6 for e in before)
    measure(prepare(dataclasses.replace(plan, sets=sets[:1])))
    after = estimate(prepare(plan))
    assert (after[0].missing, after[0].seconds, after[1].missing) == (0, 0.0, 5)

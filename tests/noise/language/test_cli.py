"""`holdfast noise --task language` as a user runs it."""

import csv
import io
import json
import re
import sys

import pytest

from helpers import language as texting

TASK = ("--task", "language")


@pytest.fixture
def tiny(tmp_path):
    """A model and two sets, as words for the command line."""
    model = texting.language_model(tmp_path / "models", "tiny")
    return (
        str(model),
        str(texting.piqa(tmp_path / "p.jsonl", 30)),
        str(texting.lambada(tmp_path / "l.jsonl", 26)),
    )


def test_the_table_is_printed_in_every_shape_with_the_same_numbers(holdfast, tiny, tmp_path):
    text = holdfast("noise", *tiny, *TASK, "--json", "n.json", "-o", "n.html", "--jobs", 1)
    assert text.code == 0, text.err
    told = json.loads((tmp_path / "n.json").read_text())
    (model,) = told["models"]
    cells = []
    for of in model["sets"]:
        by = of["rules"][0]
        cells.append(
            "/".join(f"{n:.2f}" for n in (100 * by["clean"], *(r["points_lost"] for r in by["rows"])))
        )
    assert re.search(rf"^tiny +{cells[0]} +{cells[1]}$", text.out, re.MULTILINE), text.out
    assert "FP32 accuracy/FP16 points lost/INT8-DYNAMIC points lost/INT8-MIXED points lost" in text.out
    assert "p (plain)" in text.out
    assert "l (greedy)" in text.out
    assert "divided by the ending's bytes (length-normalised)" in text.out
    assert "static int8 calibrated on 7 of the 30 questions" in text.err
    assert "7 texts, percentile 99.99 at each end, per channel, QDQ" in text.out
    shaped = holdfast("noise", *tiny, *TASK, "--csv", "--jobs", 1)
    rows = list(csv.DictReader(io.StringIO(shaped.out)))
    assert len(rows) == 4 * 4
    for row in rows:
        of = next(s for s in model["sets"] if s["data"] == row["data"])
        by = next(r for r in of["rules"] if r["rule"] == row["rule"])
        assert float(row["fp32"]) == pytest.approx(100 * by["clean"])
        if row["precision"] != "fp32":
            kept = next(r for r in by["rows"] if r["precision"] == row["precision"])
            assert float(row["points_lost"]) == pytest.approx(kept["points_lost"])
            assert int(row["changed"]) == kept["changed"]
    assert "| tiny |" in holdfast("noise", *tiny, *TASK, "--markdown", "--jobs", 1).out
    assert rf"tiny & {cells[0]}" in holdfast("noise", *tiny, *TASK, "--latex", "--jobs", 1).out
    page = (tmp_path / "n.html").read_text()
    assert cells[0].replace("/", " / ") in page
    assert not re.search(r"(src|href)=.https?:", page)


@pytest.mark.slow
def test_two_runs_and_two_processes_give_the_same_bytes(holdfast, tiny, tmp_path):
    for name, jobs in (("a", 1), ("b", 1), ("c", 2)):
        done = holdfast(
            "noise",
            *tiny,
            *TASK,
            "--only",
            "fp16,int8",
            "--json",
            f"{name}.json",
            "--runs",
            name,
            "--jobs",
            jobs,
        )
        assert done.code == 0
    numbers = [json.loads((tmp_path / f"{n}.json").read_text())["models"] for n in "abc"]
    assert numbers[0] == numbers[1] == numbers[2]


def test_several_models_make_a_row_each_whatever_the_order_of_words(holdfast, tiny, tmp_path):
    texting.language_model(tmp_path / "other", "model", seed=3)
    texting.language_model(tmp_path / "again", "tiny", seed=4)
    words = (tiny[1], tmp_path / "other", tiny[0], tmp_path / "again" / "tiny.onnx")
    done = holdfast("noise", *words, *TASK, "--only", "fp16", "--csv", "--jobs", 1)
    assert done.code == 0, done.err
    found = list(dict.fromkeys(r["model"] for r in csv.DictReader(io.StringIO(done.out))))
    assert found == ["other", "models/tiny", "again/tiny"]


def test_questions_beyond_the_tested_are_calibrated_on(holdfast, tiny, tmp_path):
    given = ("--images", 10, "--calibration-images", 5, "--only", "precision=int8", "--jobs", 1)
    done = holdfast("noise", *tiny[:2], *TASK, *given, "--json", "n.json")
    assert "static int8 calibrated on 5 questions of p that are not tested on" in done.err
    (of,) = json.loads((tmp_path / "n.json").read_text())["models"][0]["sets"]
    assert of["questions"] == of["rules"][0]["rows"][0]["questions"] == 10
    done = holdfast("noise", *tiny[:2], *TASK, "--only", "int8", "--calibration", tiny[2], "--jobs", 1)
    assert "static int8 calibrated on 26 questions of l that are not tested on" in done.err


def test_a_dry_run_counts_and_runs_nothing(holdfast, tiny, tmp_path):
    done = holdfast("noise", *tiny[:2], *TASK, "--dry-run")
    assert done.code == 0
    assert re.search(r"tiny +p +30 +4 +7 +0 +\d+\.\d +\d+\.\d+ +6 questions each", done.out)
    assert re.search(r"graphs +3 converted graphs \(\d\.\d MB\)", done.out)
    assert not list((tmp_path / "holdfast-runs").glob("cells/??/*.json"))
    assert not list((tmp_path / "holdfast-runs").rglob("language.json"))


def test_the_run_is_kept_and_made_a_page_of(holdfast, tiny, tmp_path):
    done = holdfast("noise", *tiny[:2], *TASK, "--all", "--skip", "int8-entropy", "--jobs", 1)
    assert "bf16" in done.out
    (folder,) = (tmp_path / "holdfast-runs").glob("language-*")
    assert holdfast("report", folder, "-o", "kept.html").code == 0
    assert "int8-dynamic" in (tmp_path / "kept.html").read_text()


def test_bad_input_is_one_line(fails, tiny, tmp_path):
    model, piqa, _ = tiny
    assert f"got models: {model}; sets: none" in fails("noise", model, *TASK)
    assert f"got models: none; sets: signs-class, {piqa}" in fails("noise", "signs-class", piqa, *TASK)
    (tmp_path / "empty").mkdir()
    assert "empty: expected a language model's folder with model.onnx" in fails(
        "noise", model, "empty", piqa, *TASK
    )
    assert "unknown precision" in fails("noise", model, piqa, *TASK, "--only", "int9")
    assert "no such model file" in fails("noise", "none.onnx", piqa, *TASK)
    assert "no such file" in fails("noise", model, "none.jsonl", *TASK)
    assert "unknown question set" in fails("noise", model, "none", *TASK)
    assert "--card" in fails("noise", model, piqa, *TASK, "--card", "x.toml")
    assert "all its questions are tested on" in fails("noise", model, piqa, *TASK, "--calibration", piqa)
    (tmp_path / "broken.jsonl").write_text('{"goal": "a", "sol1": "b", "label": 0}\n')
    assert re.search(r"broken\.jsonl:1.*sol2", fails("noise", model, tmp_path / "broken.jsonl", *TASK))
    (tmp_path / "models" / "tiny.tokenizer.json").unlink()
    assert "no tokenizer" in fails("noise", model, piqa, *TASK)
    texting.tokenizer(tmp_path / "models" / "tokenizer.json", (*texting.WORDS, "one", "more"))
    assert "the tokenizer belongs to another model" in fails("noise", model, piqa, *TASK)


def test_a_page_that_cannot_be_written_is_told_before_anything_is_run(fails, tiny, tmp_path):
    model, piqa, _ = tiny
    for option in ("--json", "--out"):
        told = fails("noise", model, piqa, *TASK, option, f"{piqa}/n.html")
        assert told.startswith(f"{option} {piqa}/n.html: cannot write: ")
        assert "cannot write" in fails("noise", model, piqa, *TASK, option, "/proc/new/n.html")
    assert not (tmp_path / "holdfast-runs").exists()


def test_without_the_tokenizers_the_line_that_installs_them(fails, tiny, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert "pip install 'holdfast[language]'" in fails("noise", *tiny, *TASK)


def test_the_shipped_model_and_sets_are_known_by_name(holdfast, tmp_path):
    sets = ("road-piqa", "road-lambada", "road-hellaswag", "road-winogrande")
    done = holdfast(
        "noise", "road-lm", *sets, *TASK, "--images", 24, "--only", "int8-dynamic",
        "--json", "n.json", "--jobs", 1,
    )  # fmt: skip
    assert done.code == 0, done.err
    told = json.loads((tmp_path / "n.json").read_text())["models"][0]["sets"]
    assert [s["data"] for s in told] == list(sets)
    assert [s["rules"][0]["rule"] for s in told] == ["plain", "greedy", "plain", "plain"]
    assert all(s["rules"][0]["clean"] > s["chance"] for s in told)  # far above it on all questions


def test_a_question_too_long_for_one_model_costs_nothing_but_itself(holdfast, fails, tiny, tmp_path):
    model, piqa, _ = tiny
    wide = str(texting.language_model(tmp_path / "models", "wide", positions=200))
    lines = (tmp_path / "p.jsonl").read_text().splitlines()
    long = json.dumps(json.loads(lines[2]) | {"sol1": " ".join(texting.WORDS[2:] * 20)[:600]})
    (tmp_path / "p.jsonl").write_text("\n".join([*lines[:2], long, *lines[3:]]) + "\n")
    how = (model, wide, piqa, *TASK, "--only", "fp16,int8", "--jobs", 1)
    done = holdfast("noise", *how, "--json", "n.json")
    assert done.code == 4, done.err
    tiny_one, wide_one = (m["sets"][0] for m in json.loads((tmp_path / "n.json").read_text())["models"])
    assert (tiny_one["failed"], wide_one["failed"]) == (["p.jsonl:3"], [])
    assert re.search(r"note +tiny on p: 1 question not scored.*p\.jsonl:3.*64 positions of tiny", done.err)
    assert "failed   tiny: p.jsonl:3: no likelihood" in done.err
    assert "p.jsonl:3: no likelihood of tiny at fp32" in fails("noise", *how, "--strict")
    assert "64 positions of tiny" in fails("noise", *how, "--strict", "--runs", "other")

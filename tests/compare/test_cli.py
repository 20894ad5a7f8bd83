"""`holdfast compare` as it is typed: real runs, what it writes, and bad input in one line."""

import json

import pytest

from helpers.audit import better_audit, sample_audit
from helpers.runs import attack, attempt, evaluation, record
from holdfast.audit.result import save
from holdfast.cli import run

NAMES = [f"{n}.jpg" for n in range(12)]


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """Two real runs of one small model, the second fed by another resize."""
    runs = tmp_path_factory.mktemp("runs")
    command = ["evaluate", "signs-plain", "signs:0:6", "--jobs", "1", "--runs", str(runs)]
    assert run(command) == 0
    assert run([*command, "--stage", "resize=opencv-nearest"]) == 0
    return sorted(p.parent for p in runs.glob("*/run.json"))


def test_two_evaluations(holdfast, evaluated, tmp_path):
    a, b = evaluated
    done = holdfast("compare", a, b / "run.json", "-o", "page.html", "--json", "rows.json")
    assert done.code == 0
    assert done.out.startswith("AP (coco): ")
    assert "pipeline resize  pillow-bilinear  opencv-nearest" in done.out
    plain = json.loads((tmp_path / "rows.json").read_text())
    assert done.out.splitlines()[0].startswith(plain["summary"])
    main = next(row for row in plain["changes"] if row["what"] == "AP")
    assert main["images"] == 6
    assert main["low"] <= main["difference"] <= main["high"]
    told = json.loads((a / "run.json").read_text())["result"]["metrics"]["AP"]
    assert main["a"]["value"] == pytest.approx(100 * told)
    assert plain["summary"] in (tmp_path / "page.html").read_text()


def test_the_same_run_twice(holdfast, evaluated):
    done = holdfast("compare", evaluated[0], evaluated[0] / "run.json")
    assert done.code == 0
    assert done.out.startswith("A and B are the same run")


def test_two_audits_as_markdown(holdfast, tmp_path):
    save(sample_audit(), tmp_path / "a")
    save(better_audit(), tmp_path / "b")
    done = holdfast("compare", "a", "b", "--markdown")
    assert done.code == 0
    assert "| better, undecided | points lost to resize=opencv-nearest | 5.00 | 1.00 | -4.00 |" in done.out


def test_two_attacks(holdfast, tmp_path):
    attack(tmp_path / "a", [attempt(n, (0,)) for n in NAMES])
    attack(tmp_path / "b", [attempt(n, (0,) if i < 2 else (), 40) for i, n in enumerate(NAMES)], limit=40)
    done = holdfast("compare", "a", "b")
    assert done.code == 0
    assert "limits pixels  300  40" in done.out
    assert "images broken: 0.00 in A, 83.33 in B (B − A = +83.33 points" in done.out


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "expected JSON"),
        (b"[]", "JSON that is not an object"),
        (b'{"kind": "contest"}', "got JSON of kind 'contest'"),
        (b'{"kind": "audit", "holdfast": 2}', "expected the audit.json of an audit"),
        (b'{"kind": "noise"}', "expected the noise.json of a noise run"),
        (b'{"effects": [], "images": [{}]}', "expected the attack.json of an attack"),
        (b'{"cells": [], "result": {}}', "expected a holdfast run"),
        (b"\xff\xfe", "expected JSON"),
    ],
)
def test_damaged_manifests_are_told_in_one_line(fails, tmp_path, content, said):
    (tmp_path / "bad.json").write_bytes(content)
    assert said in fails("compare", "bad.json", "bad.json")


def test_bad_input_is_told_in_one_line(fails, tmp_path):
    evaluation(tmp_path, "a", [record(n) for n in NAMES])
    attack(tmp_path / "b", [attempt(n) for n in NAMES])
    (tmp_path / "empty").mkdir()
    assert "nowhere: no such run" in fails("compare", "a", "nowhere")
    assert "empty: expected the folder of a run" in fails("compare", "empty", "a")
    assert "A is an evaluation, B is an attack" in fails("compare", "a", "b")
    assert "--json empty: is a folder" in fails("compare", "a", "a", "--json", "empty")
    assert "--out empty: is a folder" in fails("compare", "a", "a", "-o", "empty")
    assert fails("compare", "a")


def test_a_run_whose_cells_are_gone_is_told(fails, tmp_path):
    folder = evaluation(tmp_path, "a", [record(n) for n in NAMES])
    for cell in (tmp_path / "cells").rglob("*.json"):
        cell.unlink()
    assert "the cell is missing or damaged" in fails("compare", folder, folder)

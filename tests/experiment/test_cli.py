"""`holdfast run` as a user runs it: table, page, JSON, messages and exit codes."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import jsonschema
import pytest

from helpers import models as making

EXPERIMENT = """\
title = "winter <release>"
[[model]]
path = "models/blobs.onnx"
[[model]]
path = "models/tiny.onnx"
[[data]]
path = "data & scenes"
[[condition]]
name = "as trained"
do = "evaluate"
[[condition]]
name = "phone"
do = "evaluate"
noise = "boxes=offset"
[[condition]]
name = "suite"
do = "noise"
only = "boxes=offset"
[[condition]]
name = "patch"
do = "attack"
pixels = 20
steps = 3
black-box = true
features = "none"
"""


@pytest.fixture
def folder(tmp_path):
    """A folder with an experiment that does not lie where the command is run."""
    there = tmp_path / "there"
    making.detector(there / "models")
    making.classifier(there / "models")
    making.blob_coco(there / "data & scenes", 6)
    (there / "exp.toml").write_text(EXPERIMENT)
    return there


class Links(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        where = dict(attributes).get("href") or ""
        if tag == "a" and not where.startswith("#"):
            self.found.append(unquote(where))


def links(page):
    reader = Links()
    reader.feed(page.read_text())
    return reader.found


def test_a_whole_experiment_and_again(holdfast, folder, tmp_path):
    arguments = ("run", folder / "exp.toml", "--jobs", 1, "-o", "out/page.html", "--json", "all.json")
    done = holdfast(*arguments)
    assert done.code == 4, done
    rows = [line for line in done.out.splitlines() if line.startswith(("blobs", "tiny"))]
    assert [re.split(r"  +", row)[2] for row in rows] == ["as trained", "phone", "suite", "patch"] * 2
    assert re.search(r"blobs +data & scenes +phone +AP +0\.8000 +20\.00 +\[20\.00, 20\.00\] +6", done.out)
    assert re.search(r"tiny +data & scenes +patch +failed +n/a", done.out)
    assert "[8/8] tiny on data & scenes: patch" in done.err
    assert "failed   tiny on data & scenes: as trained: " in done.err
    told = json.loads((tmp_path / "all.json").read_text())
    (manifest,) = tmp_path.glob("holdfast-runs/experiment-exp-*/experiment.json")
    assert json.loads(manifest.read_text()) == told
    assert told["exit_code"] == 4
    assert told["results"][1]["points_lost"] == pytest.approx(20)
    again = holdfast(*arguments)
    assert again.out == done.out
    assert len(list(tmp_path.glob("holdfast-runs/experiment-*"))) == 1


def test_both_pages_have_links_that_lead_somewhere_and_fetch_nothing(holdfast, folder, tmp_path):
    holdfast("run", folder / "exp.toml", "--jobs", 1, "-o", "out/page.html")
    (own,) = tmp_path.glob("holdfast-runs/experiment-exp-*/report.html")
    for page in (own, tmp_path / "out" / "page.html"):
        found = links(page)
        assert len(found) == 4
        assert all((page.parent / where).is_file() and not where.startswith("/") for where in found)
        text = page.read_text()
        assert "winter &lt;release&gt;" in text
        assert "<release>" not in text
        assert not re.search(r"(src|href)=.https?:", text)
    moved = tmp_path / "elsewhere"
    shutil.copytree(tmp_path / "holdfast-runs", moved)
    (own,) = moved.glob("experiment-exp-*/report.html")
    assert all((own.parent / where).is_file() for where in links(own))


def test_only_and_dry_run(holdfast, folder, tmp_path):
    dry = holdfast("run", folder / "exp.toml", "--dry-run")
    assert dry.code == 4
    assert dry.out.count("ready") == 4
    assert dry.out.count("would fail: ") == 4
    assert not (tmp_path / "holdfast-runs").exists()
    one = holdfast("run", folder / "exp.toml", "--only", "suite", "--jobs", 1)
    assert [line for line in one.out.splitlines() if "phone" in line or "patch" in line] == []
    assert "[2/2] tiny on data & scenes: suite" in one.err


def test_all_problems_of_a_file_on_lines_of_their_own(holdfast, folder):
    broken = EXPERIMENT.replace('"attack"', '"atack"').replace("boxes=offset", "boxs=offset")
    (folder / "bad.toml").write_text(broken)
    done = holdfast("run", folder / "bad.toml")
    assert done.code == 2
    first, *lines = done.err.splitlines()
    assert first == f"holdfast: 3 problems in {folder / 'bad.toml'}:"
    numbers = [int(line.removeprefix(f"{folder / 'bad.toml'}:").split(":")[0]) for line in lines]
    places = [n for n, line in enumerate(broken.splitlines(), 1) if "boxs" in line or "atack" in line]
    assert numbers == places
    assert "condition[3].do: expected evaluate, noise, attack, audit or verify, got 'atack'" in lines[-1]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "expected the TOML file of an experiment, or --schema"),
        (("none.toml",), "none.toml: no such file"),
        (("exp.toml", "--schema"), "--schema does not depend on a file; omit exp.toml"),
        (("exp.toml", "--only", "fone"), "unknown condition 'fone'. Did you mean 'phone'?"),
        (("exp.toml", "-o", "."), "is a folder; give the name of a file"),
        (("exp.toml", "--json", "."), "is a folder; give the name of a file"),
    ],
)
def test_bad_input_is_one_line(fails, folder, tmp_path, arguments, says):
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    assert says in fails("run", *arguments)
    assert not (tmp_path / "holdfast-runs").exists()


def test_the_schema_is_printed_and_is_one(holdfast):
    done = holdfast("run", "--schema")
    assert done.code == 0
    made = json.loads(done.out)
    jsonschema.Draft202012Validator.check_schema(made)
    assert made["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_the_shipped_example_is_ready_to_run(holdfast):
    example = Path(__file__).parents[2] / "examples" / "experiment.toml"
    done = holdfast("run", example, "--dry-run")
    assert done.code == 0, done
    assert done.out.count("ready") == 8


AUDIT = """\
[[model]]
path = "models/blobs.onnx"
[[data]]
path = "data & scenes"
[[condition]]
do = "audit"
budget = "none"
only = "evaluate"
[gates]
min-images = 6
fail-if = ["clean.map50 < 0.5"]
"""


def test_gates_are_judged_on_audits_and_none_passes_by_absence(holdfast, folder, tmp_path):
    (folder / "audit.toml").write_text(AUDIT)
    passed = holdfast("run", folder / "audit.toml", "--jobs", 1)
    assert passed.code == 0, passed
    row = r"blobs +data & scenes +audit +clean\.map50 < 0\.5 +lower end 1 of 1 +6 +passed"
    assert re.search(row, passed.out)
    (own,) = tmp_path.glob("holdfast-runs/experiment-audit-*/report.html")
    (page,) = links(own)
    assert "audit-blobs-on-" in page
    assert (own.parent / page).is_file()
    (folder / "audit.toml").write_text(AUDIT + 'noise = "noise.map50.points_lost > 10"\n')
    failed = holdfast("run", folder / "audit.toml", "--jobs", 1)
    assert failed.code == 1
    assert re.search(r"noise.map50.points_lost > 10.* failed +not measured", failed.out)


def test_a_gate_of_another_metric_is_told_by_a_dry_run(holdfast, folder):
    (folder / "audit.toml").write_text(AUDIT.replace("clean.map50", "clean.miou"))
    done = holdfast("run", folder / "audit.toml", "--dry-run")
    assert done.code == 4
    assert "would fail: unknown name 'clean.miou' in a gate" in done.out


def test_gates_are_not_judged_if_only_leaves_out_the_audit(holdfast, folder):
    (folder / "audit.toml").write_text(AUDIT + '[[condition]]\ndo = "evaluate"\n')
    done = holdfast("run", folder / "audit.toml", "--jobs", 1, "--only", "evaluate")
    assert done.code == 0
    assert "gates    not judged: --only skips every audit" in done.err


def test_killed_it_goes_on_and_ends_with_the_same_numbers(holdfast, folder, tmp_path):
    whole = holdfast("run", folder / "exp.toml", "--jobs", 1, "--runs", "whole")
    words = [
        sys.executable,
        "-m",
        "holdfast",
        "run",
        str(folder / "exp.toml"),
        "--jobs",
        "1",
        "--runs",
        "cut",
    ]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        if any(
            json.loads(p.read_text())["results"] for p in tmp_path.glob("cut/experiment-*/experiment.json")
        ):
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    again = holdfast("run", folder / "exp.toml", "--jobs", 1, "--runs", "cut")
    assert (again.code, again.out) == (whole.code, whole.out)

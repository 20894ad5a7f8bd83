"""Every long command takes --store, --part and --on, and gives the same numbers with them."""

import contextlib
import json

import pytest

import holdfast as hf
from helpers.s3 import s3_server
from holdfast.attack.options import AttackOptions
from holdfast.audit.options import AuditOptions
from holdfast.cli.app import execute
from holdfast.config.options import fields_of
from holdfast.contest.options import ContestScoreOptions
from holdfast.core.errors import InputError
from holdfast.engine import object_store
from holdfast.engine.execution import HERE, PartFinished, current
from holdfast.evaluate.options import EvaluateOptions
from holdfast.experiment.cli import ExperimentOptions
from holdfast.noise.options import CombineOptions, NoiseOptions
from holdfast.verify.vnncomp.options import VnncompRunOptions

LONG = (
    AttackOptions, AuditOptions, CombineOptions, ContestScoreOptions, EvaluateOptions, ExperimentOptions,
    NoiseOptions, VnncompRunOptions,
)  # fmt: skip
EXPERIMENT = """
title = "two"

[[model]]
path = "signs-class"

[[data]]
path = "signs:0:6"

[[condition]]
name = "clean"
do = "evaluate"

[[condition]]
name = "other"
do = "evaluate"
noise = ["decode=fast-idct"]
"""


@pytest.mark.parametrize("options", LONG, ids=lambda options: options.command)
def test_every_long_command_takes_the_three_options(options):
    assert {"store", "part", "on"} <= {spec.name for spec in fields_of(options)}


@pytest.fixture
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_parts(command, count=2):
    """Run every part, then the whole command."""
    for number in range(1, count + 1):
        with contextlib.suppress(PartFinished):  # the last one finds the cells of the others
            execute([*command, "--part", f"{number}/{count}"])
    assert execute(command) == 0


def cells(folder):
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("*/*.json")}


def test_evaluate_in_parts_computes_every_image_once(in_folder):
    command = ["evaluate", "signs-class", "signs:0:6", "--jobs", "1", "--json"]
    assert execute([*command, "whole.json", "--runs", "whole"]) == 0
    with pytest.raises(PartFinished, match="part 1/3 is finished: 2 of 6 items; 4 items of other parts"):
        execute([*command, "x.json", "--runs", "parts", "--part", "1/3"])
    first = cells(in_folder / "parts" / "cells")
    assert len(first) == 2
    run_parts([*command, "parts.json", "--runs", "parts"], 3)
    every = cells(in_folder / "parts" / "cells")
    assert every.keys() == cells(in_folder / "whole" / "cells").keys()
    assert {name: every[name] for name in first} == first, "a cell was computed twice"
    whole, parts = (json.loads((in_folder / f"{name}.json").read_bytes()) for name in ("whole", "parts"))
    assert {**whole, "run": ""} == {**parts, "run": ""}


def test_noise_in_parts_and_in_another_store_has_the_same_rows(in_folder):
    command = ["noise", "signs-class", "signs:0:6", "--only", "decode", "--jobs", "1", "--json"]
    assert execute([*command, "whole.json", "--runs", "whole"]) == 0
    run_parts([*command, "parts.json", "--runs", "parts", "--store", "elsewhere"])
    rows = [
        json.loads((in_folder / name).read_bytes())["models"][0]["rows"]
        for name in ("whole.json", "parts.json")
    ]
    assert rows[0] == rows[1]
    assert not (in_folder / "parts" / "cells").exists()
    assert cells(in_folder / "elsewhere").keys() == cells(in_folder / "whole" / "cells").keys()


def test_the_trials_of_an_experiment_all_compute_their_share(in_folder):
    (in_folder / "two.toml").write_text(EXPERIMENT)
    with pytest.raises(PartFinished):
        execute(["run", "two.toml", "--jobs", "1", "--part", "1/2"])
    assert len(cells(in_folder / "holdfast-runs" / "cells")) == 6, "three images of each of the two trials"
    run_parts(["run", "two.toml", "--jobs", "1"])


def test_an_audit_in_parts_computes_the_shares_of_all_its_parts(in_folder):
    command = ["audit", "signs-class", "signs:0:6", "--budget", "none", "--jobs", "1", "--only"]
    command += ["evaluate,noise", "-o", "page.html"]
    with pytest.raises(PartFinished):
        execute([*command, "--part", "1/2"])
    first = cells(in_folder / "holdfast-runs" / "cells")
    run_parts(command)
    every = cells(in_folder / "holdfast-runs" / "cells")
    assert len(first) > 6, "noise was not begun"
    assert {name: every[name] for name in first} == first
    assert (in_folder / "page.html").is_file()


def test_an_audit_with_a_budget_has_no_parts(in_folder):
    with pytest.raises(InputError, match=r"cannot be divided.*--budget none"):
        execute(["audit", "signs-class", "signs:0:6", "--part", "1/2"])


def test_python_functions_take_the_same_keywords(in_folder):
    data = hf.dataset("signs:0:4")
    with pytest.raises(PartFinished):
        hf.evaluate("signs-class", data, store="shared", part="1/2")
    assert len(cells(in_folder / "shared")) == 2
    assert hf.evaluate("signs-class", data, store="shared").images == 4
    assert current() == HERE
    with pytest.raises(InputError, match="--part: expected NUMBER/COUNT"):
        hf.evaluate("signs-class", data, part="5/2")


def test_an_object_store_that_fails_at_times_gives_the_same_numbers_and_no_secret_is_saved(
    in_folder, monkeypatch
):
    pytest.importorskip("moto", reason="moto is not installed: pip install 'holdfast[dev]'")
    pytest.importorskip("obstore", reason="obstore is not installed: pip install 'holdfast[store]'")
    command = ["evaluate", "signs-class", "signs:0:6", "--jobs", "1", "--json"]
    assert execute([*command, "here.json", "--runs", "here"]) == 0
    monkeypatch.setattr(object_store, "FIRST_DELAY", 0.001)
    object_store._open.cache_clear()
    with s3_server("bucket") as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "a-secret-of-the-test")
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
        server.faults[:] = ["500", "cut", "503", "500"]
        assert execute([*command, "there.json", "--runs", "there", "--store", "s3://bucket/cells"]) == 0
        assert server.faults == []
        assert execute(["store", "verify", "s3://bucket/cells"]) == 0
    object_store._open.cache_clear()
    here, there = (json.loads((in_folder / f"{name}.json").read_bytes()) for name in ("here", "there"))
    assert {**here, "run": ""} == {**there, "run": ""}
    files = [path for path in in_folder.rglob("*") if path.is_file()]
    assert not any(b"a-secret-of-the-test" in path.read_bytes() for path in files)

"""The examples run as their first lines say; the notebooks in miniature."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SMALL = {"IMAGES": "8", "STEPS": "5", "FAMILIES": "resize=opencv-nearest decode"}
PRINTED = {
    "evaluate_and_compare": "mAP@.5",
    "find_the_deployment_mistake": "resize=opencv-nearest",
    "paper_table": "opencv-nearest",
    "attack_and_contest": "final score",
    "verify_a_network": "violated",
}
LONG = ("find_the_deployment_mistake", "attack_and_contest")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in PRINTED]
)
def test_a_notebook_runs_as_a_script_without_a_main_guard(name, tmp_path):
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py"],
        cwd=tmp_path,
        env={**os.environ, **SMALL},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert PRINTED[name] in done.stdout


@pytest.mark.parametrize("name", PRINTED)
def test_a_notebook_has_cells_and_uses_public_names_only(name):
    text = (EXAMPLES / f"{name}.py").read_text()
    assert text.startswith("# %% [markdown]\n# # ")
    assert text.count("\n# %%\n") >= 3
    imported = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    assert not [node.module for node in imported if (node.module or "").startswith("holdfast")]


@pytest.mark.parametrize("words", [("vendor",), ("resize=vendor-bilinear",)])
def test_noises_of_ones_own(tmp_path, words):
    command = [sys.executable, "-m", "holdfast", "noise", "signs-class", "signs:0:10", "--jobs", "1", "--csv"]
    chosen = [part for word in words for part in ("--only", word)]
    own = ["--use", str(EXAMPLES / "vendor_noise.py")]
    done = subprocess.run([*command, *own, *chosen], cwd=tmp_path, capture_output=True, text=True, check=True)
    head, row = done.stdout.splitlines()
    assert words[0].split("=")[0] + " points lost" in head.split(",")
    assert row.startswith("signs-class,")


def test_every_example_is_in_the_list():
    listed = (EXAMPLES / "README.md").read_text()
    for file in EXAMPLES.glob("*.py"):
        assert f"`{file.name}`" in listed

"""The examples run as their first lines say."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_the_table_from_python(tmp_path):
    done = subprocess.run(
        [sys.executable, EXAMPLES / "noise_table.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [line.split() for line in done.stdout.splitlines()]
    assert any(row[:2] == ["own", "wrong"] for row in rows)
    assert any(row[:2] == ["resize", "opencv-nearest"] for row in rows)


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

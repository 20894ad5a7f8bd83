"""The compiled kernels are cached, and a change of any kernel is noticed."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.verify.lowdim import search

READY = "from holdfast.verify.lowdim.search import ready; print(ready())"


def ready(root, cache):
    """Whether a fresh process of the package in `root` has its kernels in that cache."""
    environment = {"PYTHONPATH": str(root), "NUMBA_CACHE_DIR": str(cache), "PATH": ""}
    done = subprocess.run([sys.executable, "-c", READY], env=environment, capture_output=True, text=True)
    return done.stdout.strip(), done.stderr


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the package whose kernels are compiled into a cache of its own, and that cache."""
    root, cache = tmp_path_factory.mktemp("copy"), tmp_path_factory.mktemp("cache")
    skipped = shutil.ignore_patterns("models", "__pycache__")
    shutil.copytree(Path(holdfast.__file__).parent, root / "holdfast", ignore=skipped)
    assert ready(root, cache) == ("False", "")
    environment = {"PYTHONPATH": str(root), "NUMBA_CACHE_DIR": str(cache), "PATH": ""}
    warm = "from holdfast.verify.lowdim.search import kernel; kernel()"
    subprocess.run([sys.executable, "-c", warm], env=environment, check=True)
    return root, cache


@pytest.mark.slow
def test_a_later_process_finds_the_compiled_kernels(copy):
    assert ready(*copy) == ("True", "")


@pytest.mark.slow
def test_a_change_in_any_kernel_is_noticed(copy):
    root, cache = copy
    source = root / "holdfast" / "verify" / "lowdim" / "program.py"
    before = source.read_text()
    source.write_text(before + "\n# changed\n")
    assert ready(root, cache) == ("False", "")
    source.write_text(before)
    assert ready(root, cache) == ("True", "")


@pytest.mark.slow
def test_vnncomp_warm_compiles_the_kernels(tmp_path):
    root = Path(holdfast.__file__).parents[1]
    environment = {"PYTHONPATH": str(root), "NUMBA_CACHE_DIR": str(tmp_path), "PATH": ""}
    subprocess.run([sys.executable, "-m", "holdfast", "vnncomp", "warm"], env=environment, check=True)
    assert ready(root, tmp_path) == ("True", "")


def test_the_hash_covers_every_kernel_module(monkeypatch):
    seen = []
    monkeypatch.setattr(Path, "read_bytes", lambda path: seen.append(path.name) or b"")
    search._walk.__wrapped__()
    assert set(seen) == {path.name for path in Path(search.__file__).parent.glob("*.py")}

"""Kernels compiled once, kept, and loaded without numba; one build serves most of the tests."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from holdfast.core.errors import InputError, UnknownName
from holdfast.core.native import Library
from holdfast.core.native_call import signature

pytest.importorskip("numba")

SOME = """
import math
import numpy as np
from numba import carray, njit
from holdfast.core.native_build import kernel

@kernel
def _added(line, by, out):
    for j in range(line.size):
        out[j] += by * np.int32(line[j])

@njit
def _cut(line, out):
    for j in range(line.size):
        out[j] = min(max(line[j], 0), 255)

def summed(lines, weights, total, out):
    for y in range(weights.shape[0]):
        for j in range(total.size):
            total[j] = 0
        for t in range(weights.shape[1]):
            _added(lines[t], weights[y, t], total)
        _cut(total, out[y])

def turned(image, out):
    for i in range(image.shape[0]):
        for j in range(image.shape[1]):
            for c in range(image.shape[2]):
                out[c, i, j] = image[i, j, c]

@kernel
def scaled(x, gain, shift, start, out):
    for i in range(start, x.size):
        out[i] = x[i] * gain + np.float64(shift)

def halved(x, gain, out):
    for i in range(x.size):
        out[i] = x[i] * gain

def sines(x):
    total = 0.0
    for i in range(x.size):
        total += math.sin(x[i])
    return int(1e6 * total) if x.size else -1

def chosen(marks, out):
    for i in range(marks.size):
        if marks[i]:
            out[0] += 1

@njit
def fetched(size, numbers):
    total = 0.0
    for x in carray(numbers, 3):
        total += x
    return size + int(total)
"""
ENTRIES = {
    "summed": "some.summed(uint8[:,:], int32[:,:], out int32[:], out uint8[:,:])",
    "turned": "some.turned(float32[:,:,:], out float32[:,:,:])",
    "scaled": "some.scaled(float64[:], float64, float32, int64, out float64[:])",
    "halved": "some.halved(float32[:], float32, out float32[:])",
    "sines": "some.sines(float64[:]) -> int64",
    "chosen": "some.chosen(bool[:], out int64[:])",
    "fetched": "some.fetched(int64, float64*) -> int64",
}
ONE = {"double": "one.double(int64[:], out int64[:])"}
ONE_TEXT = "def double(x, out):\n    for i in range(x.size):\n        out[i] = 2 * x[i]\n"


def package(folder, name, **modules):
    """Nothing; the modules are there, to be imported."""
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text("")
    for module, text in modules.items():
        (folder / name / f"{module}.py").write_text(text)


def library(name, entries):
    return Library("test", name, entries, purpose="a test", extra="quick")


@pytest.fixture(scope="module")
def home():
    """A function that puts a folder on the path for modules, until the tests here are over."""
    with pytest.MonkeyPatch.context() as patch:
        yield lambda folder: patch.syspath_prepend(folder)


@pytest.fixture(scope="module")
def made(tmp_path_factory, home):
    """The folder of the package and the one of the code, compiled."""
    folder = tmp_path_factory.mktemp("native")
    package(folder, "native_some", some=SOME)
    home(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_CACHE", str(folder / "kept"))
        library("native_some", ENTRIES).entry("chosen").loaded()
    return folder


@pytest.fixture
def some(made, monkeypatch):
    """A library whose code was kept."""
    monkeypatch.setenv("HOLDFAST_CACHE", str(made / "kept"))
    return library("native_some", ENTRIES)


@pytest.fixture
def one(tmp_path, home, request):
    """The name of a package that was not compiled, of one kernel that doubles numbers."""
    name = "native_" + "".join(c if c.isalnum() else "_" for c in request.node.name)
    package(tmp_path, name, one=ONE_TEXT)
    home(tmp_path)
    return name


def doubled(of):
    x, out = np.arange(4), np.zeros(4, np.int64)
    of.entry("double")(x, out)
    return out.tolist()


def python(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **{name: str(value) for name, value in environment.items()}},
    )


def test_arrays_of_two_dimensions_and_kernels_that_call_each_other(some):
    random = np.random.default_rng(0)
    lines = random.integers(0, 256, (3, 100), np.uint8)
    weights = random.integers(-2, 3, (5, 3)).astype(np.int32)
    for read_only in (lines, weights):
        read_only.setflags(write=False)
    total, out = np.empty(100, np.int32), np.empty((5, 100), np.uint8)
    assert some.entry("summed")(lines, weights, total, out) is None
    assert (out == np.clip(weights @ lines.astype(np.int32), 0, 255)).all()


def test_arrays_of_three_dimensions(some):
    image = np.random.default_rng(0).random((4, 5, 3), np.float32)
    out = np.empty((3, 4, 5), np.float32)
    some.entry("turned")(image, out)
    assert (out == image.transpose(2, 0, 1)).all()


def test_an_array_may_be_a_part_of_another_or_empty(some):
    whole, out = np.random.default_rng(0).random((9, 5, 3), np.float32), np.empty((3, 4, 5), np.float32)
    some.entry("turned")(whole[5:], out)
    assert (out == whole[5:].transpose(2, 0, 1)).all()
    some.entry("turned")(whole[:0], np.empty((3, 0, 5), np.float32))
    assert some.entry("sines")(np.empty(0)) == -1


def test_scalars_and_sums_that_are_not_fused(some):
    x, out = np.random.default_rng(0).random(1000), np.zeros(1000)
    some.entry("scaled")(x, 1 / 3, np.float32(0.1), np.int64(2), out)
    assert out[:2].tolist() == [0, 0]
    assert (out[2:] == x[2:] * (1 / 3) + np.float64(np.float32(0.1))).all()


def test_a_scalar_of_float32_is_one(some):
    x, out = np.random.default_rng(0).random(1000, np.float32), np.empty(1000, np.float32)
    some.entry("halved")(x, 0.1, out)
    assert (out == x * np.float32(0.1)).all()


def test_a_number_that_comes_back(some):
    x = np.linspace(0, 1, 50)
    total = 0.0
    for value in np.sin(x):
        total += value
    assert abs(some.entry("sines")(x) - 1e6 * total) <= 1


def test_marks(some):
    out = np.zeros(1, np.int64)
    some.entry("chosen")(np.array([True, False, True]), out)
    assert out[0] == 2


def test_an_address(some):
    numbers = np.array([1.0, 2.0, 3.0])
    assert some.entry("fetched")(10, numbers.ctypes.data) == 16


F = np.zeros((2, 3, 4), np.float32)


@pytest.mark.parametrize(
    ("image", "out", "said"),
    [
        (F.astype(np.float64), F, "argument 1: expected an array float32[:,:,:], got float64[:,:,:]"),
        (F.astype(">f4"), F, "argument 1: expected an array float32[:,:,:], got >f4[:,:,:]"),
        (F[0], F, "argument 1: expected an array float32[:,:,:], got float32[:,:]"),
        ([1.0], F, "argument 1: expected an array float32[:,:,:], got list"),
        (F[:, ::2], F, "argument 1: expected a C-contiguous array float32[:,:,:], got one that is not"),
        (F.T, F, "argument 1: expected a C-contiguous array"),
        (np.frombuffer(bytes(97), np.uint8)[1:].view(np.float32).reshape(2, 3, 4), F, "expected an aligned"),
        (F, np.broadcast_to(F, F.shape), "argument 2: expected a writeable array"),
    ],
)
def test_arrays_not_as_declared(some, image, out, said):
    with pytest.raises(TypeError) as error:
        some.entry("turned")(image, out)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (1, "0.1", "argument 2: expected float64, got '0.1'"),
        (2, 1e60, "argument 3: expected float32, got 1e+60"),
        (3, 0.5, "argument 4: expected int64, got 0.5"),
        (3, 1 << 70, "argument 4: expected int64"),
    ],
)
def test_scalars_not_as_declared(some, place, value, said):
    x = np.zeros(3)
    x.setflags(write=False)
    given = [x, 1.0, 1.0, 0, np.zeros(3)]
    given[place] = value
    with pytest.raises(TypeError) as error:
        some.entry("scaled")(*given)
    assert said in str(error.value)


def test_too_few_arguments(some):
    with pytest.raises(TypeError, match="turned: expected 2 arguments, got 1"):
        some.entry("turned")(F)


def test_names_that_nothing_has(some):
    with pytest.raises(UnknownName, match="Did you mean 'turned'"):
        some.entry("turn")


@pytest.mark.parametrize(
    "line",
    [
        "down(int64)",
        "a.down(int32)",
        "a.down(out int64)",
        "a.down(u8[:])",
        "a.down(int64[2])",
        "a.down(int64",
    ],
)
def test_lines_that_declare_nothing(line):
    with pytest.raises(InputError, match="expected"):
        signature(line)


def test_a_line_reads_as_it_was_written():
    line = "a.b.down(uint8[:,:], out float32[:], int64, float64*) -> int64"
    assert str(signature(line)) == line


def test_kept_code_is_loaded_without_numba(made):
    code = f"""
import sys, numpy
from holdfast.core.native import Library
before = "llvmlite" in sys.modules
library = Library("test", "native_some", {ENTRIES!r}, purpose="a test", extra="quick")
out = numpy.zeros(1, numpy.int64)
ready = library.ready()
library.entry("chosen")(numpy.ones(3, bool), out)
print(before, ready, out[0], "numba" in sys.modules, "native_some" in sys.modules)
"""
    found = python(code, PYTHONPATH=made, HOLDFAST_CACHE=made / "kept")
    assert found.stdout == "False True 3 False False\n", found.stderr


@pytest.mark.parametrize("module", ["llvmlite", "numba"])
def test_without_numba(made, module):
    code = f"""
import sys
sys.modules[{module!r}] = None
from holdfast.core.native import Library
library = Library("test", "native_some", {ENTRIES!r}, purpose="a test", extra="quick")
for ask in (library.ready, library.entry("chosen").loaded):
    try:
        ask()
    except Exception as error:
        print(type(error).__name__, error)
"""
    found = python(code, PYTHONPATH=made, HOLDFAST_CACHE=made / "kept")
    said = "MissingExtra a test needs numba, which is not installed: pip install 'holdfast[quick]'\n"
    assert found.stdout == said * 2, found.stderr


def test_other_sources_or_entries_are_other_code(some, made):
    assert some.ready()
    assert not library("native_some", {**ENTRIES, "more": ENTRIES["chosen"]}).ready()
    beside = made / "beside.py"
    beside.write_text("N = 1")
    assert not Library("test", "native_some", ENTRIES, purpose="", extra="", sources=[beside]).ready()
    source = made / "native_some" / "some.py"
    try:
        source.write_text(SOME + "\n")
        assert not library("native_some", ENTRIES).ready()
    finally:
        source.write_text(SOME)
    assert library("native_some", ENTRIES).ready()


def renamed(right):
    """The code whole, the name of its symbol not."""
    head, symbols, code = right.split(b"\n", 2)
    return b"\n".join([head, symbols.replace(b"entry", b"entri"), code])


@pytest.mark.parametrize(
    "damage", [lambda right: right[:-1], lambda _: b"no code", lambda _: b"0\n{}\ncode", renamed]
)
def test_damaged_code_is_made_again(one, tmp_path, monkeypatch, damage):
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "kept"))
    assert doubled(library(one, ONE)) == [0, 2, 4, 6]
    (kept,) = (tmp_path / "kept").iterdir()
    right = kept.read_bytes()
    assert damage(right) != right
    kept.write_bytes(damage(right))
    assert not library(one, ONE).ready()
    assert doubled(library(one, ONE)) == [0, 2, 4, 6]
    assert library(one, ONE).ready()
    assert list((tmp_path / "kept").iterdir()) == [kept]


def test_the_next_folder_is_taken_if_the_first_cannot_be_written(one, tmp_path, monkeypatch):
    monkeypatch.delenv("HOLDFAST_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / one / "__pycache__").write_text("a file where the folder would be")
    assert doubled(library(one, ONE)) == [0, 2, 4, 6]
    assert [path.suffix for path in (tmp_path / "cache" / "holdfast").iterdir()] == [".o"]
    assert library(one, ONE).ready()


def test_a_variable_without_a_value_is_none(one, tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert doubled(library(one, ONE)) == [0, 2, 4, 6]
    assert list((tmp_path / "here").iterdir()) == []
    assert [path.suffix for path in (tmp_path / one / "__pycache__").glob("test-*")] == [".o"]


def test_code_that_cannot_be_kept_still_runs(one, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "file" / "below"))
    of = library(one, ONE)
    assert doubled(of) == [0, 2, 4, 6]
    assert not library(one, ONE).ready()


def test_a_process_that_was_overtaken_does_no_harm(one, tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "kept"))
    first, second = library(one, ONE), library(one, ONE)
    build = second._built

    def overtaken(llvm):
        assert doubled(first) == [0, 2, 4, 6]
        return build(llvm)

    monkeypatch.setattr(second, "_built", overtaken)
    assert doubled(second) == doubled(first) == [0, 2, 4, 6]
    assert [path.suffix for path in (tmp_path / "kept").iterdir()] == [".o"]


@pytest.mark.parametrize(
    ("body", "said"),
    [("x[0] = np.ones(x.size).sum()", "alloc"), ("x[0] = x.reshape((1, x.size))[0, 0]", "reshape")],
)
def test_kernels_that_need_numba_are_refused(one, tmp_path, monkeypatch, body, said):
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "kept"))
    text = f"import numba\nimport numpy as np\n\n@numba.njit\ndef double(x, out):\n    {body}\n"
    Path(tmp_path / one / "one.py").write_text(text)
    with pytest.raises(RuntimeError, match=f"expected kernels that allocate nothing .*{said}"):
        doubled(library(one, ONE))

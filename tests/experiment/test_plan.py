"""Experiments from TOML: what is right is read, what is wrong is told with file, line, field and values."""

import pytest

from helpers import models as making
from holdfast.attack.options import AttackSettings
from holdfast.core.errors import InputError
from holdfast.experiment.plan import Evaluate, Verify, read_experiment

GOOD = """\
title = "winter release"
seed = 3
[[model]]
path = "net.onnx"
card = "other.toml"
map = { stop = "stop sign" }
[[model]]
path = "signs-yolo"
name = "shipped"
[[data]]
path = "signs:0:40"
images = 7
[[condition]]
do = "evaluate"
[[condition]]
name = "phone"
do = "evaluate"
stage = ["decode=opencv", "resize=opencv-bilinear"]
noise = "precision=int8"
[[condition]]
name = "patch"
do = "attack"
pixels = 300
black-box = true
[[condition]]
do = "verify"
spec = "prop.vnnlib"
timeout = 5
[[condition]]
do = "audit"
budget = "90s"
[gates]
min-images = 8
fail-if = ["noise.map50.points_lost > 2"]
"""


@pytest.fixture
def folder(tmp_path):
    making.detector(tmp_path, "net")
    (tmp_path / "other.toml").write_text((tmp_path / "net.toml").read_text())
    (tmp_path / "prop.vnnlib").write_text("")
    return tmp_path


def read(folder, text):
    file = folder / "exp.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_experiment(file)


def told(folder, text):
    """The problems without the folder's path, one a line."""
    with pytest.raises(InputError) as problem:
        read(folder, text)
    return str(problem.value).replace(f"{folder}/", "")


def test_all_of_a_file_is_read(folder):
    found = read(folder, GOOD)
    assert (found.title, found.seed) == ("winter release", 3)
    assert [m.name for m in found.models] == ["net", "shipped"]
    assert found.models[0].path == str(folder / "net.onnx")
    assert found.models[0].card == folder / "other.toml"
    assert found.models[0].map == {"stop": "stop sign"}
    assert found.models[1].path == "signs-yolo"
    assert (found.data[0].name, found.data[0].images) == ("signs:0:40", 7)
    names = [c.name for c in found.conditions]
    assert names == ["evaluate", "phone", "patch", "verify", "audit"]
    works = [c.work for c in found.conditions]
    assert works[0] == Evaluate()
    assert works[1] == Evaluate(stage=("decode=opencv", "resize=opencv-bilinear"), noise=("precision=int8",))
    assert works[2] == AttackSettings(pixels=300, black_box=True)
    assert works[3] == Verify(spec=(folder / "prop.vnnlib",), timeout=5.0)
    assert [(g.text, g.min_images) for g in found.gates] == [("noise.map50.points_lost > 2", 8)]


def test_a_byte_order_mark_and_windows_line_ends_are_no_problem(folder):
    plain = read(folder, GOOD)
    assert read(folder, b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode()) == plain


def test_inline_tables_say_the_same(folder):
    tables = {"model": 'path = "signs-yolo"', "data": 'path = "signs:0:2"', "condition": 'do = "evaluate"'}
    text = "\n".join(f"{name} = [{{ {inside} }}]" for name, inside in tables.items())
    assert read(folder, text).conditions[0].work == Evaluate()
    assert told(folder, text.replace('"evaluate"', '"evaluat"')).startswith("exp.toml:3: condition[0].do: ")


BASE = """\
[[model]]
path = "signs-yolo"
[[data]]
path = "signs:0:6"
[[condition]]
do = "evaluate"
"""


@pytest.mark.parametrize(
    ("more", "line", "says"),
    [
        (
            'do = "atack"',
            8,
            (
                "condition[1].do: expected evaluate, noise, attack, audit or verify, got 'atack'; "
                "did you mean 'attack'?"
            ),
        ),
        ('name = "x"', 7, "condition[1]: do is missing"),
        ("do = 3", 8, "condition[1].do: expected evaluate, noise, attack, audit or verify, got 3"),
        (
            'do = "evaluate"\nname = "x"\nrul = "coco"',
            10,
            "condition[1].rul: unknown key; did you mean 'rule'?",
        ),
        (
            'do = "evaluate"\nname = "x"\nzzz = 1',
            10,
            "condition[1].zzz: unknown key; expected rule, iou, score",
        ),
        ('do = "evaluate"', 7, "condition[1].name: 'evaluate' is the name of condition[0] already"),
        ('do = "attack"\npixels = -3', 9, "condition[1].pixels: expected a whole number from 1, got -3"),
        ('do = "attack"\npixels = 1.5', 9, "condition[1].pixels: expected a whole number from 1, got 1.5"),
        ('do = "attack"\npixels = true', 9, "condition[1].pixels: expected a whole number from 1, got true"),
        ('do = "attack"\npixels = 99999999999999999999', 9, "condition[1].pixels: expected a whole number"),
        ('do = "attack"\nseconds = nan', 9, "condition[1].seconds: expected a number from 0, got nan"),
        ('do = "attack"\nseconds = inf', 9, "condition[1].seconds: expected a number from 0, got inf"),
        ('do = "attack"\nscore = 1.5', 9, "condition[1].score: expected a number from 0 to 1, got 1.5"),
        ('do = "attack"\nshrink = "yes"', 9, "condition[1].shrink: expected true or false, got 'yes'"),
        (
            'do = "attack"\ngoal = "vanisch"',
            9,
            (
                "condition[1].goal: expected vanish, mislabel or fabricate, "
                "got 'vanisch'; did you mean 'vanish'?"
            ),
        ),
        ('do = "attack"\nmask = "sqare"', 9, "got 'sqare'; did you mean 'square'?"),
        ('do = "attack"\ndeployment = ["resize=opencv"]', 9, "condition[1].deployment[0]: unknown resize"),
        (
            'do = "attack"\nonly = ["resize"]',
            9,
            'condition[1].only: not valid for do = "attack"; it belongs to do = "noise"',
        ),
        (
            'do = "noise"\nimages = 3',
            9,
            'condition[1].images: not valid for do = "noise"; it belongs to [[data]]',
        ),
        (
            'do = "noise"\nrule = "cocoa"',
            9,
            ("condition[1].rule: expected lecture, voc2007, voc or coco, got 'cocoa'; did you mean 'coco'?"),
        ),
        ('do = "noise"\nonly = []', 9, "condition[1].only: expected at least one value, got an empty list"),
        (
            'do = "noise"\nonly = ["resize",\n"resize"]',
            10,
            "condition[1].only[1]: 'resize' is listed twice",
        ),
        ('do = "noise"\nonly = [\n  "decode",\n  "resiz",\n]', 11, "condition[1].only[1]: "),
        ('do = "noise"\nskip = ["precision=int9"]', 9, "did you mean 'precision=int8'?"),
        (
            'do = "evaluate"\nname = "p"\nstage = ["decod=opencv"]',
            10,
            (
                "condition[1].stage[0]: expected one of decode, colour, fit, resize, normalise, infer or "
                "post before '=', got 'decod=opencv'; did you mean 'decode'?"
            ),
        ),
        (
            'do = "evaluate"\nname = "p"\nstage = ["decode=opencv", "decode=pillow"]',
            10,
            "'decode' is replaced twice",
        ),
        (
            'do = "evaluate"\nname = "p"\nstage = "zzz"',
            10,
            "expected NAME=OPTION, where NAME is decode, colour",
        ),
        ('do = "evaluate"\nname = "p"\nnoise = [1]', 10, "condition[1].noise[0]: expected text"),
        ('do = "evaluate"\nname = ""', 9, "condition[1].name: expected text, got empty text"),
        ('do = "evaluate"\nname = "a\\nb"', 9, "condition[1].name: expected text, got 'a\\nb'"),
        ('do = "evaluate"\nname = "p"\ncalibration = "signs:1:5"', 10, "needs `noise`"),
        ('do = "verify"', 7, "condition[1]: spec is missing: VNN-LIB files."),
        (
            'do = "verify"\nspec = "none.vnnlib"',
            9,
            "condition[1].spec: expected a file, got 'none.vnnlib', which does",
        ),
        (
            'do = "audit"\nbudget = "soon"',
            9,
            "condition[1].budget: expected a time such as 10m, 90s or 1h30m",
        ),
        ('do = "audit"\nonly = ["noise", "atack"]', 9, "condition[1].only[1]: "),
    ],
)
def test_a_broken_condition_is_told_with_its_line(folder, more, line, says):
    text = told(folder, f"{BASE}[[condition]]\n{more}\n")
    assert text.startswith(f"exp.toml:{line}: ")
    assert says in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "3 problems in exp.toml:\nexp.toml: expected at least one table [[model]], got none"),
        (
            BASE.replace("signs-yolo", "signs-yol"),
            (
                "exp.toml:2: model[0].path: expected an ONNX file or a shipped "
                "model, got 'signs-yol', which does not exist; did you mean 'signs-yolo'?"
            ),
        ),
        (BASE.replace("signs-yolo", "nett.onnx"), "did you mean 'net.onnx'?"),
        (BASE.replace("signs-yolo", "."), "model[0].path: expected an ONNX file, got the folder '.'"),
        (
            BASE.replace('path = "signs-yolo"', 'name = "x"'),
            "exp.toml:1: model[0]: path is missing: ONNX file",
        ),
        (
            BASE.replace("signs:0:6", "scenes"),
            "exp.toml:4: data[0].path: expected a folder or file of data, or ",
        ),
        (BASE.replace("signs:0:6", "signs:0:x"), "exp.toml:4: data[0].path: expected signs, signs:SEED"),
        (
            BASE.replace("signs:0:6", "signs:0:0"),
            "data[0].path: signs:0:0: expected a count of 1 or more, got 0",
        ),
        (BASE.replace("[[data]]", '[[data]]\nformat = "coko"'), "exp.toml:4: data[0].format: "),
        (
            BASE.replace("[[data]]", "[[data]]\nimages = 0"),
            "data[0].images: expected a whole number from 1, got 0",
        ),
        (BASE.replace("[[data]]", "[data]"), "exp.toml:3: data: expected tables [[data]], got one table"),
        (
            BASE.replace("[[model]]", "[[model]]\nmap = { a = 1 }"),
            "exp.toml:2: model[0].map: expected a table of names",
        ),
        (
            BASE + '[[model]]\npath = "signs-yolo"\n',
            "exp.toml:7: model[1].name: 'signs-yolo' is the name of model[0]",
        ),
        (
            'path = "x"\n' + BASE,
            "exp.toml:1: path: not a key of this table; it belongs to [[model]] or [[data]]",
        ),
        ("title = 07:32:00\n" + BASE, "exp.toml:1: title: expected text, got 07:32:00"),
        ("seed = -1\n" + BASE, "exp.toml:1: seed: expected a whole number from 0, got -1"),
        ("modell = 1\n" + BASE, "exp.toml:1: modell: unknown key; did you mean 'model'?"),
        (
            "model = 3\n" + BASE.partition("[[data]]")[1] + BASE.partition("[[data]]")[2],
            "exp.toml:1: model: expected",
        ),
        (
            BASE + '[gates]\nfail-if = ["noise.map50.points_lost > 2"]\n',
            "exp.toml:7: gates: gates need an audit",
        ),
        (BASE + "[gates]\nfail-if = []\n", "exp.toml:7: gates: expected a table with fail-if"),
        ("gates = 3\n" + BASE, "exp.toml:1: gates: expected a table with fail-if"),
        (
            BASE
            + '[[condition]]\ndo = "audit"\n[gates]\nmin-images = 0\nfail-if = ["verify.violated > 0"]\n',
            "exp.toml:10: gates.min-images: expected a number of images, 1 or more, got 0",
        ),
        (BASE + "\n[[condition]\n", "exp.toml:8: expected TOML, got: "),
        (BASE + 'x = "\n', "exp.toml:7: expected TOML, got: "),
        (BASE + BASE.replace("[[", "[").replace("]]", "]"), "exp.toml:7: expected TOML, got: "),
        ("a = " + "[" * 50_000, "exp.toml: expected TOML, got: nested too deeply"),
        (b"\xff\xfe", "exp.toml: expected a readable TOML file, got: "),
        ("#" * (1 << 20) + "\n", "exp.toml: expected at most 1048576 bytes"),
    ],
)
def test_a_broken_file_is_told_with_its_line(folder, text, says):
    assert says in told(folder, text)


@pytest.mark.parametrize(
    ("gate", "says"),
    [
        ("noise.map50.points_lost", "expected NAME, one of"),
        ("noise.mp50.points_lost > 10", "Did you mean 'noise.map50.points_lost'?"),
        ("noise.map50.drop > 0.02", "did you mean 'noise.map50.points_lost > 2' (in percentage points)?"),
    ],
)
def test_a_broken_gate_is_told_before_anything_is_run(folder, gate, says):
    text = f'{BASE}[[condition]]\ndo = "audit"\n[gates]\nfail-if = ["verify.violated > 0",\n "{gate}"]\n'
    found = told(folder, text)
    assert found.startswith("exp.toml:11: gates.fail-if[1]: ")
    assert says in found


def test_all_problems_are_told_at_once_in_the_order_of_lines(folder):
    text = BASE.replace("signs-yolo", "gone").replace('"evaluate"', '"evaluate"\nrule = "x"\niou = 7')
    lines = told(folder, text + "[[data]]\n").splitlines()
    assert lines[0] == "4 problems in exp.toml:"
    assert [line.split(":")[1] for line in lines[1:]] == ["2", "7", "8", "9"]


def test_a_file_that_is_not_there_or_no_file(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_experiment(tmp_path / "none.toml")
    with pytest.raises(InputError, match="got a folder"):
        read_experiment(tmp_path)


def test_an_option_that_is_not_installed_here_says_what_to_install(folder, monkeypatch):
    monkeypatch.setattr("holdfast.core.extras.is_installed", lambda module: module != "openvino")
    found = told(folder, BASE.replace('"evaluate"', '"evaluate"\nnoise = ["runtime=openvino"]'))
    assert "exp.toml:7: condition[0].noise[0]: " in found
    assert "pip install 'holdfast[noise]'" in found

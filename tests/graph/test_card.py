from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.errors import CardError, OutputError
from holdfast.core.model import Card, Head, Input
from holdfast.core.types import Size
from holdfast.graph.card import BUILT_IN, card_path, card_text, numbered, parse_card, read_card, write_card

GOOD = """
task = "detect"
classes = "coco80"
[input]
size = [416, 320]
scale = "1/255"
[head]
name = "yolov3"
anchors = [[[10, 13], [16, 30]], [[33.5, 23]]]
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "net.toml"
    path.write_text(text, encoding="utf-8")
    return path


def problems(folder: Path, text: str) -> str:
    with pytest.raises(CardError) as caught:
        read_card(write(folder, text))
    return str(caught.value)


def test_a_card_is_read_with_its_defaults(tmp_path):
    card = read_card(write(tmp_path, GOOD))
    assert card.input.size == Size(416, 320)
    assert card.input.scale == 1 / 255
    assert card.classes == BUILT_IN["coco80"]
    assert card.head.options["anchors"] == (((10, 13), (16, 30)), ((33.5, 23),))
    assert (card.score, card.nms_iou, card.max_detections) == (0.001, 0.65, 100)


numbers = st.floats(-300, 300).filter(lambda x: x != 0)
triples = st.tuples(numbers, numbers, numbers)
heads = st.one_of(
    st.just(Head("classifier", {"activation": "softmax", "skip": 1})),
    st.lists(st.tuples(numbers, numbers), min_size=1, max_size=3).map(
        lambda pairs: Head("yolov3", {"anchors": (tuple(pairs),), "strides": (8,), "multi_label": False})
    ),
    st.text(max_size=8).map(lambda name: Head("segmentation", {"outputs": (name,)})),
)
tasks = {"classifier": "classify", "yolov3": "detect", "segmentation": "segment"}


@st.composite
def cards(draw):
    head = draw(heads)
    policy = draw(st.sampled_from(["stretch", "letterbox", "crop"]))
    image = Input(
        Size(draw(st.integers(1, 999)), draw(st.integers(1, 999))),
        draw(st.sampled_from(["nchw", "nhwc"])),
        draw(st.sampled_from(["rgb", "bgr"])),
        draw(st.one_of(numbers, st.just(1 / 255))),
        draw(triples),
        draw(triples),
        draw(st.sampled_from(["float32", "float16", "uint8"])),
        policy,
        draw(st.integers(1, 500)) if policy == "crop" else None,
        draw(st.integers(0, 255)),
        draw(st.sampled_from(["centre", "corner"])),
    )
    names = draw(
        st.one_of(
            st.lists(st.text(min_size=1), min_size=1, unique=True).map(tuple),
            st.sampled_from([BUILT_IN["coco80"], BUILT_IN["voc21"], numbered(1000)]),
        )
    )
    unit = st.floats(0, 1)
    return Card(
        tasks[head.name], image, head, names, draw(unit), draw(unit), draw(st.integers(1, 999)), "opencv", "x"
    )


@settings(max_examples=40, deadline=None)
@given(cards())
def test_a_written_card_reads_the_same(tmp_path_factory, card):
    path = tmp_path_factory.mktemp("card") / "net.toml"
    write_card(card, path, ["colour: bgr, assumed", "task: it has boxes", "head: x, because\nof y"[:12]])
    assert read_card(path) == card


def test_the_reasons_of_guesses_stand_above_their_fields(tmp_path):
    card = read_card(write(tmp_path, GOOD))
    text = card_text(card, ["head: yolov3, because of two maps", "anchors: assumed", "colour: rgb, assumed"])
    lines = text.splitlines()
    assert lines[lines.index('name = "yolov3"') - 1] == "# guess: yolov3, because of two maps"
    assert lines[lines.index('colour = "rgb"') - 1] == "# guess: rgb, assumed"
    assert 'scale = "1/255"' in lines
    assert 'classes = "coco80"' in lines


def test_every_problem_is_told_at_once_one_line_a_field(tmp_path):
    told = problems(
        tmp_path,
        """
task = "detekt"
clases = 3
[input]
size = [416]
colour = "grb"
polcy = "crop"
mean = ["a"]
[head]
name = "yolo3"
[thresholds]
score = "low"
[trained_with]
decode = 3
""",
    )
    lines = told.splitlines()
    assert lines[0].endswith("net.toml: 10 problems:")
    assert lines[1:] == [
        "  task: expected 'classify' or 'detect' or 'segment' or 'single', got 'detekt'",
        "  clases: unknown field; did you mean 'classes'?",
        "  classes: missing; give a text or a whole number or a list of texts",
        "  input.size: expected [width, height] in whole pixels, got [416]",
        "  input.colour: expected 'rgb' or 'bgr' or 'grey', got 'grb'",
        "  input.polcy: unknown field; did you mean 'policy'?",
        "  input.mean: expected a list of numbers, got ['a']",
        "  thresholds.score: expected a number, got 'low'",
        "  trained_with.decode: expected a text, got 3",
        "  head.name: unknown head 'yolo3'. Did you mean 'yolov3'?",
    ]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"detect"', '"segment"', "task: head 'yolov3' is for task 'detect', got 'segment'"),
        ("anchors =", "strids = [8]\nanchors =", "head.strids: unknown field; did you mean 'strides'?"),
        (
            "[[[10, 13], [16, 30]], [[33.5, 23]]]",
            "[[10, 13]]",
            "head.anchors: expected a list of lists of lists of numbers",
        ),
        (
            '"coco80"',
            '"coco.names"',
            "classes: 'coco.names' is neither a file next to the card nor one of cctsdb3",
        ),
        ('"coco80"', "[]", "classes: expected at least one class"),
        ('"coco80"', "0", "classes: expected at least one class"),
        ('"coco80"', '["a", "b", "a"]', "classes: 'a' is named more than once"),
        ('"1/255"', '"1/0"', "input.scale: expected a number, got '1/0'"),
        ('"1/255"', "1\nstd = [1, 0, 1]", "input.std: expected numbers other than 0"),
        ('"1/255"', "1\nmean = [1, 0]", "input.mean: expected 3 numbers, one per channel, got 2"),
        ('"1/255"', "1\npad = 256", "input.pad: expected 0 to 255, got 256"),
        ('"1/255"', "0", "input.scale: expected a number other than 0"),
        ('"1/255"', "true", "input.scale: expected a number, got True"),
        (
            '"1/255"',
            "1\nshort_side = 256",
            'input.short_side: only policies "crop", "square" and "short-side" use it',
        ),
        ("[416, 320]", "[416, 0]", "input.size: expected [width, height] in whole pixels, got [416, 0]"),
        ('name = "yolov3"', "name = 3", 'head.name: expected the name of a head, e.g. "yolov3", got 3'),
        ("[head]", "[thresholds]\nscore = 1.5\n[head]", "thresholds.score: expected 0 to 1, got 1.5"),
        (
            "[head]",
            "[thresholds]\nmax_detections = 0\n[head]",
            "thresholds.max_detections: expected 1 or more, got 0",
        ),
        ("[input]", "head = 3\n[input]", "expected TOML"),
        ("task", "task task", "net.toml: expected TOML, got: "),
    ],
)
def test_each_problem_has_its_line(tmp_path, old, new, told):
    got = problems(tmp_path, GOOD.replace(old, new, 1))
    assert told in got
    assert "\n" not in got
    assert str(tmp_path / "net.toml") in got


def test_a_plain_value_in_a_sections_place():
    with pytest.raises(CardError, match=r"input: expected a section \[input\], got 3"):
        parse_card({"task": "detect", "classes": 3, "input": 3, "head": {"name": "classifier"}}, Path())


def test_files_that_are_no_cards(tmp_path):
    with pytest.raises(CardError, match="no such card; `holdfast model card"):
        read_card(tmp_path / "no.toml")
    binary = tmp_path / "net.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CardError, match="expected a readable TOML file"):
        read_card(binary)


def test_class_names_from_a_file_beside_the_card(tmp_path):
    (tmp_path / "a.names").write_text("stop\n\ngive way \n", encoding="utf-8")
    card = read_card(write(tmp_path, GOOD.replace('"coco80"', '"a.names"')))
    assert card.classes == ("stop", "give way")


def test_the_card_beside_a_model(tmp_path):
    assert card_path(tmp_path / "a.onnx") is None
    (tmp_path / "model.toml").touch()
    assert card_path(tmp_path / "a.onnx") == tmp_path / "model.toml"
    (tmp_path / "a.toml").touch()
    assert card_path(tmp_path / "a.onnx") == tmp_path / "a.toml"
    assert card_path(tmp_path / "a.onnx.gz") == tmp_path / "a.toml"


def test_a_card_that_cannot_be_written(tmp_path):
    card = read_card(write(tmp_path, GOOD))
    with pytest.raises(OutputError, match="the card could not be written"):
        write_card(card, tmp_path / "missing" / "net.toml")


def test_built_in_lists_have_their_length():
    assert {name: len(names) for name, names in BUILT_IN.items()} == {
        "coco80": 80,
        "coco91": 91,
        "voc20": 20,
        "voc21": 21,
        "cctsdb3": 3,
    }
    assert BUILT_IN["coco91"][90] == "toothbrush"
    assert BUILT_IN["coco91"][13] == "stop sign"
    assert all(len(set(names)) == len(names) for names in BUILT_IN.values())

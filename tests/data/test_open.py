"""The one door to data: names, paths, formats, tasks."""

import json

import pytest

from holdfast.core import registry
from holdfast.core.errors import DataError, InputError, UnknownName
from holdfast.data import problems as kinds
from holdfast.data.open import open_dataset, recognise


@pytest.fixture
def both(tmp_path, picture):
    """A folder that is YOLO and VOC at once; a.jpg has one object, b.jpg two."""
    for name, lines in (("a", 1), ("b", 2)):
        for folder in ("images", "labels", "annotations"):
            (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / "images" / f"{name}.jpg").write_bytes(picture())
        (tmp_path / "labels" / f"{name}.txt").write_text("0 0.5 0.5 0.5 0.5\n" * lines)
        corners = "<xmin>1</xmin><ymin>1</ymin><xmax>9</xmax><ymax>9</ymax>"
        thing = f"<object><name>x</name><bndbox>{corners}</bndbox></object>"
        text = f"<annotation><filename>{name}.jpg</filename>{thing * lines}</annotation>"
        (tmp_path / "annotations" / f"{name}.xml").write_text(text)
    return tmp_path


def test_the_most_specific_format_is_taken_and_said(both):
    found = open_dataset(both)
    assert found.format == "voc"
    assert [problem.kind for problem in found.problems] == [kinds.SEVERAL_FORMATS]
    assert "read as voc" in found.problems[0].what
    assert "also matches yolo (has labels/*.txt next to images/)" in found.problems[0].what
    assert [(reader.name, reader.facts["task"]) for reader, _ in recognise(both)] == [
        ("voc", "detect"),
        ("yolo", "detect"),
    ]


def test_format_decides(both):
    found = open_dataset(str(both), format="yolo")
    assert (found.format, found.problems) == ("yolo", ())
    with pytest.raises(UnknownName, match=r"unknown reader 'yool'\. Did you mean 'yolo'"):
        open_dataset(both, format="yool")


def test_task_that_no_format_serves(both):
    got = r"got one for detection \(voc\), detection \(yolo\); give one folder per class"
    with pytest.raises(DataError, match=f"expected a dataset for classification, {got}"):
        open_dataset(both, task="classify")
    with pytest.raises(DataError, match=r"for segmentation, got one for detection \(yolo\)"):
        open_dataset(both, task="segment", format="yolo")


def test_task_picks_among_the_formats(both, picture):
    (both / "masks").mkdir()
    (both / "masks" / "a.png").write_bytes(picture(kind="PNG", mode="L"))
    assert open_dataset(both, task="segment").format == "masks"
    assert open_dataset(both, task="detect").format == "voc"


def test_single_needs_exactly_one_object(both):
    found = open_dataset(both, task="single", format="yolo")
    assert (found.task, [entry.name for entry in found.entries]) == ("single", ["images/a.jpg"])
    assert [(problem.kind, problem.where) for problem in found.problems] == [
        (kinds.NOT_ONE_OBJECT, "images/b.jpg")
    ]


def test_number_of_images(both):
    assert len(open_dataset(both, images=1)) == 1
    assert len(open_dataset(both, images=9)) == 2
    with pytest.raises(InputError, match="1 or more, got 0"):
        open_dataset(both, images=0)


def test_paths_that_hold_nothing(tmp_path):
    with pytest.raises(DataError, match=r"nowhere: no such file or folder; expected a dataset"):
        open_dataset(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"^sign:0:2: no such file or folder; did you mean 'signs:0:2'\?$"):
        open_dataset("sign:0:2")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="empty: the folder is empty"):
        open_dataset(tmp_path / "empty")
    (tmp_path / "net.onnx").write_bytes(b"\x08\x07")
    with pytest.raises(DataError, match=r"looked for coco, .*found a \.onnx file of 2 bytes"):
        open_dataset(tmp_path / "net.onnx")
    with pytest.raises(DataError, match=r"found empty/, net\.onnx"):
        open_dataset(tmp_path)


def test_a_reader_of_the_users_own(tmp_path, monkeypatch):
    registry.names("reader")  # load them all, so that the copy is whole
    monkeypatch.setattr(registry, "_PARTS", dict(registry._PARTS))
    (tmp_path / "x.mine").write_text("hello")

    @registry.stage(
        "reader", recognise=lambda path: "ends in .mine" if path.suffix == ".mine" else "", task="detect"
    )
    def mine(path, *, split=None):
        return open_dataset("signs:1:2")

    assert open_dataset(tmp_path / "x.mine").name == "signs:1:2"


def test_names_are_unique(both):
    names = [entry.name for entry in open_dataset(both).entries]
    assert len(set(names)) == len(names)


def test_a_folder_named_signs_is_reached_as_a_path(tmp_path, monkeypatch, picture):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "signs").mkdir()
    (tmp_path / "signs" / "a.jpg").write_bytes(picture())
    content = {"images": [{"id": 0, "file_name": "a.jpg"}], "annotations": [], "categories": []}
    (tmp_path / "signs" / "annotations.json").write_text(json.dumps(content))
    assert open_dataset("signs", images=1).format == "signs"
    assert open_dataset("./signs").format == "coco"


def test_folder_that_may_not_be_listed(both, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied", str(both))

    monkeypatch.setattr("holdfast.data.files.os.scandir", refuse)
    with pytest.raises(DataError, match=r"cannot be read: .*Permission denied"):
        open_dataset(both)

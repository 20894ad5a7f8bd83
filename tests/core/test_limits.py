"""Limits of the readers: each is kept, named in one line, and changed by HOLDFAST_LIMITS."""

import gzip
import os
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from holdfast.core import limits
from holdfast.core.errors import CardError, DataError, ImageError, InputError, ModelError
from holdfast.core.model import Input, read_unpacked
from holdfast.core.pipeline import frame_of
from holdfast.core.types import Size
from holdfast.data import files
from holdfast.data.embedded import embedded_dataset
from holdfast.data.entries import read_image_file
from holdfast.engine.store import FolderStore
from holdfast.graph.card import read_card
from holdfast.graph.lower import lower_onnx

unix = pytest.mark.skipif(os.name == "nt", reason="named pipes are of Unix")


@pytest.fixture
def limited(monkeypatch):
    """A function that sets HOLDFAST_LIMITS."""
    return lambda text: monkeypatch.setenv(limits.VARIABLE, text)


def test_a_limit_is_changed_by_the_environment(limited):
    assert limits.limit("depth") == 100
    limited("depth=7, image-mb=3")
    assert (limits.limit("depth"), limits.limit("image-mb"), limits.limit("scenes")) == (7, 3, 10_000_000)


@pytest.mark.parametrize("text", ["depth", "depth=", "depth=0", "depth=-1", "deep=3", "depth=1e3"])
def test_a_wrong_setting_is_one_line(limited, text):
    limited(text)
    with pytest.raises(InputError, match="HOLDFAST_LIMITS: expected NAME=NUMBER with a NAME of image-mb, "):
        limits.limit("depth")


@unix
@pytest.mark.parametrize("name", ["a pipe", "a folder", "a device"])
def test_other_than_regular_files_are_refused_without_waiting(tmp_path, name):
    path = tmp_path / "x"
    if name == "a pipe":
        os.mkfifo(path)
    elif name == "a folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    for read, error in (
        (read_image_file, ImageError),
        (files.read_text, DataError),
        (files.read_yaml, DataError),
        (read_card, CardError),
        (lambda p: read_unpacked(p), OSError),
    ):
        with pytest.raises(error, match=r"expected a regular file, got a (named pipe|folder|device)"):
            read(path)
    assert files.first_line(path) == ""


@unix
def test_a_pipe_in_place_of_a_cell_is_no_result(tmp_path):
    store = FolderStore(tmp_path)
    key = "ab" * 16
    store.path(key).parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(store.path(key))
    assert store.load(key) is None


def test_a_packed_file_may_not_unpack_to_far_more_than_it_holds(tmp_path, monkeypatch, limited):
    from holdfast.core import model

    monkeypatch.setattr(model, "UNPACKED_FREELY", 1 << 20)
    path = tmp_path / "net.onnx.gz"
    path.write_bytes(gzip.compress(bytes(64 << 20), 1))
    with pytest.raises(InputError, match=r"unpack to more than .* MB; the limit unpacked-ratio is 200"):
        read_unpacked(path)
    limited("unpacked-ratio=2000")
    assert len(read_unpacked(path)) == 64 << 20
    limited("unpacked-ratio=2000,model-mb=8")
    with pytest.raises(InputError, match="unpack to more than 8 MB; the limit model-mb is 8 "):
        read_unpacked(path)


def test_a_thin_image_is_not_resized_to_an_enormous_one():
    spec = Input(size=Size(224, 224), policy="crop", short_side=256)
    assert frame_of(Size(640, 427), spec).resized == Size(383, 256)
    with pytest.raises(ImageError, match="1×60000 pixels, resized to 256×15360000; the limit image-mega"):
        frame_of(Size(1, 60_000), spec)


@pytest.mark.parametrize(
    ("text", "name"),
    [("a: " + "[" * 5000 + "]" * 5000, "depth"), ("a: &a [1]\nb: [" + "*a, " * 1001 + "]", "aliases")],
)
def test_yaml_that_nests_or_repeats_too_much_is_refused(tmp_path, text, name):
    (tmp_path / "data.yaml").write_text(text)
    with pytest.raises(DataError, match=f"the limit {name} is"):
        files.read_yaml(tmp_path / "data.yaml")


def test_toml_that_nests_too_deeply_is_no_toml(tmp_path):
    (tmp_path / "net.toml").write_text("a = " + "[" * 5000 + "]" * 5000)
    with pytest.raises(CardError, match="expected TOML, got: nested too deeply"):
        read_card(tmp_path / "net.toml")


def test_a_card_reads_class_names_from_its_own_folder_only(tmp_path):
    (tmp_path / "secret").write_text("one\ntwo\n")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "net.toml").write_text('task = "classify"\nclasses = "../secret"\n[input]\nsize = [8, 8]\n')
    with pytest.raises(CardError, match="is neither a file next to the card nor one of") as caught:
        read_card(folder / "net.toml")
    assert "two" not in str(caught.value)


def test_embedded_scenes_are_counted():
    pytest.importorskip("cv2", reason="the embedded scenes need holdfast[noise]")
    with pytest.raises(InputError, match="99,999,999,999 scenes; the limit scenes is 10,000,000"):
        embedded_dataset("signs:0:99999999999", None)


GROWING = {
    "Expand": ([np.zeros((1, 1), np.float32), np.array([50_000, 50_000])], {}),
    "ConstantOfShape": ([np.array([50_000, 50_000])], {}),
    "Tile": ([np.zeros((1, 1), np.float32), np.array([50_000, 50_000])], {}),
    "Range": ([np.array(0), np.array(2**33), np.array(1)], {}),
    "OneHot": ([np.zeros(2**16, np.int64), np.array([2**16]), np.zeros(2, np.float32)], {}),
    "Pad": ([np.zeros((1, 1), np.float32), np.array([50_000, 50_000, 0, 0])], {}),
    "Resize": (
        [np.zeros((1, 1, 2, 2), np.float32), None, None, np.array([1, 1, 50_000, 50_000])],
        {"mode": "nearest"},
    ),
    "Add": ([np.zeros((50_000, 1), np.float32), np.zeros((1, 50_000), np.float32)], {}),
}


@pytest.mark.parametrize("operator", sorted(GROWING))
def test_a_constant_that_would_fill_the_memory_is_refused(operator):
    constants, attributes = GROWING[operator]
    names = [f"c{n}" if c is not None else "" for n, c in enumerate(constants)]
    nodes = [
        helper.make_node(operator, names, ["large"], name="grow", **attributes),
        helper.make_node("Shape", ["large"], ["shape"]),
        helper.make_node("Cast", ["shape"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["numbers"], ["sum"], keepdims=0),
        helper.make_node("Add", ["x", "sum"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2])],
        [numpy_helper.from_array(c, n) for n, c in zip(names, constants, strict=True) if c is not None],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    with pytest.raises(ModelError, match=r"node 'grow'.*the limit constant-mb is 1,024 "):
        lower_onnx(model)


def test_every_limit_is_in_the_documentation():
    text = (Path(__file__).parents[2] / "SECURITY.md").read_text("utf-8")
    for name, each in limits.LIMITS.items():
        assert f"| `{name}` | {each.default:,} | {each.about} |" in text

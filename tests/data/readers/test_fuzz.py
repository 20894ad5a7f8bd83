"""Whatever the label files hold, the answer is a dataset or one clear line."""

import contextlib
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.core.errors import DataError
from holdfast.core.types import Boxes, Label
from holdfast.data.info import describe
from holdfast.data.open import open_dataset

some = settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
values = scalars | st.lists(scalars, max_size=5) | st.dictionaries(st.text(max_size=3), scalars, max_size=2)
words = st.sampled_from(
    ["a.jpg", "b.jpg", "0", "1", "-1", "0.5", "nan", "inf", "1e999", ";", ",", "x", "é", "\t", "\n", " "]
)
texts = (
    st.lists(words, max_size=40).map("".join)
    | st.lists(words, max_size=40).map(" ".join)
    | st.text(max_size=60)
)


def use(path, kind):
    """Opens and loads all of it: any error but DataError fails the test."""
    with contextlib.suppress(DataError):
        found = open_dataset(path, format=kind)
        for entry in found.entries:
            truth = entry.load().truth
            assert isinstance(truth, Boxes | Label)
            if isinstance(truth, Boxes) and found.classes:
                assert all(0 <= index < len(found.classes) for index in truth.classes)
        describe(found)


def root_of(factory, picture):
    root = factory.mktemp("fuzz")
    for folder in ("images", "labels", "annotations"):
        (root / folder).mkdir()
    for name in ("a.jpg", "b.jpg"):
        (root / "images" / name).write_bytes(picture())
    return root


def objects(**keys):
    return st.lists(st.fixed_dictionaries({}, optional=keys), max_size=4)


@some
@given(
    images=objects(
        id=st.integers(0, 2) | values,
        file_name=st.sampled_from(["a.jpg", "b.jpg", ""]) | values,
        width=st.integers(-1, 50) | values,
        height=st.integers(-1, 50) | values,
    ),
    annotations=objects(
        id=st.integers(0, 2) | values,
        image_id=st.integers(0, 2) | values,
        category_id=st.integers(0, 2) | values,
        bbox=st.lists(st.floats(-9, 60), min_size=4, max_size=4) | values,
        area=values,
        iscrowd=values,
    ),
    categories=objects(id=st.integers(0, 2) | values, name=values),
)
def test_coco(images, annotations, categories, tmp_path_factory, picture):
    root = root_of(tmp_path_factory, picture)
    content = {"images": images, "annotations": annotations, "categories": categories}
    (root / "x.json").write_text(json.dumps(content))
    use(root / "x.json", "coco")


@some
@given(content=values)
def test_coco_of_any_json(content, tmp_path_factory, picture):
    root = root_of(tmp_path_factory, picture)
    (root / "x.json").write_text(json.dumps(content))
    use(root / "x.json", "coco")


@pytest.mark.parametrize("kind", ["cctsdb", "listing"])
@some
@given(text=texts)
def test_one_text_file(kind, text, tmp_path_factory, picture):
    root = root_of(tmp_path_factory, picture)
    (root / "val.txt").write_text(text, "utf-8")
    use(root / "val.txt", kind)


@some
@given(text=texts, config=st.none() | texts)
def test_yolo(text, config, tmp_path_factory, picture):
    root = root_of(tmp_path_factory, picture)
    (root / "labels" / "a.txt").write_text(text, "utf-8")
    if config is not None:
        (root / "data.yaml").write_text(f"val: images\nnames: {config}", "utf-8")
    use(root, "yolo")
    if config is not None:
        use(root / "data.yaml", "masks")


tags = st.sampled_from(
    ["<annotation>", "</annotation>", "<object>", "</object>", "<name>", "</name>", "<bndbox>", "</bndbox>"]
    + [f"<{key}>5</{key}>" for key in ("xmin", "ymin", "xmax", "ymax", "width", "height", "difficult")]
    + ["<size>", "</size>", "<xmax>1e999</xmax>", "<width>nan</width>", "<name>stop</name>", "x", "<", "&a;"]
)


@some
@given(inner=st.lists(tags, max_size=12))
def test_voc(inner, tmp_path_factory, picture):
    root = root_of(tmp_path_factory, picture)
    (root / "annotations" / "a.xml").write_text(f"<annotation>{''.join(inner)}</annotation>")
    (root / "annotations" / "b.xml").write_text("".join(inner))
    use(root, "voc")

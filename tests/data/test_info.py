"""What `describe` finds: counts, sizes, and odd or broken images."""

import json
import tracemalloc
from collections import Counter
from io import BytesIO

import numpy as np
import orjson
import pytest
from PIL import Image

from holdfast.data import problems as kinds
from holdfast.data.info import as_dict, describe, text
from holdfast.data.open import open_dataset


def encoded(image, kind, **options):
    stream = BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def count(info):
    return Counter(problem.kind for problem in info.problems)


@pytest.fixture
def mixed(tmp_path, picture):
    """A COCO folder with one image of each kind that a long run may meet."""
    turned = Image.Exif()
    turned[0x0112] = 6
    noise = np.random.default_rng(0).integers(0, 256, (30, 40, 3), np.uint8)
    whole = encoded(Image.fromarray(noise), "JPEG")
    files = {
        "fine.jpg": picture(),
        "png.jpg": picture(kind="PNG"),
        "cmyk.jpg": picture(mode="CMYK"),
        "deep.png": encoded(Image.fromarray(np.zeros((30, 40), np.uint16)), "PNG"),
        "turned.jpg": encoded(Image.new("RGB", (40, 30)), "JPEG", exif=turned),
        "small.jpg": picture(20, 10),
        "empty.jpg": b"",
        "text.jpg": b"hello, this is no image",
        "cut.jpg": whole[: len(whole) // 2],
        "hole.png": encoded(Image.fromarray(noise), "PNG").replace(b"IDAT", b"IDAT\0", 1),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    images = [{"id": key, "file_name": name, "width": 40, "height": 30} for key, name in enumerate(files)]
    box = {"category_id": 1, "bbox": [25, 2, 10, 5]}
    annotations = [{"id": key, "image_id": key, **box, "iscrowd": key == 0} for key in range(6)]
    content = {"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "stop"}]}
    (tmp_path / "annotations.json").write_text(json.dumps(content))
    return tmp_path


def test_every_kind_of_image_is_told(mixed):
    info = describe(open_dataset(mixed))
    assert count(info) == {
        kinds.ODD_IMAGE: 4,  # PNG named .jpg, CMYK, 16 bits, EXIF
        kinds.SIZE_DIFFERS: 1,
        kinds.BOX_OUTSIDE: 1,  # in the image that is smaller than stated
        kinds.EMPTY_FILE: 1,
        kinds.UNREADABLE_IMAGE: 1,
        kinds.TRUNCATED_IMAGE: 1,
    }
    assert (info.images, info.unreadable, info.boxes, info.crowd, info.without_objects) == (8, 2, 6, 1, 2)
    assert info.formats == (("JPEG", 5), ("PNG", 3))
    assert info.sizes.smallest == (20, 10)
    assert info.sizes.median == info.sizes.largest == (40, 30)
    assert info.sizes.distinct == (((40, 30), 7), ((20, 10), 1))
    assert info.faults == 5


def test_missing_since_it_was_opened(mixed):
    dataset = open_dataset(mixed)
    (mixed / "fine.jpg").unlink()
    said = [str(problem) for problem in describe(dataset).problems if problem.kind == kinds.UNREADABLE_IMAGE]
    assert "fine.jpg: no such image file" in said


def test_areas_as_in_coco(tmp_path, picture):
    (tmp_path / "a.jpg").write_bytes(picture(200, 200))
    sides = (10, 32, 33, 96, 97)
    boxes = [
        {"id": k, "image_id": 0, "category_id": k % 2, "bbox": [0, 0, s, s]} for k, s in enumerate(sides)
    ]
    content = {
        "images": [{"id": 0, "file_name": "a.jpg", "width": 200, "height": 200}],
        "annotations": boxes,
        "categories": [{"id": 0, "name": "ant"}, {"id": 1, "name": "bee"}, {"id": 2, "name": "cat"}],
    }
    (tmp_path / "x.json").write_text(json.dumps(content))
    info = describe(open_dataset(tmp_path))
    assert (info.small, info.medium, info.large) == (2, 2, 1)
    assert info.classes == (("ant", 3), ("bee", 2), ("cat", 0))
    assert info.problems == ()


def test_masks_are_checked(tmp_path, picture):
    for name, values in (("a", [[0, 0, 1]]), ("b", [[1, 7, 255]]), ("c", [[1, 1, 1, 1]])):
        (tmp_path / "images").mkdir(exist_ok=True)
        (tmp_path / "masks").mkdir(exist_ok=True)
        (tmp_path / "images" / f"{name}.jpg").write_bytes(picture(3, 1))
        Image.fromarray(np.array(values, np.uint8)).save(tmp_path / "masks" / f"{name}.png")
    (tmp_path / "images" / "d.jpg").write_bytes(picture(3, 1))
    (tmp_path / "masks" / "d.png").write_bytes(picture(3, 1, "PNG", "RGB"))
    (tmp_path / "classes.txt").write_text("road\nsky\n")
    dataset = open_dataset(tmp_path)
    assert count(describe(dataset)) == {kinds.SIZE_DIFFERS: 1, kinds.UNREADABLE_LABEL: 1}


def test_embedded_masks_are_counted():
    info = describe(open_dataset("signs:0:2", task="segment"))
    assert sum(pixels for _, pixels in info.classes) == 2 * 640 * 480


def test_embedded_set():
    info = describe(open_dataset("signs:0:3", task="single"))
    assert (info.images, info.boxes, info.unreadable) == (3, 3, 0)
    assert sum(number for _, number in info.classes) == 3


def test_text_names_what_matters(mixed):
    said = text(describe(open_dataset(mixed)))
    for part in ("coco", "8 (2 more cannot be read)", "40×30", "6 (1 crowd)", "stop", "problems  5"):
        assert part in said, part
    assert "empty.jpg: the file is empty (0 bytes)" in said
    assert "unusual image: 4 (note)" in said
    assert "… and 3 more" in text(describe(open_dataset(mixed)), most=1)


def test_dict_is_json_and_holds_every_problem(mixed):
    info = describe(open_dataset(mixed))
    plain = orjson.loads(orjson.dumps(as_dict(info)))
    assert sum(group["count"] for group in plain["problems"]) == len(info.problems)
    assert all(len(group["all"]) == group["count"] for group in plain["problems"])
    assert plain["sizes"]["distinct"] == [[40, 30, 7], [20, 10, 1]]
    assert plain["classes"] == [{"name": "stop", "count": 6}]


def test_many_images_in_little_memory(tmp_path, picture):
    (tmp_path / "ant").mkdir()
    data = picture(640, 480) + b"\0" * 100_000
    for number in range(1000):
        (tmp_path / "ant" / f"{number}.jpg").write_bytes(data)
    dataset = open_dataset(tmp_path)
    tracemalloc.start()
    info = describe(dataset)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert info.images == 1000
    assert info.problems == ()  # padding behind the end mark is harmless
    assert peak < 8 << 20

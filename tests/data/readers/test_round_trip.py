"""A random dataset written in each format is read back equal. A new format adds one writer."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.core import registry
from holdfast.core.types import Boxes, Label, MaskFile
from holdfast.data.open import open_dataset, recognise

CLASSES = ("apple", "bus", "cat")


@dataclass(frozen=True)
class Thing:
    x: int
    y: int
    width: int
    height: int
    category: int
    flag: bool  # crowd or difficult, whichever the format knows

    @property
    def xyxy(self) -> list[int]:
        return [self.x, self.y, self.x + self.width, self.y + self.height]


@dataclass(frozen=True)
class Scene:
    name: str
    width: int
    height: int
    things: tuple[Thing, ...]


@st.composite
def scenes(draw, fewest: int = 0, most: int = 4) -> Scene:
    width, height = draw(st.integers(4, 40)), draw(st.integers(4, 40))

    def thing() -> Thing:
        x, y = draw(st.integers(0, width - 1)), draw(st.integers(0, height - 1))
        sides = draw(st.integers(1, width - x)), draw(st.integers(1, height - y))
        return Thing(x, y, *sides, draw(st.integers(0, len(CLASSES) - 1)), draw(st.booleans()))

    things = tuple(thing() for _ in range(draw(st.integers(fewest, most))))
    letters = st.text("abcdeföü 0123456789-_", min_size=1, max_size=8).map(str.strip).filter(bool)
    return Scene(draw(letters) + ".jpg", width, height, things)


def data(fewest: int = 0, most: int = 4):
    return st.lists(scenes(fewest, most), min_size=1, max_size=4, unique_by=lambda scene: scene.name)


Put = Callable[[Path, Scene], None]


def write_coco(root: Path, given_scenes: list[Scene], put: Put) -> None:
    ids = [7, 0, 90]  # any order, 0 is legal
    annotations = []
    for number, scene in enumerate(given_scenes):
        put(root / "images" / scene.name, scene)
        for thing in scene.things:
            box = [thing.x, thing.y, thing.width, thing.height]
            annotations.append(
                {
                    "id": len(annotations),
                    "image_id": number,
                    "category_id": sorted(ids)[thing.category],
                    "bbox": box,
                    "area": thing.width * thing.height,
                    "iscrowd": int(thing.flag),
                    "segmentation": [[1, 2, 3, 4, 5, 6]],
                }
            )
    images = [
        {"id": number, "file_name": scene.name, "width": scene.width, "height": scene.height}
        for number, scene in enumerate(given_scenes)
    ]
    names = dict(zip(sorted(ids), CLASSES, strict=True))
    categories = [{"id": key, "name": names[key]} for key in ids]
    content = {"images": images, "annotations": annotations, "categories": categories}
    (root / "annotations.json").write_text(json.dumps(content))


def write_voc(root: Path, given_scenes: list[Scene], put: Put) -> None:
    (root / "Annotations").mkdir()
    for scene in given_scenes:
        put(root / "JPEGImages" / scene.name, scene)
        objects = "".join(
            f"<object><name>{CLASSES[t.category]}</name><difficult>{int(t.flag)}</difficult><bndbox>"
            + "".join(
                f"<{k}>{v}</{k}>" for k, v in zip(("xmin", "ymin", "xmax", "ymax"), t.xyxy, strict=True)
            )
            + "</bndbox></object>"
            for t in scene.things
        )
        size = f"<size><width>{scene.width}</width><height>{scene.height}</height></size>"
        text = f"<annotation><filename>{scene.name}</filename>{size}{objects}</annotation>"
        (root / "Annotations" / f"{Path(scene.name).stem}.xml").write_text(text, "utf-8")


def write_yolo(root: Path, given_scenes: list[Scene], put: Put) -> None:
    (root / "labels" / "val").mkdir(parents=True)
    for scene in given_scenes:
        put(root / "images" / "val" / scene.name, scene)
        lines = [
            f"{t.category} {(t.x + t.width / 2) / scene.width!r} {(t.y + t.height / 2) / scene.height!r} "
            f"{t.width / scene.width!r} {t.height / scene.height!r}"
            for t in scene.things
        ]
        (root / "labels" / "val" / f"{Path(scene.name).stem}.txt").write_text("\n".join(lines), "utf-8")
    (root / "data.yaml").write_text(
        yaml.safe_dump({"path": ".", "val": "images/val", "names": list(CLASSES)})
    )


def write_cctsdb(root: Path, given_scenes: list[Scene], put: Put) -> None:
    lines = []
    for scene in given_scenes:
        put(root / "images" / scene.name, scene)
        for thing in scene.things:
            corners = ";".join(map(str, thing.xyxy))
            lines.append(f"{scene.name};{corners};{CLASSES[thing.category]}")
    (root / "gt.txt").write_text("\n".join(lines), "utf-8")


def write_cctsdb_yolo(root: Path, given_scenes: list[Scene], put: Put) -> None:
    (root / "gt_labels").mkdir()
    for scene in given_scenes:
        put(root / "images" / scene.name, scene)
        x1, y1, x2, y2 = scene.things[0].xyxy
        w, h = scene.width, scene.height
        line = f"{scene.things[0].category} {x1 / w!r} {y1 / h!r} {x2 / w!r} {y2 / h!r}"
        (root / "gt_labels" / f"{Path(scene.name).stem}.txt").write_text(line)


def write_folder(root: Path, given_scenes: list[Scene], put: Put) -> None:
    for scene in given_scenes:
        put(root / CLASSES[scene.things[0].category] / scene.name, scene)


def write_listing(root: Path, given_scenes: list[Scene], put: Put) -> None:
    for scene in given_scenes:
        put(root / "images" / scene.name, scene)
    lines = [f"{scene.name} {scene.things[0].category}" for scene in given_scenes]
    (root / "val.txt").write_text("\n".join(lines), "utf-8")
    (root / "classes.txt").write_text("\n".join(CLASSES))


def mask_of(scene: Scene) -> np.ndarray:
    mask = np.full((scene.height, scene.width), 255, np.uint8)
    for thing in scene.things:
        mask[thing.y : thing.y + thing.height, thing.x : thing.x + thing.width] = thing.category
    return mask


def write_masks(root: Path, given_scenes: list[Scene], put: Put) -> None:
    from PIL import Image

    (root / "masks").mkdir()
    for scene in given_scenes:
        put(root / "images" / scene.name, scene)
        Image.fromarray(mask_of(scene)).save(root / "masks" / f"{Path(scene.name).stem}.png")
    content = {"images": "images", "masks": "masks", "classes": dict(enumerate(CLASSES))}
    (root / "set.yaml").write_text(yaml.safe_dump(content))


def write_cityscapes(root: Path, given_scenes: list[Scene], put: Put) -> None:
    from PIL import Image

    for scene in given_scenes:
        stem = f"aachen_{Path(scene.name).stem}"
        put(root / "leftImg8bit" / "val" / "aachen" / f"{stem}_leftImg8bit.png", scene)
        labels = root / "gtFine" / "val" / "aachen" / f"{stem}_gtFine_labelTrainIds.png"
        labels.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(mask_of(scene)).save(labels)


WRITERS = {
    "cityscapes": write_cityscapes,
    "coco": write_coco,
    "voc": write_voc,
    "yolo": write_yolo,
    "cctsdb": write_cctsdb,
    "cctsdb-yolo": write_cctsdb_yolo,
    "folder": write_folder,
    "listing": write_listing,
    "masks": write_masks,
}
BOXES = ("coco", "voc", "yolo", "cctsdb")


def test_every_format_has_a_writer_here():
    known = {name for name in registry.names("reader") if "recognise" in registry.part("reader", name).facts}
    assert known == set(WRITERS)


def written(name: str, given_scenes: list[Scene], factory, picture) -> Path:
    root = factory.mktemp(name)

    def put(path: Path, scene: Scene) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(scene.width, scene.height))

    WRITERS[name](root, given_scenes, put)
    return root


same = settings(
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)


@pytest.mark.parametrize("name", BOXES)
@same
@given(given_scenes=data())
def test_boxes(name, given_scenes, tmp_path_factory, picture):
    if name == "cctsdb":  # a file of boxes: an image without any does not occur in it
        given_scenes = [scene for scene in given_scenes if scene.things]
    if not any(scene.things for scene in given_scenes):
        return
    root = written(name, given_scenes, tmp_path_factory, picture)
    found = open_dataset(root)
    assert (found.format, found.task, found.problems) == (name, "detect", ())
    assert recognise(root)[0][0].name == name
    samples = {Path(entry.name).name: entry.load() for entry in found.entries}
    assert set(samples) == {scene.name for scene in given_scenes}
    for scene in given_scenes:
        truth = samples[scene.name].truth
        assert isinstance(truth, Boxes)
        assert samples[scene.name].data == picture(scene.width, scene.height)
        np.testing.assert_allclose(truth.xyxy, np.reshape([t.xyxy for t in scene.things], (-1, 4)), atol=1e-9)
        assert [found.classes[k] for k in truth.classes] == [CLASSES[t.category] for t in scene.things]
        np.testing.assert_allclose(truth.areas, [t.width * t.height for t in scene.things])
        flags = [t.flag for t in scene.things]
        assert truth.crowd.tolist() == (flags if name == "coco" else [False] * len(flags))
        assert truth.difficult.tolist() == (flags if name == "voc" else [False] * len(flags))


@same
@given(given_scenes=data(1, 1))
def test_one_box(given_scenes, tmp_path_factory, picture):
    found = open_dataset(written("cctsdb-yolo", given_scenes, tmp_path_factory, picture))
    assert (found.format, found.task, found.problems) == ("cctsdb-yolo", "single", ())
    wanted = {scene.name: scene.things[0] for scene in given_scenes}
    for entry in found.entries:
        truth = entry.load().truth
        np.testing.assert_allclose(truth.xyxy, [wanted[entry.name].xyxy], atol=1e-9)
        assert truth.classes.tolist() == [wanted[entry.name].category]


@pytest.mark.parametrize("name", ["folder", "listing"])
@same
@given(given_scenes=data(1, 1))
def test_labels(name, given_scenes, tmp_path_factory, picture):
    found = open_dataset(written(name, given_scenes, tmp_path_factory, picture))
    assert (found.format, found.task, found.problems) == (name, "classify", ())
    wanted = {scene.name: CLASSES[scene.things[0].category] for scene in given_scenes}
    samples = [entry.load() for entry in found.entries]
    assert all(isinstance(sample.truth, Label) for sample in samples)
    assert {Path(s.name).name: found.classes[s.truth.index] for s in samples} == wanted


@same
@given(given_scenes=data())
def test_masks(given_scenes, tmp_path_factory, picture):
    from io import BytesIO

    from PIL import Image

    found = open_dataset(written("masks", given_scenes, tmp_path_factory, picture))
    assert (found.format, found.task, found.problems) == ("masks", "segment", ())
    assert (found.classes, found.ignore_index) == (CLASSES, 255)
    wanted = {scene.name: mask_of(scene) for scene in given_scenes}
    assert len(found) == len(wanted)
    for entry in found.entries:
        truth = entry.load().truth
        assert isinstance(truth, MaskFile)
        np.testing.assert_array_equal(np.asarray(Image.open(BytesIO(truth.data))), wanted[entry.name])


@same
@given(given_scenes=data())
def test_cityscapes(given_scenes, tmp_path_factory, picture):
    from io import BytesIO

    from PIL import Image

    found = open_dataset(written("cityscapes", given_scenes, tmp_path_factory, picture))
    assert (found.format, found.task, found.problems) == ("cityscapes", "segment", ())
    assert len(found) == len(given_scenes)
    wanted = {f"aachen_{Path(scene.name).stem}_leftImg8bit.png": mask_of(scene) for scene in given_scenes}
    for entry in found.entries:
        mask = np.asarray(Image.open(BytesIO(entry.load().truth.data)))
        np.testing.assert_array_equal(mask, wanted[Path(entry.name).name])

import re
from io import BytesIO
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from holdfast.core.types import Boxes, Detections, Size
from holdfast.engine.records import DetectionRecord
from holdfast.evaluate.detect_page import matched_detections, worst
from holdfast.report.gallery import (
    FILE_LIMIT,
    FRAME,
    GalleryImage,
    Mark,
    WorstImages,
    gallery,
    overlay,
    thumbnail,
)


def encoded(width, height, mode="RGB", form="PNG"):
    out = BytesIO()
    Image.new(mode, (width, height), 100).save(out, format=form)
    return out.getvalue()


@pytest.mark.parametrize(
    ("mode", "form"), [("RGB", "JPEG"), ("CMYK", "JPEG"), ("L", "PNG"), ("RGBA", "PNG"), ("I;16", "PNG")]
)
def test_thumbnails_of_any_kind_fit_the_frame(mode, form):
    small = Image.open(BytesIO(thumbnail(encoded(1280, 400, mode, form))))
    assert (small.format, small.size) == ("JPEG", (640, 200))


def test_small_pictures_are_not_enlarged():
    assert Image.open(BytesIO(thumbnail(encoded(64, 48)))).size == (64, 48)


def test_a_thumbnail_of_noise_stays_below_the_limit():
    noise = np.random.default_rng(0).integers(0, 255, (480, 640, 3), dtype=np.uint8)
    out = BytesIO()
    Image.fromarray(noise).save(out, format="PNG")
    assert len(thumbnail(out.getvalue())) <= FILE_LIMIT


def test_what_is_no_picture_gives_none():
    assert thumbnail(None) is None
    assert thumbnail(b"") is None
    assert thumbnail(b"not a picture") is None


def drawn(size, marks, jpeg=None):
    tree = ElementTree.fromstring(overlay(jpeg, size, marks, "t"))  # noqa: S314 (our own)
    return tree, {
        kind: [e for e in tree.iter() if e.get("class", "").split()[-1:] == [kind]]
        for kind in ("truth", "wrong")
    }


def test_boxes_are_scaled_with_the_picture_and_centred():
    _, found = drawn(Size(320, 120), [Mark((10, 20, 30, 50), "truth")])
    box = found["truth"][0]
    assert [float(box.get(k)) for k in ("x", "y", "width", "height")] == [20, 160, 40, 60]


def test_labels_stay_in_the_frame_and_do_not_overlap():
    rng = np.random.default_rng(1)
    marks = [
        Mark((x, y, x + 20, y + 20), "wrong", f"speed-limit-{i} 0.9")
        for i, (x, y) in enumerate(rng.uniform(0, 460, (30, 2)))
    ]
    tree, _ = drawn(Size(640, 480), marks)
    rows = [
        (float(e.get("x")), float(e.get("y")), "end" in e.get("class"))
        for e in tree.iter("text")
        if "tag" in e.get("class")
    ]
    assert 5 < len(rows) <= 30
    assert all(0 <= x <= FRAME.width and 0 < y <= FRAME.height for x, y, _ in rows)
    lefts = [(x - 150 if end else x, y) for x, y, end in rows]
    near = [
        (a, b)
        for i, a in enumerate(lefts)
        for b in lefts[:i]
        if abs(a[0] - b[0]) < 60 and abs(a[1] - b[1]) < 10
    ]
    assert near == []


def test_in_a_crowd_only_what_is_wrong_is_labelled():
    places = [(100 * (i % 5), 60 * (i // 5)) for i in range(20)]
    marks = [Mark((x, y + 20, x + 20, y + 40), "right", f"r{i}") for i, (x, y) in enumerate(places)]
    few, _ = drawn(Size(640, 480), [*marks[:3], Mark((600, 440, 620, 460), "wrong", "w")])
    many, _ = drawn(Size(640, 480), [*marks, Mark((600, 440, 620, 460), "wrong", "w")])
    labels = [sorted(e.text for e in tree.iter("text") if "tag" in e.get("class")) for tree in (few, many)]
    assert labels == [["r0", "r1", "r2", "w"], ["w"]]


def test_every_box_tells_what_it_is_also_without_a_label():
    tree, _ = drawn(Size(64, 64), [Mark((0, 0, 9, 9), "wrong", "<b> 0.9")])
    assert "wrong: <b> 0.9" in [e.text for e in tree.iter("title")]


def record(name, truth, found):
    classes, scores = [c for _, c, _ in found], [s for _, _, s in found]
    boxes = np.array([b for b, _, _ in found], float).reshape(-1, 4)
    true = np.array([b for b, _ in truth], float).reshape(-1, 4)
    return DetectionRecord(
        name, Size(100, 100), Boxes(true, np.array([c for _, c in truth], int)),
        Detections(boxes, np.array(scores), np.array(classes, int)),
    )  # fmt: skip


A, B = (0, 0, 20, 20), (50, 50, 90, 90)


def test_worst_counts_missed_boxes_and_the_scores_of_false_detections(scored):
    records = [
        record("right", [(A, 0)], [(A, 0, 0.9)]),
        record("missed two", [(A, 0), (B, 1)], []),
        record("confused", [(A, 0)], [(A, 1, 0.8)]),
        record("invented", [], [(B, 0, 0.7)]),
        record("unsure", [], [(B, 0, 0.4)]),
    ]
    ranked = worst(matched_detections(scored("detect", ["a", "b"], records)))
    assert [shot.name for shot in ranked.shots] == ["missed two", "confused", "invented"]
    assert [shot.summary for shot in ranked.shots] == [
        "error 2.00: 2 missed",
        "error 1.80: 1 of the wrong class",
        "error 0.70: 1 false positive",
    ]
    marks = [[(m.kind, m.text) for m in shot.marks] for shot in ranked.shots]
    assert marks[0] == [("missed", "a"), ("missed", "b")]
    assert marks[1] == [("missed", "a"), ("wrong", "b 0.80")]
    assert marks[2] == [("wrong", "a 0.70")]


def test_the_gallery_asks_for_at_most_twelve_and_keeps_to_its_budget():
    asked = []

    def picture(name):
        asked.append(name)
        return encoded(320, 240)

    shots = tuple(GalleryImage(f"i{n}", Size(320, 240), (), "s") for n in range(30))
    body = gallery(WorstImages("d", shots), picture, 10_000_000).figures[0].body
    assert asked == [f"i{n}" for n in range(12)]
    assert body.count("data:image") == 12
    cost = len(re.search(r"base64,([^\"]*)", body).group(1))
    section = gallery(WorstImages("d", shots), picture, cost * 3 + 10)
    assert section.figures[0].body.count("data:image") == 3
    assert section.figures[0].note.startswith("9 images are not shown")

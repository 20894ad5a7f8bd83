import base64
import dataclasses
import hashlib
import io
import re

import numpy as np
import pytest
from PIL import Image

from helpers.pages import Reader
from holdfast.core.errors import InputError, OutputError
from holdfast.core.types import Boxes, Size, no_detections
from holdfast.engine.records import DetectionRecord
from holdfast.evaluate.page import page, write
from holdfast.evaluate.result import Evaluation
from holdfast.report.html import SIZE_LIMIT, data_uri, document, picture_uri, write_page
from holdfast.report.parts import Card, Document, Figure, Section

NAMES = ["stop", "no-entry", "speed-limit-30"]


def pages(made, photo):
    for task, maker in made.items():
        yield task, page(maker(NAMES), photo)


def test_every_task_has_a_page_that_is_well_formed(made, photo):
    for task, text in pages(made, photo):
        reader = Reader(text)
        assert reader.all("html") == [{"lang": "en"}], task
        assert len(reader.all("h1")) == 1
        identifiers = [attrs["id"] for _, attrs in reader.tags if "id" in attrs]
        assert len(identifiers) == len(set(identifiers))
        links = [a["href"] for a in reader.all("a")]
        assert {link[1:] for link in links} <= set(identifiers)
        for svg in reader.all("svg"):
            assert svg.get("role") == "img" or svg.get("aria-hidden") == "true"


def test_nothing_is_loaded_from_outside(made, photo):
    for _, text in pages(made, photo):
        for _, attrs in Reader(text).tags:
            for name in ("src", "href", "xlink:href", "action", "data", "poster", "srcset"):
                assert name not in attrs or attrs[name].startswith(("#", "data:")), attrs
            assert "style" not in attrs  # the policy would refuse it
            assert not [name for name in attrs if name.startswith("on")]
        assert not re.search(r"https?:|@import|url\(|//[a-z]+\.", re.sub(r"base64,[^\"]*", "", text))


def test_the_policy_allows_exactly_the_inline_style_and_script(made, photo):
    text = page(made["detect"](NAMES), photo)
    policy = next(a["content"] for a in Reader(text).all("meta") if "http-equiv" in a)
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        bodies = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        assert len(bodies) == 1
        digest = base64.b64encode(hashlib.sha256(bodies[0].encode()).digest()).decode()
        assert f"{rule} 'sha256-{digest}'" in policy


def test_hostile_names_stay_text(broken, photo):
    text = page(broken, photo)
    reader = Reader(text)
    assert len(reader.all("script")) == 1
    assert reader.all("img") == []
    assert not any("onerror" in attrs for _, attrs in reader.tags)
    assert any("<script>alert(1)</script>" in t for t in reader.texts("h1") + reader.texts("span"))


def test_failures_notes_guesses_and_problems_are_told(broken, photo):
    text = page(broken, photo)
    assert "1 of 13 images failed and is not included in the numbers" in text
    assert "1 property of the model is guessed" in text
    assert "7 problems found in the data" in text
    assert "The first 1 of 7." in text
    assert "Failed images (1)" in text


def test_the_page_without_trouble_has_no_alert(made, photo):
    text = page(made["detect"](NAMES), photo)
    assert 'class="alert"' not in text
    assert 'id="trouble"' not in text


@pytest.mark.parametrize("rule", ["coco", "voc", "voc2007", "lecture"])
def test_the_numbers_are_those_of_the_result(made, photo, rule):
    made_up = made["detect"](NAMES, rule=rule)
    reader = Reader(page(made_up, photo))
    shown = reader.texts("span")
    for value in made_up.result["metrics"].values():
        assert ("n/a" if value is None else f"{value:.3f}") in shown
    cells = [attrs.get("data-value") for attrs in reader.all("td")]
    for row in made_up.result["per_class"]:
        for key, value in row.items():
            assert key == "class" or ("" if value is None else str(value)) in cells
    assert made_up.result["rule"] in " ".join(reader.texts("p"))


@pytest.mark.parametrize(
    ("n", "basis", "few"), [(19, "n = 19, indication", True), (20, "n = 20", False), (None, "", False)]
)
def test_a_card_has_its_n_beside_it_and_few_images_are_an_indication(n, basis, few):
    card = Card("mAP", 0.5, "rule voc", n=n)
    text = document(
        Document(title="t", subject=("a", "b"), facts=(), cards=(card,), minor=(card,), sections=())
    )
    assert re.findall(r'<small class="basis">(.*?)</small>', text) == ([basis] if basis else [])
    assert text.count('<li class="few"') == 2 * few
    assert f'title="rule voc{", " if basis else ""}{basis}"' in text


def test_new_metrics_and_columns_appear_by_themselves(made, photo):
    base = made["detect"](NAMES)
    rows = [{**row, "brightness": 0.4321} for row in base.result["per_class"]]
    result = {**base.result, "metrics": {**base.result["metrics"], "luck": 0.777}, "per_class": rows}
    reader = Reader(page(dataclasses.replace(base, result=result), photo))
    assert "luck" in reader.texts("span")
    assert "0.777" in reader.texts("span")
    assert "brightness" in reader.texts("button")
    assert "0.432" in reader.texts("td")


def test_one_class_a_hundred_classes_and_a_thousand(made, photo):
    one = page(made["detect"](["sign"]), photo)
    assert "mean of all classes" not in one
    many = page(made["detect"]([f"class-{i}" for i in range(100)], images=60), photo)
    assert "The 3 weakest classes are named" in many
    most = page(made["detect"]([f"class-{i}" for i in range(1000)], images=160, boxes=12), photo)
    assert "Only the 100 classes with the most errors are drawn." in most
    for text in (one, many, most):
        Reader(text)
        assert len(text.encode()) < SIZE_LIMIT


def test_large_pictures_are_made_small(made):
    from io import BytesIO

    from PIL import Image

    noise = np.random.default_rng(0).integers(0, 255, (700, 900, 3), dtype=np.uint8)
    out = BytesIO()
    Image.fromarray(noise).save(out, format="PNG")
    text = page(made["detect"](NAMES, images=20), lambda name: out.getvalue())
    assert len(text.encode()) < SIZE_LIMIT
    assert text.count("data:image/jpeg;base64,") == 12


def test_pictures_that_are_not_there_or_damaged_are_said_to_be(made):
    for answer in (None, b"", b"\xff\xd8\xff garbage"):
        text = page(made["detect"](NAMES), lambda name, answer=answer: answer)
        assert "image not available" in text
        assert "data:image/jpeg" not in text


def test_an_evaluation_without_errors_has_no_gallery(made, photo):
    base = made["detect"](["a"])
    record = base.records[0]
    perfect = DetectionRecord(
        "p.jpg", record.size, Boxes(record.truth.xyxy[:0], record.truth.classes[:0]), no_detections()
    )
    text = page(dataclasses.replace(base, records=(perfect,)), photo)
    Reader(text)
    assert 'id="worst"' not in text


def test_an_evaluation_without_records_has_a_page(made, photo):
    for maker in made.values():
        base = maker(NAMES)
        metrics = dict.fromkeys(base.result["metrics"])
        empty = dataclasses.replace(
            base, records=(), result={**base.result, "metrics": metrics, "per_class": []}
        )
        text = page(empty, photo)
        Reader(text)
        assert "nothing to show" in text
        assert "n/a" in text


def test_an_unknown_task_is_named(made, photo):
    base = made["detect"](NAMES)
    wrong: Evaluation = dataclasses.replace(base, about=dataclasses.replace(base.about, task="dance"))
    with pytest.raises(InputError, match="got 'dance'"):
        page(wrong, photo)


def test_write_makes_the_folder_and_the_page(made, photo, tmp_path):
    out = tmp_path / "deep" / "report.html"
    assert write(made["single"](NAMES), out, photo) == out
    assert out.read_text("utf-8").startswith("<!doctype html>")
    assert [p.name for p in out.parent.iterdir()] == ["report.html"]


def test_write_refuses_a_folder_and_a_file_as_folder(made, photo, tmp_path):
    with pytest.raises(OutputError, match="is a folder; give the name of the page"):
        write(made["single"](NAMES), tmp_path, photo)
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="choose another folder"):
        write(made["single"](NAMES), tmp_path / "file" / "report.html", photo)


def test_a_detection_outside_the_size_is_no_problem(made, photo):
    base = made["detect"](NAMES)
    tiny = tuple(dataclasses.replace(r, size=Size(1, 1)) for r in base.records)
    Reader(page(dataclasses.replace(base, records=tiny), photo))


def test_a_page_is_written_to_a_file_but_not_over_a_folder(tmp_path):
    out = tmp_path / "new" / "page.html"
    assert write_page("<p>é</p>", out) == out
    assert out.read_text("utf-8") == "<p>é</p>"
    with pytest.raises(OutputError, match=r"new: is a folder; give the name .*, such as .*new.noise\.html"):
        write_page("", out.parent, "noise.html")


def test_bytes_and_pictures_are_embedded_as_uris():
    assert data_uri(b"\xff\x00", "audio/wav") == "data:audio/wav;base64,/wA="
    pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    kind, _, data = picture_uri(pixels, "PNG", optimize=True).partition(",")
    assert kind == "data:image/png;base64"
    picture = Image.open(io.BytesIO(base64.b64decode(data)))
    assert np.array_equal(np.asarray(picture), pixels)
    assert picture_uri(picture, "PNG", optimize=True) == f"{kind},{data}"


def test_a_section_without_figures_is_collapsed_to_a_line():
    sections = (
        Section("found", "Findings", (), "No answer changed. 6 answers were rechecked."),
        Section("proofs", "Proofs", (), "This section lists proofs.", summary="Not measured: not requested."),
        Section("numbers", "Numbers", (Figure("", "<p>1</p>"),)),
    )
    text = document(Document(title="t", subject=("m", "d"), facts=(), sections=sections))
    reader = Reader(text)
    assert reader.all("details") == [{"class": "empty"}] * 2  # closed
    assert re.findall(r'<a href="#(\w+)">', text.split("<nav", 1)[1].split("</nav>")[0]) == [
        "found", "proofs", "numbers",
    ]  # fmt: skip
    lines = re.findall(r'<span class="lead">(.*?)</span></summary>\s*<p class="lead">(.*?)</p>', text)
    assert lines == [
        ("No answer changed.", "6 answers were rechecked."),
        ("Not measured: not requested.", "This section lists proofs."),
    ]

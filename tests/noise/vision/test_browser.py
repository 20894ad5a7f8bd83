"""The noise pages in a real browser: the last column is seen, what scrolls says so, phones show the plot."""

from dataclasses import replace

import numpy as np
import pytest

from helpers.browser import needs_browser, opened_browser
from holdfast.diagnose import page as diagnose
from holdfast.diagnose.losses import DeploymentLoss, DifferenceLoss
from holdfast.diagnose.run import Diagnosis
from holdfast.noise.vision import page as noise
from holdfast.noise.vision import show as noise_pictures
from holdfast.noise.vision.result import ModelNoise, NoiseRow, NoiseSuite
from holdfast.noise.vision.show import compare_images
from holdfast.report.tables import Table
from holdfast.stages.families import option

pytestmark = needs_browser
FAMILIES = ("decode", "resize", "colour", "upsample", "ceil", "runtime", "boxes")
LONG = "not installed: a library of a rather long name is not installed: pip install 'holdfast[library]'"


def row(family, name, drop=12.34, note=""):
    return NoiseRow(family, name, "measured", note, 0.8, drop, drop - 5, drop + 5, 12, 500, 0)


def suite():
    """Two detectors with every family of the paper, each of several options: as wide and long as it gets."""
    named = [row(f, f"{f}-of-library-{i}", 12.34 + i, LONG) for f in FAMILIES for i in range(5)]
    precisions = [row("precision", name) for name in ("bf16", "fp16", "int8")]
    rows = (*named, *precisions, NoiseRow("decode", "dali", "not installed", LONG))
    together = row("combined", "decode=decode-of-library-4 + resize=resize-of-library-4")
    model = ModelNoise("efficientdet", "0" * 64, "detect", "mAP", 0.9, 500, rows, together, {"decode": "x"})
    return NoiseSuite("coco128", (model, replace(model, model="yolox_nano")), "holdfast noise", "now", 1.0)


@pytest.fixture(scope="module")
def browser():
    with opened_browser() as started:
        yield started


@pytest.fixture
def opened(browser):
    """A page opened at a width; closed after the test."""
    contexts = []

    def at(path, width):
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}))
        page = contexts[-1].new_page()
        page.goto(path.as_uri())
        return page

    yield at
    for context in contexts:
        context.close()


def test_combined_is_within_its_panel_on_a_desk(opened, tmp_path):
    page = opened(noise.write(suite(), tmp_path / "n.html"), 1440)
    there = page.evaluate(
        """() => { const scroll = document.querySelector('#noise .scroll');
        return [...scroll.querySelectorAll('th')].filter((h) => h.textContent.includes('Combined')).map(
          (h) => h.getBoundingClientRect().right <= scroll.getBoundingClientRect().right + 0.5); }"""
    )
    assert there == [True]
    assert page.evaluate("document.documentElement.scrollWidth") == 1440


@pytest.mark.parametrize("width", [1440, 500])
def test_where_something_scrolls_its_edge_is_shaded(opened, tmp_path, width):
    """Pixels at the lower edge: shaded as long as there is more below, plain at the end."""
    import io

    from PIL import Image

    page = opened(noise.write(suite(), tmp_path / "n.html"), width)
    region = page.locator("#options-1 .scroll")
    more = region.evaluate("(s) => s.scrollHeight - s.clientHeight")
    assert more > 0
    assert region.get_attribute("tabindex") == "0"

    def darkest():
        shot = Image.open(io.BytesIO(region.screenshot())).convert("L")
        strip = np.asarray(shot)[-4:-2, shot.width // 2 :]
        return float(np.median(strip))

    before = darkest()
    region.evaluate("(s) => { s.scrollTop = s.scrollHeight; s.scrollLeft = s.scrollWidth; }")
    assert before < darkest() - 25


def test_a_phone_shows_the_whole_plot_with_its_numbers(opened, tmp_path):
    page = opened(noise.write(suite(), tmp_path / "n.html"), 500)
    ends = page.evaluate(
        """() => [...document.querySelectorAll('#options-1 .forest text')]
        .filter((t) => t.getClientRects().length)
        .map((t) => [t.textContent, t.getBoundingClientRect()])
        .map(([text, r]) => [text, r.left, r.right, r.height])"""
    )
    assert "12.34" in [text for text, *_ in ends]
    assert all(left >= 0 and right <= 500 for _, left, right, _ in ends)
    assert min(height for *_, height in ends) >= 10
    panel = page.locator("#options-1 .panel").first
    assert panel.evaluate("(p) => p.scrollWidth - p.clientWidth") <= 0


def heights(page, region):
    """The height of every row of a table's body."""
    return page.evaluate(
        """(region) => [...document.querySelectorAll(region + ' tbody tr')]
        .map((r) => r.getBoundingClientRect().height)""",
        region,
    )


def test_a_long_note_of_a_diagnosis_makes_no_row_a_tower(opened, tmp_path):
    note = "10 images, percentile 99.99, per channel, QDQ, 25 layers in 8 bits, the last layer in float32"
    shares = tuple(
        DifferenceLoss(name, 1.0, 0.0, 2.0, 1.0, 0.0, 2.0, 3, note)
        for name in ("precision=int8", "colour=nv12")
    )
    found = DeploymentLoss("top1", "classify", "", 100, 0.9, 0.8, 10.0, 5.0, 15.0, 12, shares, ())
    same = ", ".join(f"decode=fast-idct,runtime=library-{i}" for i in range(9))
    columns = ["", "options", "exact", "largest difference", "mean difference", "equivalent"]
    dump = Table(columns, [[1, "precision=fp16", "yes", "0", "0", same]])
    made = Diagnosis(loss=found, dumps=(dump,))
    out = diagnose.write(made, ("net", "p.jpg"), "holdfast diagnose", tmp_path / "d.html")
    page = opened(out, 500)
    for region in ("#losses", "#dump-1"):
        assert max(heights(page, region)) < 300, region
    assert page.evaluate("document.documentElement.scrollWidth") == 500


LINES = """(cells) => cells.flatMap((cell) => cell.textContent
  .split(/[\\s-]+/).filter(Boolean).map((word) => {
  const text = cell.firstChild, range = document.createRange(), start = text.textContent.indexOf(word);
  range.setStart(text, start); range.setEnd(text, start + word.length);
  return [word, range.getClientRects().length]; })).filter(([, lines]) => lines > 1)"""


@pytest.mark.parametrize("width", [1440, 500])
def test_no_word_is_broken(opened, tmp_path, width):
    stages = ("pillow", "rgb", "card", "pillow-bilinear", "card", "onnxruntime", "card", "none")
    pipeline = dict(
        zip(("decode", "colour", "fit", "resize", "normalise", "infer", "post", "boxes"), stages, strict=True)
    )
    made = suite()
    models = tuple(replace(m, pipeline=pipeline) for m in made.models)
    page = opened(noise.write(replace(made, models=models), tmp_path / "n.html"), width)
    for region in ("#options-1 tbody th", "#about .panel.wide td"):
        cells = page.locator(region)
        assert cells.count() > 2
        assert cells.evaluate_all(LINES) == []


def test_pictures_have_their_place_before_they_are_seen(opened, tmp_path):
    still = np.zeros((90, 120, 3), np.uint8)
    made = [compare_images(option("decode=fast-idct"), still, still + 9)] * 12
    out = noise_pictures.write(made, [], "p.jpg", tmp_path / "p.html", "holdfast noise show p.jpg")
    page = opened(out, 1440)
    seen = page.evaluate("[...document.images].map((i) => [i.complete, i.width, i.height, i.loading])")
    assert len(seen) == 36
    for complete, wide, high, loading in seen:
        assert complete
        assert loading != "lazy"
        assert wide / high == pytest.approx(120 / 90, rel=0.02)

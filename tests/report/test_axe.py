"""axe-core finds no serious fault of accessibility in any kind of page, in light and in dark."""

import dataclasses

import pytest

from helpers.audit import sample_audit
from helpers.browser import faults, needs_browser, opened_browser
from holdfast.audit import page as audit_page
from holdfast.audit.result import NO_THREAT, TRAINED, Audit, Clean, Matrix, MatrixCell
from holdfast.evaluate import page as evaluation
from holdfast.noise.vision import page as noise
from holdfast.noise.vision.result import ModelNoise, NoiseRow, NoiseSuite

pytestmark = needs_browser


def many_deployments() -> Audit:
    """An audit with 14 deployments, so that the matrix shows signs alone and scrolls."""
    names = (
        TRAINED,
        *(f"resize=vendor-{i}-bilinear-aligned" for i in range(12)),
        "resize=a + boxes=b + ceil=c",
    )
    met = tuple(
        MatrixCell(threat, name, 0.9 - 0.06 * place, 8, 5, 4, 10.0, 5.0, 15.0)
        for threat in ("none", "square")
        for place, name in enumerate(names)
    )
    return dataclasses.replace(sample_audit(), matrix=Matrix((NO_THREAT, "square"), names, met))


def bare() -> Audit:
    """An audit in which nearly nothing could be measured."""
    return Audit({"name": "net"}, {"name": "data"}, Clean("top1", "top-1", 0.5, None, None, 10, "top-1"))


@pytest.fixture(scope="module")
def browser():
    with opened_browser() as started:
        yield started


ROWS = (
    NoiseRow("decode", "opencv", "identical", "bit for bit the same", 0.9, 0.0, 0.0, 0.0, 0, 100, 100),
    NoiseRow("resize", "opencv-nearest", "measured", "", 0.85, 5.0, 3.0, 7.0, 9, 100, 0),
    NoiseRow("precision", "int8", "measured", "100 images", 0.89, 1.0, -2.0, 6.0, 8, 100, 100),
    NoiseRow("ceil", "ceil", "no effect", "no pool of stride over 1"),
)
NOISE = NoiseSuite(
    "data",
    (ModelNoise("net", "0" * 64, "detect", "mAP", 0.9, 100, ROWS, None, {"decode": "pillow"}, "", "voc"),),
    "holdfast noise net data",
    "now",
    1.0,
    {"numpy": "2"},
)


@pytest.fixture
def written(request, made, photo, tmp_path):
    """The path of the page of the kind asked for."""
    out = tmp_path / "page.html"
    kind = request.param
    if kind in made:
        return evaluation.write(made[kind](["stop", "no-entry", "yield"]), out, photo)
    if kind == "noise":
        return noise.write(NOISE, out)
    audits = {"audit": sample_audit, "audit of many deployments": many_deployments, "bare audit": bare}
    return audit_page.write(audits[kind](), out)


AUDITS = ("audit", "audit of many deployments", "bare audit")
OTHERS = ("noise", "detect", "classify", "segment", "single")


@pytest.mark.parametrize(
    ("written", "scheme"),
    [
        *((name, scheme) for name in AUDITS for scheme in ("light", "dark")),
        *((name, "light") for name in OTHERS),
        *(pytest.param(name, "dark", marks=pytest.mark.slow) for name in OTHERS),
    ],
    indirect=["written"],
)
def test_axe_finds_no_serious_fault(browser, written, scheme):
    context = browser.new_context(
        color_scheme=scheme, bypass_csp=True, viewport={"width": 1440, "height": 900}
    )
    page = context.new_page()
    page.goto(written.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    try:
        assert faults(page) == []
    finally:
        context.close()


def test_axe_is_really_asked(browser, tmp_path):
    (tmp_path / "bad.html").write_text(
        '<!doctype html><html lang="en"><title>bad</title><body><main><p style="color:#ccc;background:#fff">'
        "pale</p><button></button></main></body></html>"
    )
    context = browser.new_context(bypass_csp=True)
    page = context.new_page()
    page.goto((tmp_path / "bad.html").as_uri())
    try:
        found = faults(page)
    finally:
        context.close()
    assert any(fault.startswith("color-contrast") for fault in found)
    assert any(fault.startswith("button-name") for fault in found)

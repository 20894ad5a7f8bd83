"""The audit's page in a real browser: wide and narrow, by keyboard, on paper, and under its own policy."""

import dataclasses

import pytest

from helpers.audit import sample_audit
from helpers.browser import needs_browser, opened_browser
from holdfast.audit.page import show, write
from holdfast.audit.result import NO_THREAT, TRAINED, Matrix, MatrixCell

pytestmark = needs_browser
LONG = "a-name-of-a-vendor-that-has-no-end-and-never-breaks" * 2


@pytest.fixture(scope="module")
def browser():
    with opened_browser() as started:
        yield started


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A page with long names and more deployments than a screen is wide."""
    names = (TRAINED, f"resize={LONG}", *(f"decode=vendor-{i}" for i in range(12)))
    met = tuple(MatrixCell(t, d, 0.5, 8, 5, 4, 0.1, 0.05, 0.15) for t in (NO_THREAT, "square") for d in names)
    audit = sample_audit()
    audit = dataclasses.replace(
        audit,
        matrix=Matrix((NO_THREAT, "square"), names, met),
        model={**audit.model, "name": LONG.replace("-", "_")},
        noises=tuple(dataclasses.replace(c, label=f"resize={LONG}{c.label}") for c in audit.noises),
        command=f"holdfast audit {LONG}.onnx",
    )
    return write(audit, tmp_path_factory.mktemp("audit") / "report.html")


@pytest.fixture
def opened(browser, report):
    """Opens the report at a width; what the browser complains about fails the test."""
    contexts, complaints = [], []

    def at(width, height=900, scheme="light", **how):
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **how)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request",
            lambda asked: None if asked.url.startswith(("file:", "data:")) else complaints.append(asked.url),
        )
        page.goto(report.as_uri())
        return page

    yield at
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1440, 1024, 390, 320])
def test_nothing_is_wider_than_the_window(opened, width, scheme):
    page = opened(width, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_the_first_screen_has_verdict_bounds_and_matrix(browser, tmp_path):
    out = write(sample_audit(), tmp_path / "report.html")
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.goto(out.as_uri())
    try:
        for part in (".verdicts", ".bounds-list", "table.heat"):
            box = page.locator(part).bounding_box()
            assert box["y"] + box["height"] <= 900, part
    finally:
        context.close()


def test_a_command_opens_by_keyboard_and_is_copied(opened):
    page = opened(1440)
    summary = page.locator("#verdict summary").first
    code = page.locator("#verdict code").first
    assert not code.is_visible()
    summary.focus()
    page.keyboard.press("Enter")
    assert code.is_visible()
    assert code.inner_text() == "holdfast evaluate net.onnx scenes --rule voc"
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "copy"
    page.keyboard.press("Enter")
    button = page.locator("#verdict .copy").first
    button.filter(has_text="cop").or_(button.filter(has_text="selected")).wait_for()
    assert page.evaluate("document.activeElement.textContent") in ("copied", "selected")


def test_the_first_tab_stop_leads_to_the_content(opened):
    page = opened(1440)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('href')") == "#content"


def test_a_table_sorts_by_points(opened):
    page = opened(1440)
    heading = page.locator("#noises th button", has_text="points lost")
    heading.click()
    cells = page.locator("#noises tbody tr td:nth-child(2)").evaluate_all(
        "(all) => all.map((c) => c.dataset.value)"
    )
    assert [round(float(c)) for c in cells if c] == [9, 5, 1]
    assert cells[-1] == ""


def test_the_matrix_keeps_its_row_headings_in_view(opened):
    page = opened(390, 844)
    region = page.locator("#matrix .scroll")
    assert region.evaluate("(r) => r.scrollWidth > r.clientWidth")
    head = page.locator("table.heat tbody th").first
    before = head.bounding_box()["x"]
    region.evaluate("(r) => { r.scrollLeft = 300; }")
    assert abs(head.bounding_box()["x"] - before) <= 4


def test_on_paper_the_ground_is_light_and_commands_are_listed(opened):
    page = opened(1440, scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("#verdict code").first.is_visible()
    assert not page.locator("nav").is_visible()
    ink = page.evaluate("getComputedStyle(document.body).color")
    assert ink == "rgb(27, 33, 39)"


def test_a_notebook_draws_it_in_its_frame(browser, tmp_path):
    cell = show(sample_audit())._repr_html_()
    (tmp_path / "cell.html").write_text(f"<!doctype html><body><p>a notebook</p>{cell}</body>", "utf-8")
    context = browser.new_context(viewport={"width": 1100, "height": 900})
    page = context.new_page()
    page.goto((tmp_path / "cell.html").as_uri())
    try:
        frame = page.frame_locator("iframe")
        frame.locator("h1").wait_for()
        assert frame.locator(".verdicts > li").count() == 5
        frame.locator("#noises table.ready").wait_for()  # its script ran, and the policy let it
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgba(0, 0, 0, 0)"
    finally:
        context.close()

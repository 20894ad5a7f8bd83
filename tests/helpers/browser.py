"""A real browser for tests of pages: where it is, how it is started, and what axe-core says of a page."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from importlib import resources
from importlib.util import find_spec

import pytest

BROWSER = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
needs_browser = pytest.mark.skipif(
    BROWSER is None or find_spec("playwright") is None,
    reason="no Chromium or no playwright: scripts/install-browser.sh and pip install 'holdfast[dev]'",
)
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


@contextmanager
def opened_browser():
    """A Chromium without a window, closed at the end."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=QUIET)
        try:
            yield browser
        finally:
            browser.close()


def faults(page):
    """The serious and critical faults axe-core finds; the page must be open with its policy bypassed."""
    source = resources.files("axe_core_python").joinpath("axe.min.js").read_text("utf-8")
    page.add_script_tag(content=source)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{fault['id']}: {node['html'][:160]} {node['failureSummary'][:200]}"
        for fault in found["violations"]
        if fault["impact"] in ("serious", "critical")
        for node in fault["nodes"]
    ]

"""No page of the book links to a file or a heading that does not exist."""

import re
import subprocess
import sys
from importlib.util import find_spec

import pytest

from helpers.book import DOCS, ROOT, pages

LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.S | re.M)


def anchors(path):
    """The anchors of the headings of a Markdown file, as GitHub and MyST make them."""
    heads = re.findall(r"^#+ (.+)$", path.read_text("utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_somewhere(page):
    for link in LINK.findall(CODE.sub("", page.read_text("utf-8"))):
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        if "://" in link or target.is_relative_to(DOCS / "reference"):
            continue  # the generated pages are checked by the build
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_files_read_on_the_web_do_not_link_to_generated_pages(page):
    assert "docs/reference/" not in re.sub(r"`[^`]*`", "", page.read_text("utf-8"))


@pytest.mark.slow
@pytest.mark.skipif(find_spec("sphinx") is None, reason="needs holdfast[docs]")
def test_the_book_builds_without_warnings(tmp_path):
    words = [
        "-m",
        "sphinx",
        "-W",
        "-n",
        "-q",
        "-b",
        "html",
        "-d",
        tmp_path / "doctrees",
        DOCS,
        tmp_path / "html",
    ]
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "html" / "reference" / "commands" / "noise.html").is_file()
    assert (tmp_path / "html" / "searchindex.js").is_file()

"""The glossary defines the shared words, and the book avoids the words it replaced."""

import re

import pytest

from helpers.book import DOCS, ROOT, pages

AVOIDED = r"\bdata sets?\b|\bas trained\b|\bleft out\b|\bmended\b|\bmade again\b|\bgoes on\b|\d %"


def test_terms_are_sorted_and_have_one_entry_each():
    terms = re.findall(r"^(\S.*)\n    \S", (DOCS / "glossary.md").read_text("utf-8"), re.M)
    assert 30 <= len(terms) <= 50
    assert terms == sorted(set(terms), key=str.lower)


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_use_the_words_of_the_glossary(page):
    if page.stem not in ("changes", "contest.zh"):  # the changelog is history
        assert not re.findall(AVOIDED, page.read_text("utf-8"))

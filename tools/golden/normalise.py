"""Texts, JSON and pages with everything that may vary from run to run replaced by placeholders."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import holdfast

PACKAGE = str(Path(holdfast.__file__).parent)
DIGITS = 5  # significant digits of numbers that are compared
VARYING = re.compile(
    r"second|time|date|began|started|ended|duration|versions?$|host|machine|cpu|memory|size_mb|created|python|platform|"
    r"sha|hash|fingerprint|key$|speed|per_s", re.IGNORECASE
)  # fmt: skip
PATTERNS = (
    (re.compile(r"(?<![\w.])(?=[0-9a-f]*[a-f])[0-9a-f]{12,64}\b"), "<hash>"),
    (re.compile(r"\b(signs|clips|audit|noise|suite|attack)([\w.-]*?)-[0-9a-f]{6,11}\b"), r"\1\2-<hash>"),
    (re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|[+-]\d\d:\d\d)?)?"), "<date>"),
    (re.compile(r"\b\d+(\.\d+)? ?(ms|s|min|h|seconds?|minutes?|CPU s|MB|GB|kB|images/s)\b"), "<measured>"),
    (re.compile(r"(?m)^(seconds +)\S+"), r"\1<measured>"),
    (re.compile(r"\b\d+\.\d+\.\d+(\.\w+)?\b"), "<version>"),
    (re.compile(r"(?<![\w.])-?\d+\.\d+(e[+-]?\d+)?(?![\w.])"), lambda m: rounded(float(m[0]))),
)


def rounded(value: float) -> str:
    """A number with the digits that are compared; -0 is 0."""
    return f"{value:.{DIGITS}g}" if abs(value) > 1e-9 else "0"


def normalise_text(text: str, work: Path, *, progress: bool = True) -> str:
    """The text with paths, dates, times, hashes and long numbers replaced, and without progress lines."""
    text = text.replace(str(work), "<work>").replace(PACKAGE, "<holdfast>")
    if not progress:
        text = "\n".join(line for line in text.splitlines() if not re.search(r"\d+ of \d+|\d+/\d+|%", line))
    for pattern, replacement in PATTERNS:
        text = pattern.sub(replacement, text)
    return text.rstrip()


def normalise_file(path: Path, work: Path) -> str:
    """What is compared of a file: JSON without varying fields, the outline of a page, or the text."""
    text = path.read_text()
    if path.suffix in (".json", ".sarif"):
        return json.dumps(_plain(json.loads(text), work), indent=1, ensure_ascii=False)
    if path.suffix == ".html":
        return outline(text, work)
    return normalise_text(text, work)


def _plain(value: Any, work: Path) -> Any:
    if isinstance(value, dict):
        return {
            normalise_text(str(k), work): "<varies>" if VARYING.search(str(k)) else _plain(v, work)
            for k, v in value.items()
        }
    if isinstance(value, list):
        return [_plain(v, work) for v in value]
    if isinstance(value, float):
        return float(rounded(value))
    return normalise_text(value, work) if isinstance(value, str) else value


class _Outline(HTMLParser):
    """Headings, table rows, figures and captions of a page, in order."""

    BLOCKS = frozenset(
        {"h1", "h2", "h3", "h4", "caption", "figcaption", "tr", "summary", "p", "li", "dt", "dd", "title"}
    )
    SILENT = frozenset({"script", "style"})

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._text: list[str] = []
        self._tag = ""
        self._depth = 0  # inside script, style or svg

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "svg":
            self.lines.append("svg")
        if tag == "img":
            self.lines.append(f"img {dict(attrs).get('alt', '')}")
        if tag in self.SILENT or tag == "svg":
            self._depth += 1
        if tag in self.BLOCKS:
            self._flush()
            self._tag = tag
        if tag in ("td", "th"):
            self._text.append(" | ")

    def handle_endtag(self, tag: str) -> None:
        if tag in self.SILENT or tag == "svg":
            self._depth -= 1
        if tag in self.BLOCKS:
            self._flush()

    def handle_data(self, data: str) -> None:
        if not self._depth and self._tag:
            self._text.append(data)

    def _flush(self) -> None:
        text = " ".join("".join(self._text).split())
        if text:
            self.lines.append(f"{self._tag} {text}")
        self._text, self._tag = [], ""


def outline(page: str, work: Path) -> str:
    """The headings, tables, figures and paragraphs of a page, one per line."""
    parser = _Outline()
    parser.feed(page)
    return normalise_text("\n".join(parser.lines), work)

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
    (re.compile(r"\b[a-z]+\.[0-9a-f]{64}\b"), "<hash>"),  # the name of a setup
    (re.compile(r"(?<![\w.])(?=[0-9a-f]*[a-f])[0-9a-f]{12,64}\b"), "<hash>"),
    (re.compile(r"\b(signs|clips|audit|noise|suite|attack)([\w.-]*?)-[0-9a-f]{6,11}\b"), r"\1\2-<hash>"),
    (re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|[+-]\d\d:\d\d)?)?"), "<date>"),
    (re.compile(r"\b\d+(\.\d+)? ?(ms|s|min|h|seconds?|minutes?|CPU s|MB|GB|kB|images/s)\b"), "<measured>"),
    (re.compile(r"<measured> <measured>"), "<measured>"),  # 2 min 5 s
    (re.compile(r"(?m)^(seconds|tr \| seconds) .*"), r"\1 <measured>"),
    (re.compile(r"\btime=\"[\d.]+\""), 'time="<measured>"'),
    (re.compile(r"\b\d+\.\d+\.\d+(\.\w+)?\b"), "<version>"),
    (re.compile(r"(?<![\w.])-?\d+\.\d+(e[+-]?\d+)?(?![\w.])"), lambda m: rounded(float(m[0]))),
)


TIMES = frozenset({"s", "seconds", "CPU s", "mean s", "time"})  # columns of tables that are not compared


def rounded(value: float) -> str:
    """A number with the digits that are compared; -0 is 0."""
    return f"{value:.{DIGITS}g}" if abs(value) > 1e-9 else "0"


def normalise_text(text: str, work: Path, *, progress: bool = True) -> str:
    """The text with paths, dates, times, hashes and long numbers replaced, and without progress lines."""
    text = text.replace(str(work), "<work>").replace(PACKAGE, "<holdfast>")
    if not progress:
        shown = re.compile(r"\d+ of \d+|\d+/\d+|%|^[\d.]+ s: ")
        text = "\n".join(line for line in text.splitlines() if not shown.search(line))
    text = "\n".join(_without_times(text.splitlines()))
    for pattern, replacement in PATTERNS:
        text = pattern.sub(replacement, text)
    return text.rstrip()


def _without_times(lines: list[str]) -> list[str]:
    """The lines, with tables of aligned columns as cells between bars and columns of times replaced."""
    out: list[str] = []
    columns: list[tuple[int, int | None]] = []
    names: list[str] = []
    for line in lines:
        if re.fullmatch(r"─+(  ─+)+", line) and out:
            starts = [found.start() for found in re.finditer("─+", line)]
            columns = list(zip(starts, [*starts[1:], None], strict=True))
            names = [out[-1][a:b].strip() for a, b in columns]
            out[-1] = " | ".join(names)
        elif columns and line.strip():
            cells = [line[a:b].strip() for a, b in columns]
            out.append(" | ".join(_cell(name, cell) for name, cell in zip(names, cells, strict=True)))
        else:
            columns = []
            out.append(line)
    return out


def _cell(name: str, text: str) -> str:
    return "<measured>" if name in TIMES and text != name else text


def _csv(text: str) -> str:
    """The rows of a CSV file with columns of times replaced."""
    rows = [line.split(",") for line in text.splitlines()]
    return "\n".join(
        ",".join(map(_cell, rows[0], row)) if len(row) == len(rows[0]) else ",".join(row) for row in rows
    )


def normalise_file(path: Path, work: Path) -> str:
    """What is compared of a file: JSON without varying fields, the outline of a page, or the text."""
    text = path.read_text()
    if path.suffix in (".json", ".sarif"):
        return json.dumps(_plain(json.loads(text), work), indent=1, ensure_ascii=False)
    if path.suffix == ".csv":
        text = _csv(text)
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
        self._names: list[str] = []  # headings of the columns of the table at hand

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
        if tag == "table":
            self._names = []
        if tag in ("td", "th"):
            self._text.append("\0")

    def handle_endtag(self, tag: str) -> None:
        if tag in self.SILENT or tag == "svg":
            self._depth -= 1
        if tag in self.BLOCKS:
            self._flush()

    def handle_data(self, data: str) -> None:
        if not self._depth and self._tag:
            self._text.append(data)

    def _flush(self) -> None:
        cells = [" ".join(cell.split()) for cell in "".join(self._text).split("\0")]
        if self._tag == "tr" and len(self._names) != len(cells):
            self._names = cells
        elif self._tag == "tr":
            cells = [_cell(name, cell) for name, cell in zip(self._names, cells, strict=True)]
        text = " | ".join(cells).strip()
        if text:
            self.lines.append(f"{self._tag} {text}")
        self._text, self._tag = [], ""


def outline(page: str, work: Path) -> str:
    """The headings, tables, figures and paragraphs of a page, one per line."""
    parser = _Outline()
    parser.feed(page)
    return normalise_text("\n".join(parser.lines), work)

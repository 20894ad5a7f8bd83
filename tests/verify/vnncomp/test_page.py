import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from holdfast.core.errors import OutputError
from holdfast.report.charts.lines import cactus
from holdfast.report.tables import to_csv, to_text
from holdfast.verify.vnncomp.page import benchmark_table, disagreement_table, instance_table, page, write
from holdfast.verify.vnncomp.rules import RULES
from holdfast.verify.vnncomp.score import score

NASTY = '"><script>alert(1)</script>'


@pytest.fixture
def made(tmp_path):
    """A score of two tools on two benchmarks: they contradict one another once, names are hostile."""
    one, other = tmp_path / "a.csv", tmp_path / "b.csv"
    rows = [("bench", f"n{i}.onnx", f"p{i}.vnnlib") for i in range(4)] + [
        (NASTY, f"{NASTY}.onnx", "q.vnnlib")
    ]

    def table(answers):
        said = zip(rows, answers, strict=True)
        return "".join(
            '"{}","{}","{}",1,{},{}\n'.format(*(c.replace('"', '""') for c in r), *a) for r, a in said
        )

    one.write_text(table([("unsat", 1), ("unsat", 20), ("sat", 0.001), ("timeout", 100), ("unsat", 3)]))
    other.write_text(table([("unsat", 2), ("sat", 5), ("sat", 6), ("unsat", 70), ("unsat", 4)]))
    return score([f"{NASTY}={one}", f"peer={other}"], RULES["2021"])


def parsed(markup):
    tree = ElementTree.fromstring(f"<all>{markup}</all>")  # noqa: S314 (our own)
    assert not re.search(r"nan|inf\b", " ".join(v for e in tree.iter() for v in e.attrib.values()), re.I)
    return tree


def lines_of(tree):
    return {e.find("title").text: e for e in tree.iter("path") if e.find("title") is not None}


def test_the_nth_point_is_the_nth_smallest_time():
    tree = parsed(cactus({"a": [100.0, 1.0, 10.0], "b": [1.0]}, title="t"))
    drawn = lines_of(tree)
    assert drawn["a: 3 solved"].get("d") == "M192 348L330 180L468 12"
    assert drawn["a: 3 solved"].get("class") == "line bold"
    assert drawn["b: 1 solved"].get("d") == "M192 348h0"
    ticks = [e.text for e in tree.iter("text") if "end" in e.get("class", "")]
    assert ticks == ["1", "10", "100"]


@pytest.mark.parametrize("times", [{}, {"a": []}, {"a": [], "b": []}])
def test_nothing_solved_is_said(times):
    assert "nothing to show" in [e.text for e in parsed(cactus(times, title="t")).iter("text")]


def test_times_of_any_size_fit_the_plot():
    tree = parsed(cactus({"a": [0.0, 1e-9, 0.3, 5000.0]}, title="t"))
    numbers = [float(v) for v in re.findall(r"[\d.]+", lines_of(tree)["a: 4 solved"].get("d"))]
    assert all(12 <= y <= 348 for y in numbers[1::2])
    assert "0.01" in [e.text for e in tree.iter("text")]


def test_many_tools_are_drawn():
    tree = parsed(cactus({f"t{i}": [1.0 + i] for i in range(12)}, title="t"))
    assert len(lines_of(tree)) == 12
    assert "5 others" in [e.text for e in tree.iter("span")]


def test_the_tables_hold_the_numbers(made):
    table = benchmark_table(made)
    heads = [head.name for head in table.heads]
    rows = [dict(zip(heads, row, strict=True)) for row in table.rows]
    assert [(r["benchmark"], r["tool"], r["solved"], r["open"]) for r in rows] == [
        ("bench", NASTY, 2, 1),
        ("bench", "peer", 3, 1),
        (NASTY, NASTY, 1, 0),
        (NASTY, "peer", 1, 0),
        ("all", NASTY, 3, 1),
        ("all", "peer", 4, 1),
    ]
    assert rows[4]["score"] == pytest.approx(sum(r["score"] for r in rows[:4] if r["tool"] == NASTY))
    assert rows[1]["score"] == 100.0
    assert "VNN-COMP 2021" in to_text(table)
    assert to_csv(table).startswith("benchmark,tool,of,solved,holds,violated,wrong,open,mean s")
    (clash,) = disagreement_table(made).rows
    assert clash[1] == "n1 p1"
    assert f"holds: {NASTY}; violated: peer" in clash[2]
    answers = [row[3] for row in instance_table(made).rows]
    assert answers == ["holds", "holds (open)", "violated", "timeout", "holds"]


class Reader(HTMLParser):
    """Identifiers, links and tags; fails on tags that do not close in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.ids, self.links = [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.tags.append(tag)
        self.ids += [found["id"]] if "id" in found else []
        self.links += [found["href"]] if tag == "a" else []
        if tag not in {"meta", "link", "br", "img"}:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_complete_in_itself(made):
    text = page(made, command=f"holdfast vnncomp score {NASTY}")
    reader = Reader(text)
    assert reader.tags.count("script") == 1
    assert "<script>alert" not in text
    assert {link[1:] for link in reader.links} <= set(reader.ids)
    assert len(reader.ids) == len(set(reader.ids))
    assert "default-src &#39;none&#39;" in text
    assert not re.search(r'(?:src|href)="(?!data:|#)', text)
    assert {"cactus", "benchmarks", "disagreements", "instances"} <= set(reader.ids)
    assert text.count('role="img"') == 3, "a plot of all and one a benchmark"
    assert "holdfast <span>VNN-COMP</span>" in text
    assert "solves 3 of 5 instances; none of its answers is incorrect." in text
    assert "1 instance with disagreement" in text


def test_the_page_is_written_whole_or_not_at_all(made, tmp_path):
    assert write(made, tmp_path / "page.html").read_text().startswith("<!doctype html>")
    with pytest.raises(OutputError, match="is a folder"):
        write(made, tmp_path)

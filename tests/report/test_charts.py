import re
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.pages import Reader
from holdfast.report.charts.bars import Bar, Stack, bar_chart, bounds_bar, stacked_chart
from holdfast.report.charts.histogram import Kind, histogram
from holdfast.report.charts.lines import ChartLine, line_chart, thinned
from holdfast.report.charts.matrix import (
    EDGES,
    CellMark,
    HeatCell,
    MatrixHead,
    heat,
    matrix_chart,
    scale,
    short_count,
)
from holdfast.report.charts.svg import Scale, element, number, shortened, ticks

NASTY = "<script>&\"'"


def parsed(markup):
    """The chart as a tree: fails unless it is well-formed XML without a number that is none."""
    tree = ElementTree.fromstring(f"<all>{markup}</all>")  # noqa: S314 (our own)
    assert not re.search(r"nan|inf\b", " ".join(v for e in tree.iter() for v in e.attrib.values()), re.I)
    return tree


def texts(tree, tag="text"):
    return [e.text for e in tree.iter(tag)]


def of_class(tree, kind):
    return [e for e in tree.iter() if kind in e.get("class", "").split()]


def line(values, **more):
    y = np.array(values, float)
    return ChartLine("a", np.linspace(0, 1, len(y)), y, **more)


def chart(lines):
    return parsed(line_chart(lines, title="t", desc="d", x_label="recall", y_label="precision"))


def test_a_line_goes_through_its_points():
    tree = chart([line([0.0, 1.0], colour=1)])
    path = next(e for e in of_class(tree, "c1") if "M0 7H26" not in e.get("d"))
    assert path.get("d") == "M54 348L468 12"
    assert path.find("title").text == "a"
    assert "recall" in texts(tree)
    assert [e.text for e in tree.findall("svg/title")] == ["t"]
    assert [e.text for e in tree.findall("svg/desc")] == ["d"]


def test_missing_points_break_a_line_and_a_lone_point_is_a_dot():
    tree = chart([line([0.0, np.nan, 1.0, 1.0], colour=1)])
    path = next(e for e in of_class(tree, "c1") if e.find("title") is not None)
    assert path.get("d").count("M") == 2
    assert path.get("d").startswith("M54 348h0M")


@pytest.mark.parametrize("lines", [[], [line([])], [line([np.nan, np.inf])]])
def test_nothing_to_draw_is_said(lines):
    assert "nothing to show" in texts(chart(lines))


def test_the_bold_line_is_on_top_and_first_in_the_legend():
    tree = chart([line([1, 1], bold=True, note="mAP 1"), line([0, 0]), line([0, 1], colour=2), line([1, 0])])
    drawn = [e.get("class") for e in tree.iter("path") if e.find("title") is not None]
    assert drawn == ["line quiet", "line quiet", "line c2", "line bold"]
    assert texts(tree, "span") == ["a (mAP 1)", "a", "2 others"]


def test_thinning_keeps_extremes_and_ends():
    rng = np.random.default_rng(0)
    x, y = np.sort(rng.random(50_000)), rng.random(50_000)
    y[31_234] = 2.0
    thin_x, thin_y = thinned(x, y, 100)
    assert len(thin_x) <= 4 * 101
    assert thin_y.max() == 2.0
    assert thin_x[[0, -1]].tolist() == x[[0, -1]].tolist()
    assert (np.diff(thin_x) >= 0).all()


def test_bars_have_the_length_of_their_value():
    tree = parsed(
        bar_chart(
            [Bar("a", 1.0), Bar("b", 0.5), Bar("c", None), Bar("d", float("nan"))], title="t", mean=0.75
        )
    )
    lengths = [float(e.get("width")) for e in of_class(tree, "bar")]
    assert len(lengths) == 2
    assert lengths[1] == pytest.approx(lengths[0] / 2)
    assert [t for t in texts(tree) if t in ("1.000", "0.500", "n/a")] == ["1.000", "0.500", "n/a", "n/a"]
    mean = of_class(tree, "mean")[0]
    start = float(of_class(tree, "bar")[0].get("x"))
    assert float(mean.get("x1")) == pytest.approx(start + 0.75 * lengths[0], abs=0.01)


@pytest.mark.parametrize("count", [0, 1, 100])
def test_any_number_of_bars(count):
    tree = parsed(
        bar_chart([Bar(f"{NASTY}{i}", i / 100) for i in range(count)], title=NASTY, mean=float("nan"))
    )
    assert len(of_class(tree, "row")) == count
    assert not of_class(tree, "mean")


def test_values_beyond_the_scale_stay_inside():
    tree = parsed(bar_chart([Bar("a", 7.0), Bar("b", -3.0)], title="t"))
    assert [float(e.get("width")) for e in of_class(tree, "bar")][1] == 0
    track = float(of_class(tree, "track")[0].get("width"))
    assert float(of_class(tree, "bar")[0].get("width")) == track


def test_stacks_are_shares_of_their_row():
    kinds = [("right", "found"), ("wrong", "missed")]
    tree = parsed(
        stacked_chart([Stack("s", (30, 10)), Stack("none", (0, 0)), Stack("all", (5, 0))], kinds, title="t")
    )
    told = texts(tree, "title")
    assert "s: 30 found (75.0%)" in told
    assert "s: 10 missed (25.0%)" in told
    assert not any("all: 0" in t for t in told)
    assert "n/a" in texts(tree)
    assert "nothing to show" in texts(parsed(stacked_chart([], kinds, title="t")))


def test_the_matrix_shows_counts_shares_and_what_is_right():
    counts = np.array([[8, 2, 0], [0, 12345, 0], [0, 0, 0]])
    tree = parsed(
        matrix_chart(counts, ["a", NASTY, "no object"], ["a", NASTY, "missed"], title="t", classes=2)
    )
    assert [e.get("class") for e in of_class(tree, "heat")] == ["heat right", "heat wrong", "heat right"]
    assert [t for t in texts(tree) if t in ("8", "2", "12k")] == ["8", "2", "12k"]
    assert f"a → {NASTY}: 2 (20.0%)" in texts(tree, "title")
    strong = [float(e.get("fill-opacity")) for e in of_class(tree, "heat")]
    assert strong[2] == 1.0
    assert strong[0] > strong[1]


def test_the_place_of_a_class_that_is_none_is_wrong():
    tree = parsed(
        matrix_chart(np.array([[0, 0], [0, 3]]), ["a", "no object"], ["a", "missed"], title="t", classes=1)
    )
    assert [e.get("class") for e in of_class(tree, "heat")] == ["heat wrong"]


def test_matrix_with_percent_empty_and_large():
    tree = parsed(matrix_chart(np.array([[3, 1], [0, 4]]), ["a", "b"], ["a", "b"], title="t", shares=True))
    assert {"75", "25", "100"} <= set(texts(tree))
    parsed(matrix_chart(np.zeros((0, 0), int), [], [], title="t"))
    names = [str(i) for i in range(100)]
    assert len(of_class(parsed(matrix_chart(np.eye(100, dtype=int), names, names, title="t")), "heat")) == 100


@given(st.integers(0, 9 * 10**14))
def test_short_counts_are_short_and_near(value):
    text = short_count(value)
    assert len(text) <= 4
    size = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}.get(text[-1], 1)
    assert float(text.rstrip("kMGT")) * size == pytest.approx(value, rel=0.06)


def test_counts_at_the_edges_of_the_units():
    counts = (9999, 10_000, 999_499, 999_500, 999_999, 10**6, 99_499_999, 10**16)
    assert [short_count(c) for c in counts] == ["9999", "10k", "999k", "1.0M", "1.0M", "1.0M", "99M", "1e+16"]


def test_the_histogram_counts_both_kinds():
    right, wrong = (
        Kind("right", "right", np.array([0.05, 0.051, 0.99, 1.0])),
        Kind("false", "wrong", np.array([0.5])),
    )
    tree = parsed(histogram(right, wrong, title="t", x_label="score", line=0.3, bins=10))
    assert texts(tree, "title")[1:] == [
        "0 to 0.1: 2 right",
        "0.9 to 1: 2 right",
        "0.5 to 0.6: 1 false",
        "threshold 0.3",
    ]
    up, _, down = [e for e in of_class(tree, "area") if e.find("title") is not None]
    assert float(up.get("height")) == pytest.approx(2 * float(down.get("height")), abs=0.1)
    assert float(down.get("y")) == pytest.approx(float(up.get("y")) + float(up.get("height")), abs=0.1)
    assert texts(tree, "span") == ["right (4)", "false (1)"]


@pytest.mark.parametrize("logarithmic", [False, True])
@pytest.mark.parametrize("values", [[], [0.5], [float("nan")], [0.1] * 100_000])
def test_histograms_of_few_and_many(values, logarithmic):
    kind = Kind("x", "right", np.array(values, float))
    tree = parsed(histogram(kind, None, title="t", x_label="x", logarithmic=logarithmic))
    counted = [v for v in values if v == v]
    assert ("nothing to show" in texts(tree)) == (not counted)
    both = parsed(histogram(kind, kind, title="t", x_label="x", logarithmic=logarithmic))
    assert len(of_class(both, "area")) == 2 * bool(counted) + 2  # bars, and marks of the legend


@given(st.floats(-1e3, 1e3), st.floats(1e-6, 1e9))
def test_ticks_are_few_round_and_inside(start, span):
    low = start * span
    values = ticks(low, low + span)
    assert len(values) <= 12
    assert all(low - span * 1e-6 <= v <= low + span * (1 + 1e-6) for v in values)


def test_ticks_of_no_range():
    assert ticks(1.0, 1.0) == [1.0]
    assert ticks(0, 1) == [0, 0.2, 0.4, 0.6, 0.8, 1]


def test_small_parts():
    assert Scale(2, 2, 10, 20)(2) == 10
    assert [number(v) for v in (1.0, -0.001, 2.345, 10)] == ["1", "0", "2.35", "10"]
    assert element("rect", class_=NASTY, stroke_width=2) == (
        '<rect class="&lt;script&gt;&amp;&quot;&#x27;" stroke-width="2"/>'
    )
    assert shortened("abcdef", 4) == "abc…"


def parts(svg):
    """The class, the left end and the length in percent of each part."""
    rects = ElementTree.fromstring(svg).iter("rect")  # noqa: S314 (our own)
    return [(r.get("class").split()[1], float(r.get("x")[:-1]), float(r.get("width")[:-1])) for r in rects]


@given(st.tuples(*[st.integers(0, 10_000)] * 3).filter(any))
def test_the_parts_fill_the_bar_in_proportion(counts):
    found = parts(bounds_bar(*counts, "300px"))
    assert [kind for kind, _, _ in found] == [
        kind for kind, count in zip(("certified", "unknown", "broken"), counts, strict=True) if count
    ]
    end = 0.0
    for (_, left, width), count in zip(found, [c for c in counts if c], strict=True):
        assert left == pytest.approx(end, abs=0.01)
        assert width == pytest.approx(100 * count / sum(counts), abs=0.01)
        end += width
    assert end == pytest.approx(100, abs=0.01)


def test_every_part_has_its_number_and_a_large_one_its_word():
    svg = bounds_bar(1, 9, 90, "<300px>")
    texts = [t.text for t in ElementTree.fromstring(svg).iter("text")]  # noqa: S314
    assert texts == ["1", "9", "✕ 90 broken"]
    titles = [t.text for t in ElementTree.fromstring(svg).iter("title")]  # noqa: S314
    assert titles[0] == "<300px>: 1 certified, 9 unknown, 90 broken of 100"


def test_no_image_is_an_empty_bar():
    assert parts(bounds_bar(0, 0, 0, "square")) == []


@pytest.mark.parametrize(
    ("lost", "step"), [(-0.3, "h0"), (0.0, "h0"), (0.02, "h1"), (0.5, "h6"), (1.0, "h7")]
)
def test_a_loss_has_its_colour(lost, step):
    assert HeatCell("0.5", lost).step == step


def test_no_number_has_none():
    assert HeatCell("–", None).step == "none"
    assert scale("lost").count("<li") == len(EDGES) + 2


def test_the_table_reads_in_order_and_escapes():
    rows = [MatrixHead("square", "", "a <black> square")]
    columns = [MatrixHead("int8", "precision", "precision=int8")]
    mark = CellMark("▲", "magnified", "more")
    table = heat(
        rows, columns, [[HeatCell("0.500", 0.4, (mark,), 'a "note"')]], corner="", caption="what it is"
    )
    reader = Reader(table)
    assert reader.all("th")[0]["scope"] == "col"
    assert reader.all("td") == [{"class": "h5", "title": 'a "note"'}]
    assert "a <black> square" in reader.texts("small")
    assert "magnified" in " ".join(reader.texts("i"))
    with pytest.raises(ValueError, match="zip"):
        heat(rows, columns, [], corner="", caption="")

"""The bars of the sandwich and the heat map that is a table."""

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.pages import Reader
from holdfast.report.charts.heat import EDGES, Field, Head, Mark, heat, scale
from holdfast.report.charts.sandwich import sandwich


def parts(svg):
    """The class, the left end and the length in percent of each part."""
    rects = ElementTree.fromstring(svg).iter("rect")  # noqa: S314 (our own)
    return [(r.get("class").split()[1], float(r.get("x")[:-1]), float(r.get("width")[:-1])) for r in rects]


@given(st.tuples(*[st.integers(0, 10_000)] * 3).filter(any))
def test_the_parts_fill_the_bar_in_proportion(counts):
    found = parts(sandwich(*counts, "300px"))
    assert [kind for kind, _, _ in found] == [
        kind for kind, count in zip(("proven", "unknown", "broken"), counts, strict=True) if count
    ]
    end = 0.0
    for (_, left, width), count in zip(found, [c for c in counts if c], strict=True):
        assert left == pytest.approx(end, abs=0.01)
        assert width == pytest.approx(100 * count / sum(counts), abs=0.01)
        end += width
    assert end == pytest.approx(100, abs=0.01)


def test_every_part_has_its_number_and_a_large_one_its_word():
    svg = sandwich(1, 9, 90, "<300px>")
    texts = [t.text for t in ElementTree.fromstring(svg).iter("text")]  # noqa: S314
    assert texts == ["1", "9", "✕ 90 broken"]
    titles = [t.text for t in ElementTree.fromstring(svg).iter("title")]  # noqa: S314
    assert titles[0] == "<300px>: 1 proven, 9 unknown, 90 broken of 100"


def test_no_image_is_an_empty_bar():
    assert parts(sandwich(0, 0, 0, "square")) == []


@pytest.mark.parametrize(
    ("lost", "step"), [(-0.3, "h0"), (0.0, "h0"), (0.02, "h1"), (0.5, "h6"), (1.0, "h7")]
)
def test_a_loss_has_its_colour(lost, step):
    assert Field("0.5", lost).step == step


def test_no_number_has_none():
    assert Field("–", None).step == "none"
    assert scale("lost").count("<li") == len(EDGES) + 2


def test_the_table_reads_in_order_and_escapes():
    rows = [Head("square", "", "a <black> square")]
    columns = [Head("int8", "precision", "precision=int8")]
    mark = Mark("▲", "magnified", "more")
    table = heat(rows, columns, [[Field("0.500", 0.4, (mark,), 'a "note"')]], corner="", caption="what it is")
    reader = Reader(table)
    assert reader.all("th")[0]["scope"] == "col"
    assert reader.all("td") == [{"class": "h5", "title": 'a "note"'}]
    assert "a <black> square" in reader.texts("small")
    assert "magnified" in " ".join(reader.texts("i"))
    with pytest.raises(ValueError, match="zip"):
        heat(rows, columns, [], corner="", caption="")

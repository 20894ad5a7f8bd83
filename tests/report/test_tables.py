import csv
import io
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import InputError
from holdfast.report.tables import (
    Column,
    Table,
    shown,
    table_of,
    to_csv,
    to_html,
    to_latex,
    to_markdown,
    to_text,
)

NASTY = "<script>alert('x')</script> & | \\ _a_ 50% #1 {y} ~ ^"
TABLE = Table(
    [Column("class", note="as the data names it"), Column("AP", 2), "truth"],
    [("stop", 0.98765, 12), ("no entry", None, 12345), ("限速", float("nan"), 0)],
    "Per class",
)


def test_text_is_aligned_and_says_na():
    assert to_text(TABLE).splitlines() == [
        "Per class",
        "class       AP  truth",
        "────────  ────  ─────",
        "stop      0.99     12",
        "no entry   n/a  12345",
        "限速       n/a      0",
    ]


def test_text_cannot_steer_the_terminal():
    assert "\x1b" not in to_text(Table(["file"], [("\x1b[2Jevil\n.jpg",)]))


def test_text_of_a_table_without_rows():
    assert to_text(Table(["a", "bc"], [])).splitlines() == ["a  bc", "─  ──"]


def test_markdown_aligns_by_kind_and_keeps_the_page_safe():
    text = to_markdown(Table(["class", "AP"], [(NASTY, 0.5)], "A|B"))
    lines = text.splitlines()
    assert lines[0] == r"A\|B"
    assert lines[3] == "| :--- | ---: |"
    assert "<" not in text
    assert r"\|" in lines[4]
    assert lines[4].endswith("| 0.500 |")
    assert len(lines) == 5


def test_csv_keeps_every_digit_and_leaves_missing_empty():
    rows = list(csv.reader(io.StringIO(to_csv(TABLE))))
    assert rows[0] == ["class", "AP", "truth"]
    assert rows[1] == ["stop", "0.98765", "12"]
    assert rows[2] == ["no entry", "", "12345"]
    assert rows[3][1] == ""


@given(st.lists(st.tuples(st.text().filter(lambda s: "\r" not in s), st.floats(allow_nan=False))))
def test_csv_reads_back(rows):
    read = list(csv.reader(io.StringIO(to_csv(Table(["name", "x"], rows)), newline="")))
    assert [(name, float(x)) for name, x in read[1:]] == rows


def test_numpy_numbers_are_written_as_plain_ones():
    table = Table(["a", "b", "c"], [(np.float64(0.25), np.int64(3), np.float32(0.5))])
    assert to_csv(table) == "a,b,c\n0.25,3,0.5\n"
    assert table.numeric() == (True, True, True)


def test_latex_escapes_and_has_as_many_cells_as_columns():
    text = to_latex(Table(["c&c", "AP"], [(NASTY, 0.5)], "50 % of it"))
    assert r"c\&c" in text
    assert r"\caption{50 \% of it}" in text
    assert r"\textless{}script\textgreater{}" in text
    assert r"\textbackslash{} \_a\_ 50\% \#1 \{y\} \textasciitilde{} \textasciicircum{}" in text
    assert r"\begin{tabular}{lr}" in text
    assert text.splitlines()[0] == r"\begin{table}"
    assert to_latex(Table(["Δ AP", "x − y"], [(1, 2)], "A → B")).isascii()  # pdflatex knows no Δ
    assert to_latex(Table(["a"], [(1,)])).startswith(r"\begin{tabular}{r}")


class _Cells(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.texts = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(data)


def test_html_escapes_sorts_by_all_digits_and_names_its_headings():
    parser = _Cells()
    parser.feed(
        to_html(Table([Column(NASTY, note='"n"'), "AP", "n"], [(NASTY, 1 / 3, 12345), ("b", None, 1)]))
    )
    tags = [tag for tag, _ in parser.tags]
    assert "script" not in tags
    assert NASTY in parser.texts
    heads = [attrs for tag, attrs in parser.tags if tag == "th" and attrs["scope"] == "col"]
    assert [h["aria-sort"] for h in heads] == ["none"] * 3
    assert heads[0]["title"] == '"n"'
    assert tags.count("button") == 3
    values = [attrs["data-value"] for tag, attrs in parser.tags if tag == "td"]
    assert values == [str(1 / 3), "12345", "", "1"]
    assert "12\u202f345" in parser.texts
    assert "n/a" in parser.texts


def test_html_without_sorting_has_no_buttons():
    assert "button" not in to_html(TABLE, sortable=False)


def test_columns_get_their_cells_from_the_rows():
    columns = [
        Column("word", get=lambda word: word),
        Column("length", get=len, note="in characters"),
        Column("share", get=lambda word: len(word) / 7, digits=2),
    ]
    table = Table.of(iter(["stop", "give way"]), columns, "Words")
    assert table == Table(columns, [("stop", 4, 4 / 7), ("give way", 8, 8 / 7)], "Words")
    assert to_csv(table) == f"word,length,share\nstop,4,{4 / 7}\ngive way,8,{8 / 7}\n"
    assert to_text(table).splitlines()[-1] == "give way       8   1.14"
    assert 'title="in characters"' in to_html(table)


def test_a_declared_table_without_rows_keeps_its_headings():
    assert to_csv(Table.of([], [Column("a", get=len), Column("b", get=str)])) == "a,b\n"


def test_columns_without_a_getter_take_the_value_of_their_name():
    table = Table.of([{"a": 1, "b": 2}, {"b": 3}], [Column("b"), Column("a")])
    assert table.rows == ((2, 1), (3, None))


def test_table_of_takes_every_key_in_order_of_appearance():
    table = table_of([{"class": "a", "AP": 0.5}, {"class": "b", "tp": 3}], "c", digits=1)
    assert [h.name for h in table.heads] == ["class", "AP", "tp"]
    assert table.rows == (("a", 0.5, None), ("b", None, 3))
    assert "0.5" in to_text(table)


def test_a_row_of_wrong_length_is_named():
    with pytest.raises(InputError, match="row 1: expected 2 cells, one a column, got 1"):
        Table(["a", "b"], [(1, 2), (1,)])


def test_shown():
    assert [shown(c, 1) for c in (None, float("nan"), True, 3, 0.25, "x")] == [
        "n/a",
        "n/a",
        "yes",
        "3",
        "0.2",
        "x",
    ]

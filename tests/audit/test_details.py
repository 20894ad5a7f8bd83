"""The maps of black squares on a page: worst first, small enough, the colour where the square was."""

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

from holdfast.audit.pages.details import square_sections, table_of
from holdfast.audit.square_map import Grid, SquareMap, axes
from holdfast.core.types import Boxes, Label, Size
from holdfast.report.html import document
from holdfast.report.parts import Document

SIZE, GRID = Size(320, 240), Grid(24, 16)


def made(name, unsafe=(), doubtful=(), *, targets=None, note=""):
    """A map of the photo's size that is safe but at these places of its grid (row, column)."""
    columns, rows = axes(SIZE, GRID)
    scores = np.full((len(rows), len(columns)), 0.9)
    for place in unsafe:
        scores[place] = 0.0
    for place in doubtful:
        scores[place] = np.nan
    boxes = Boxes([[40, 50, 90, 100]], [0]) if targets is None else targets
    return SquareMap(name, SIZE, GRID, scores, 0.25, boxes, 0.9, 1.0, note)


def drawn(section):
    """The figures of pictures, without legend and table."""
    return [figure for figure in section.figures if figure.title]


def test_without_maps_there_is_no_section(photo):
    assert square_sections((), photo) == []


def test_the_worst_come_first_and_the_table_has_all(photo):
    maps = [
        made("holds.jpg"),
        made("little.jpg", [(3, 4)]),
        made("open.jpg", doubtful=[(1, 1)], note="at column 16, row 16: NaN"),
        made("much.jpg", [(3, 4), (3, 5)]),
    ]
    (section,) = square_sections(maps, photo, most=3)
    assert [figure.title for figure in drawn(section)] == ["much.jpg", "little.jpg", "holds.jpg"]
    assert section.title == "Black square"
    table = section.figures[-1]
    assert all(one.image in table.body for one in maps)
    assert "1 of 4 maps" in table.note
    assert "target in 2 of 4 images" in section.lead
    assert "1 not decided" in section.lead
    assert "violated at 2 of" in drawn(section)[0].note


def test_the_table_says_answer_margin_and_worst_place():
    rows = table_of([made("a.jpg", [(3, 4)]), made("b.jpg"), made("c.jpg", doubtful=[(0, 0)])]).rows
    count = rows[0][2]
    assert [row[1] for row in rows] == ["violated", "holds", "unknown"]
    assert [row[3] for row in rows] == [count, count, count - 1]
    assert [row[4] for row in rows] == [1, 0, 0]
    assert [row[6] for row in rows] == pytest.approx([-0.25, 0.65, 0.65])
    assert rows[0][7] == "64, 48"


def test_drawings_that_are_too_large_are_left_out_and_said(photo):
    maps = [made(f"{i}.jpg") for i in range(4)]
    (whole,) = square_sections(maps, photo)
    size = max(len(figure.body) for figure in drawn(whole))
    (section,) = square_sections(maps, photo, budget=2 * size + 10)
    assert len(drawn(section)) == 2
    assert "2 of 4 maps" in section.figures[-1].note
    (bare,) = square_sections(maps, photo, budget=10)
    assert drawn(bare) == []
    assert len(bare.figures) == 1


def heat(figure):
    """The embedded map as an array (h, w, 4)."""
    source = re.search(r"data:image/png;base64,([^\"]+)", figure.body)
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(source[1]))))


def test_the_colour_lies_where_the_square_was(photo):
    (section,) = square_sections([made("a.jpg", unsafe=[(2, 11)], doubtful=[(10, 3)])], photo)
    (figure,) = drawn(section)
    pixels = heat(figure)
    columns, rows = axes(SIZE, GRID)

    def at(row, column):
        x, y = columns[column] / columns[-1], rows[row] / rows[-1]
        found = pixels[round(y * (len(pixels) - 1)), round(x * (pixels.shape[1] - 1))]
        return found.astype(int)

    red, safe, grey = at(2, 11), at(6, 6), at(10, 3)
    assert red[0] > 2 * max(red[1], red[2])
    assert len(set(grey[:3])) == 1
    assert safe[3] < 40 < red[3]
    assert safe[2] > safe[0]
    strong = np.argwhere(pixels[..., 3] > 150)
    assert len(strong) < 0.02 * pixels[..., 0].size  # two places of some three hundred
    assert f'x="{columns[11] * 2}"' in figure.body  # the ring, drawn at twice the scene's scale


def test_a_place_near_the_threshold_is_seen_better_than_one_that_changes_nothing(photo):
    one = made("a.jpg")
    scores = one.scores.copy()
    scores[5, 5] = 0.3
    near = SquareMap("b.jpg", SIZE, GRID, scores, 0.25, one.targets, 0.9, 1.0)
    (section,) = square_sections([near], photo)
    cover = heat(drawn(section)[0])[..., 3]
    assert cover.max() > 2 * np.median(cover)


def test_a_picture_that_is_gone_and_a_classifier_are_drawn_too():
    maps = [made("a.jpg", [(1, 1)], targets=Label(3)), made("b.jpg")]
    (section,) = square_sections(maps, lambda name: None)
    assert [("image not available" in figure.body) for figure in drawn(section)] == [True, True]
    assert "mark truth" not in drawn(section)[0].body
    assert "mark truth" in drawn(section)[1].body


def test_names_and_notes_are_escaped(photo):
    nasty = '"><script>alert(1)</script>'
    found = square_sections([made(nasty, doubtful=[(0, 0)], note=nasty)], photo)
    page = document(Document(title="t", subject=("a", "b"), facts=(), sections=tuple(found)))
    assert "<script>alert" not in page
    assert "alert(1)" in page

"""Black squares: every place of the grid is run, and no doubt ever becomes `holds`."""

import contextlib
import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import models as making
from helpers import squares as squaring
from helpers.squares import squares
from holdfast.attack.types import Rule
from holdfast.audit import squares as squares_work
from holdfast.audit.square_map import (
    Grid,
    SquareMap,
    axes,
    describe_square,
    from_plain,
    grid_for,
    places,
    proofs_of,
    to_plain,
    worst_squares,
)
from holdfast.audit.squares import SquaresPlan, score_of, survey
from holdfast.core.errors import InputError, ModelError
from holdfast.core.patch import Position, apply
from holdfast.core.pipeline import pipeline_of
from holdfast.core.types import Boxes, Detections, Label, Scores, Size
from holdfast.data.open import open_dataset
from holdfast.evaluate.run import EvaluationPlan
from holdfast.graph.load import load_model
from holdfast.stages.infer import onnxruntime

sizes = st.builds(Size, st.integers(1, 900), st.integers(1, 900))


@given(sizes, st.floats(0.01, 1.0), st.integers(4, 500))
def test_a_grid_covers_the_last_row_and_column_within_its_number_of_places(size, share, most):
    grid = grid_for(size, share, most)
    found = places(size, grid)
    assert 1 <= grid.side <= min(size)
    assert 1 <= len(found) <= most
    assert len(np.unique(found, axis=0)) == len(found)
    assert found.min(axis=0).tolist() == [0, 0]
    assert found.max(axis=0).tolist() == [size.width - grid.side, size.height - grid.side]
    for starts in axes(size, grid):
        assert (np.diff(starts) <= grid.step).all()
    finer = Grid(grid.side, max(1, grid.step - 1))
    assert grid.step == 1 or len(places(size, finer)) > most, "a smaller step would do"


def test_places_go_row_by_row():
    assert places(Size(5, 4), Grid(2, 2)).tolist() == [[0, 0], [2, 0], [3, 0], [0, 2], [2, 2], [3, 2]]


@pytest.mark.parametrize("wrong", [{"share": 0.0}, {"share": 1.5}, {"most": 3}])
def test_a_grid_that_cannot_be_is_refused(wrong):
    with pytest.raises(InputError, match="expected"):
        grid_for(Size(10, 10), **wrong)


def planned(tmp_path, model=None, data=None, **more):
    model = load_model(model or squaring.pixel_detector(tmp_path))
    data = open_dataset(data or squaring.scenes(tmp_path / "data"))
    jobs = more.pop("jobs", 1)
    pipeline = pipeline_of(model.card).replace(**more.pop("stages", {}))
    more = {"share": 0.2, "most": 80} | more  # few, and yet no pixel is left out
    return SquaresPlan(EvaluationPlan(model, data, runs=tmp_path / "runs", jobs=jobs), pipeline, **more)


def covering(size, grid, pixel):
    """Where (rows, columns) the square lies over a pixel."""
    columns, rows = axes(size, grid)
    across, down = ((s <= p) & (p < s + grid.side) for s, p in zip((columns, rows), pixel, strict=True))
    return down[:, None] & across[None, :]


def test_exactly_the_places_over_the_watched_pixel_are_unsafe(tmp_path):
    (one,) = squares(planned(tmp_path))
    expected = covering(squaring.SIZE, one.grid, squaring.WATCHED)
    assert one.size == squaring.SIZE
    assert one.grid.side == 10
    assert 0 < expected.sum() < expected.size <= 80
    assert (one.unsafe == expected).all()
    assert (one.scores[expected] == 0.0).all()
    assert np.allclose(one.scores[~expected], one.clean, atol=0, rtol=0)
    assert one.answer == "violated"
    (proof,) = proofs_of([one], "holdfast audit")
    assert (proof.members, proof.tried, proof.unsafe) == (expected.size, expected.size, expected.sum())
    assert proof.margin == -0.25
    assert (proof.threat, proof.image, proof.command) == ("square", "000.png", "holdfast audit")
    x, y = proof.where
    assert x <= squaring.WATCHED[0] < x + 10 and y <= squaring.WATCHED[1] < y + 10  # noqa: PT018


def test_a_square_that_covers_nothing_watched_holds_with_its_margin(tmp_path):
    (one,) = squares(planned(tmp_path, squaring.pixel_detector(tmp_path, watched=False), most=30))
    (proof,) = proofs_of([one])
    assert (proof.answer, proof.tried, proof.unsafe) == ("holds", one.scores.size, 0)
    assert proof.margin == pytest.approx(one.clean - 0.25)
    assert 0.9 < one.clean <= 1.0


def test_outputs_that_are_no_numbers_leave_it_open_and_never_hold(tmp_path):
    (one,) = squares(planned(tmp_path, squaring.pixel_detector(tmp_path, watched=False, poison=True)))
    doubtful = covering(squaring.SIZE, one.grid, squaring.POISON)
    assert (np.isnan(one.scores) == doubtful).all()
    (proof,) = proofs_of([one])
    assert (proof.answer, proof.tried) == ("unknown", proof.members - doubtful.sum())
    assert "NaN" in proof.note
    assert f"{doubtful.sum()} positions" in proof.note


def test_a_place_that_breaks_it_counts_beside_others_in_doubt(tmp_path):
    (one,) = squares(planned(tmp_path, squaring.pixel_detector(tmp_path, poison=True)))
    assert (one.unsafe == covering(squaring.SIZE, one.grid, squaring.WATCHED)).all()
    assert one.answer == "violated"
    assert one.tried < one.scores.size


def test_a_place_that_is_skipped_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(squares_work, "places", lambda size, grid: places(size, grid)[:-1])
    (one,) = squares(planned(tmp_path, squaring.pixel_detector(tmp_path, watched=False), most=20))
    assert np.isnan(one.scores[-1, -1])
    assert one.answer == "unknown"


class Odd:
    """An infer stage that hands each tensor and what the model says of it to a function."""

    def __init__(self, change, name):
        self.change, self.name, self.calls = change, name, 0

    def fingerprint(self):
        return self.name

    def __call__(self, model, threads=0):
        run = onnxruntime(model, threads)

        def odd(tensor):
            self.calls += 1
            return self.change(tensor, run(tensor))

        return odd


def test_what_breaks_only_once_is_in_doubt(tmp_path):
    seen = set()

    def forgetful(tensor, said):
        key = tensor.tobytes()
        again, _ = key in seen, seen.add(key)
        lost = not again and tensor[0, 0, squaring.WATCHED[1], squaring.WATCHED[0]] == 0
        return {name: np.full_like(v, -20.0) if lost else v for name, v in said.items()}

    model = squaring.pixel_detector(tmp_path, watched=False)
    (one,) = squares(planned(tmp_path, model, stages={"infer": Odd(forgetful, "forgetful")}))
    assert not one.unsafe.any()
    assert (np.isnan(one.scores) == covering(squaring.SIZE, one.grid, squaring.WATCHED)).all()
    assert one.answer == "unknown"
    assert "a second run" in one.note


def test_an_exception_at_a_place_is_a_doubt_whatever_it_is(tmp_path):
    def failing(tensor, said):
        if tensor[0, 0, squaring.POISON[1], squaring.POISON[0]] == 0:
            raise KeyError("nobody foresaw this")
        return said

    model = squaring.pixel_detector(tmp_path, watched=False)
    (one,) = squares(planned(tmp_path, model, stages={"infer": Odd(failing, "failing")}))
    assert one.answer == "unknown"
    assert "nobody foresaw this" in one.note


def test_images_without_a_target_or_that_cannot_be_read_have_no_map(tmp_path):
    data = squaring.scenes(tmp_path / "data", 4, bare=1)
    (data / "images" / "001.png").write_bytes(b"no picture")
    found = survey(planned(tmp_path, data=data, most=10))
    assert [one.image for one in found.maps] == ["000.png", "002.png"]
    assert found.without == ("003.png",)
    assert [one.name for one in found.failed] == ["001.png"]
    assert "1 image without a detected true object" in found.note
    assert "001.png" in found.note


def test_an_interrupted_run_goes_on_and_ends_with_the_same_maps(tmp_path):
    infer = Odd(lambda tensor, said: said, "counted")
    data = squaring.scenes(tmp_path / "data", 4)
    plan = planned(tmp_path, data=data, stages={"infer": infer}, most=12)
    told = []

    def watch(what, total):
        @contextlib.contextmanager
        def watched():
            def step(done, found):
                told.append((done, found))
                if len(told) == 2:
                    raise KeyboardInterrupt

            yield step

        assert total == 4
        return watched()

    with pytest.raises(KeyboardInterrupt):
        squares(plan, watch)
    before = infer.calls
    first = squares(plan, watch)
    assert told[2:] == [(1, 1), (1, 1), (1, 0), (1, 0)]
    assert infer.calls == 2 * before
    again = squares(plan)
    assert infer.calls == 2 * before, "finished images were run again"
    fresh = squares(dataclasses.replace(plan, plan=dataclasses.replace(plan.plan, runs=tmp_path / "other")))
    for a, b, c in zip(first, again, fresh, strict=True):
        assert {**to_plain(a), "seconds": 0} == {**to_plain(c), "seconds": 0}
        assert to_plain(a) == to_plain(b)


def test_a_damaged_cell_is_made_again_and_another_rule_is_another_cell(tmp_path):
    plan = planned(tmp_path)
    (good,) = squares(plan)
    (cell,) = (tmp_path / "runs" / "cells").glob("*/*.json")
    cell.write_bytes(cell.read_bytes().replace(b"0.0", b"0.9"))
    (one,) = squares(plan)
    assert one.answer == "violated"
    assert np.array_equal(one.scores, good.scores)
    squares(dataclasses.replace(plan, rule=Rule(iou=0.6)))
    assert len(list((tmp_path / "runs" / "cells").glob("*/*.json"))) == 2


def test_two_processes_find_what_one_finds(tmp_path):
    plan = planned(tmp_path, data=squaring.scenes(tmp_path / "data", 2), most=12)
    alone = squares(plan)
    other = dataclasses.replace(plan.plan, jobs=2, runs=tmp_path / "two")
    both = squares(dataclasses.replace(plan, plan=other))
    for a, b in zip(alone, both, strict=True):
        assert {**to_plain(a), "seconds": 0} == {**to_plain(b), "seconds": 0}


def test_a_classifier_must_keep_the_right_class_first(tmp_path):
    (tmp_path / "data" / "bright").mkdir(parents=True)
    (tmp_path / "data" / "dark").mkdir()
    (tmp_path / "data" / "bright" / "a.jpg").write_bytes(making.jpeg(np.full((24, 24, 3), 140, np.uint8)))
    (tmp_path / "data" / "dark" / "b.jpg").write_bytes(making.jpeg(np.full((24, 24, 3), 60, np.uint8)))
    plan = planned(tmp_path, making.classifier(tmp_path), tmp_path / "data", most=16)
    found = {one.image: one for one in squares(plan)}
    assert {n: one.answer for n, one in found.items()} == {"bright/a.jpg": "holds", "dark/b.jpg": "holds"}
    assert isinstance(found["dark/b.jpg"].targets, Label)
    half = {one.image: one for one in squares(dataclasses.replace(plan, share=0.5))}
    assert half["bright/a.jpg"].unsafe.all()  # a quarter of 140 gone: 105 is dark
    assert half["dark/b.jpg"].answer == "holds"


def test_a_segmenter_is_refused_in_one_line(tmp_path):
    plan = planned(tmp_path)
    card = dataclasses.replace(plan.plan.model.card, task="segment")
    odd = dataclasses.replace(plan.plan, model=dataclasses.replace(plan.plan.model, card=card))
    with pytest.raises(ModelError, match="expected a detector or a classifier, got a segmenter"):
        squares(dataclasses.replace(plan, plan=odd))


def test_the_score_is_that_of_the_target_found_least_well():
    targets = Boxes([[0, 0, 10, 10], [20, 20, 30, 30]], [0, 1])
    boxes = [[0, 0, 10, 10], [0, 0, 10, 9], [20, 20, 30, 30], [20, 20, 30, 30], [0, 0, 10, 2]]
    said = Detections(boxes, [0.5, 0.7, 0.6, 0.9, 0.99], [0, 0, 1, 0, 0])
    rule = Rule()
    assert score_of(said, targets, rule) == 0.6
    assert score_of(said.take([0, 3]), targets, rule) == 0.0  # the other one's class is wrong
    assert score_of(said.take([2, 4]), targets, rule) == 0.0  # too little overlap
    assert score_of(said.take([]), targets, rule) == 0.0


def test_of_equal_classes_only_the_first_is_top():
    rule = Rule()
    assert score_of(Scores([0.2, 0.5, 0.3]), Label(1), rule) == pytest.approx(0.2)
    assert score_of(Scores([0.5, 0.5]), Label(0), rule) == 0.0
    assert score_of(Scores([0.5, 0.5]), Label(1), rule) < 0.0
    assert score_of(Scores([0.2, 0.5, 0.3]), Label(2), rule) == pytest.approx(-0.2)


def handmade(scores, width=12, height=10):
    targets, size = Boxes([[1, 1, 5, 5]], [0]), Size(width, height)
    return SquareMap("a.png", size, Grid(4, 4), np.array(scores, float), 0.25, targets, 0.9, 1.0)


def test_the_worst_place_lies_in_the_middle_of_the_unsafe_ones():
    scores = np.full((5, 6), 0.9)
    scores[1:4, 2:5] = 0.0
    scores[0, 0] = 0.0
    one = handmade(scores, 24, 20)
    assert one.where == (12, 8)
    assert one.tightest[0].tolist() == [12, 8]
    assert {tuple(p) for p in one.tightest[:10].tolist()} == {
        (0, 0),
        *itertools.product((8, 12, 16), (4, 8, 12)),
    }


def test_worst_squares_are_black_patches_that_lie_where_the_map_says():
    one = handmade([[0.9, 0.9, 0.9], [0.9, 0.9, 0.9], [0.9, 0.9, 0.4]])
    patch = worst_squares([one])["a.png"]
    assert patch.where == Position(8, 6)
    laid = apply(np.full((10, 12, 3), 200, np.uint8), patch)
    assert (laid[6:, 8:] == 0).all()
    assert (laid == 0).sum() == 4 * 4 * 3
    assert describe_square([one]) == "a black square with a side of 4 pixels at 9 positions"


def test_a_map_is_the_same_after_it_was_written_and_has_the_shape_of_its_grid():
    one = handmade([[0.9, np.nan, 0.9], [0.9, 0.1 + 0.2, 0.9], [0.9, 0.9, 0.4]])
    again = from_plain("a.png", to_plain(one))
    assert np.array_equal(one.scores, again.scores, equal_nan=True)
    assert to_plain(again) == to_plain(one)
    assert handmade(np.full((3, 3), 0.25)).answer == "holds"  # found at just the threshold
    assert handmade(np.full((3, 3), np.nan)).answer == "unknown"
    assert handmade(np.full((3, 3), np.nan)).where is None
    with pytest.raises(InputError, match="expected"):
        handmade([[0.9]])

"""Free content at every position: no certified position may be broken, every violation replays."""

import dataclasses
import itertools

import numpy as np
import pytest

from holdfast.core.errors import CardError, InputError, ModelError
from holdfast.core.property import Budget
from holdfast.graph.load import load_model
from holdfast.patchbench.layout import Target, output_of
from holdfast.patchbench.positions import free as positions
from holdfast.patchbench.positions import margins
from holdfast.patchbench.positions.free import CERTIFIED, UNKNOWN, VIOLATED, open_network
from holdfast.patchbench.positions.models import open_detector
from holdfast.patchbench.positions.sweep import SafetyRule
from holdfast.verify.linear import batch

TARGET = Target(0, (0.2, 0.3, 0.7, 0.9))
BOUNDS = {"budget": Budget(3600), "split_seconds": 0.0}  # time is no condition of any test


def picture(side=8, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (side, side, 3)).astype(np.uint8)


def certify(opened, image, side, network=None, **how):
    """The certificates of a picture for the prediction without a patch."""
    clean = opened.tensor(image)
    how = how or BOUNDS
    network = network or open_network(opened)
    return positions.certify_positions(network, clean, opened.predict(clean[None]), side, **how)


def outputs_of(detector, image, side, place, contents, target):
    """IoU × equal in ONNX Runtime of pictures with contents (n, c, k, k) of the input at a place."""
    clean = detector.tensor(image)
    pictures = np.repeat(clean[None], len(contents), axis=0)
    row, column = place
    pictures[:, :, row : row + side, column : column + side] = contents
    return np.array([detector.output(one[None], target) for one in pictures])


def corners(side, count, seed=0):
    """Random contents whose values are 0 or 1, and random ones in between."""
    rng = np.random.default_rng(seed)
    both = rng.random((2 * count, 3, side, side), np.float32)
    both[:count] = both[:count] > 0.5
    return both


@pytest.mark.parametrize(("strength", "seed"), [(0.3, 1), (0.2, 2)])
def test_no_random_or_corner_content_breaks_a_certified_position(detector, strength, seed):
    opened, image = detector(strength=strength, seed=seed), picture(seed=seed)
    result = certify(opened, image, 2)
    assert result.count("certified")
    assert sum(map(result.count, positions.STATES)) == 49
    for place in np.argwhere(result.states == CERTIFIED)[::3].tolist():
        values = outputs_of(opened, image, 2, place, corners(2, 40), result.target)
        assert values.min() > 0.5
        assert values.min() >= result.bounds[tuple(place)]


@pytest.mark.parametrize("seed", [0, 1])
def test_one_pixel_agrees_with_every_content_of_a_grid(detector, seed):
    opened, image = detector(strength=0.5, seed=seed), picture(seed=seed)
    result = certify(opened, image, 1)
    levels = np.linspace(0, 1, 4, dtype=np.float32)
    grid = np.array(list(itertools.product(levels, repeat=3)), np.float32).reshape(-1, 3, 1, 1)
    for place in itertools.product(range(0, 8, 2), range(8)):
        least = outputs_of(opened, image, 1, place, grid, result.target).min()
        if least <= 0.5:
            assert result.states[place] != CERTIFIED
        else:
            assert result.bounds[place] <= least
        if result.states[place] == CERTIFIED:
            assert least > 0.5


def test_every_violation_replays_on_the_file_with_a_content_inside_the_range(detector):
    opened, image = detector(strength=1.0, seed=1), picture()
    result = certify(opened, image, 2)
    assert result.count("violated") == len(result.witnesses) > 10
    for place, content in result.witnesses.items():
        assert result.states[place] == VIOLATED
        assert content.dtype == np.float32
        assert 0 <= content.min() <= content.max() <= 1
        value = outputs_of(opened, image, 2, place, content[None], result.target)[0]
        assert value == result.outputs[place] <= 0.5


def test_linear_bounds_certify_what_intervals_leave_open(cancelling):
    network, image = open_network(cancelling), picture(4)
    bounded = certify(cancelling, image, 2, network)
    assert (bounded.states == UNKNOWN).all()
    whole = certify(cancelling, image, 2, network, budget=Budget(3600), split_seconds=600)
    assert (whole.states == CERTIFIED).all()
    assert whole.split == 9


def test_without_time_every_position_is_unknown(detector):
    result = certify(detector(), picture(), 2, budget=Budget(0.0))
    assert (result.states == UNKNOWN).all()
    assert np.isnan(result.bounds).all()


def test_layout_colour_and_normalisation_of_the_card_are_those_of_the_bounds(detector):
    more = 'layout = "nhwc"\ncolour = "bgr"\nscale = 0.01\nmean = [0.4, 0.5, 0.6]\nstd = [2.0, 1.0, 0.5]\n'
    opened, image = detector(strength=0.1, seed=4, more=more, nhwc=True), picture()
    network = open_network(opened)
    result = certify(opened, image, 2, network)
    assert result.count("certified")
    low, high = network.ends
    assert low.shape == (8, 8, 3)
    clean = opened.tensor(image)
    rng = np.random.default_rng(0)
    for row, column in np.argwhere(result.states == CERTIFIED)[::4].tolist():
        square = slice(row, row + 2), slice(column, column + 2)
        for _ in range(20):
            other = clean.copy()
            other[square] = np.where(rng.random((2, 2, 3)) < 0.5, low[square], high[square])
            assert opened.output(other[None], result.target) > 0.5


def covering(side, pixels, extent=16):
    """Where (rows, columns) a patch covers one of the pixels (row, column)."""
    row, column = np.mgrid[: extent - side + 1, : extent - side + 1]
    hits = [(row <= y) & (y < row + side) & (column <= x) & (x < column + side) for y, x in pixels]
    return np.any(hits, axis=0)


@pytest.mark.parametrize("side", [1, 2, 3])
def test_exactly_the_positions_that_cover_a_decisive_pixel_are_violated(halving, side):
    opened, white = open_detector(load_model(halving())), np.full((16, 16, 3), 255, np.uint8)
    result = certify(opened, white, side)
    expected = np.where(covering(side, [(0, 0), (9, 12)]), VIOLATED, CERTIFIED)
    np.testing.assert_array_equal(result.states, expected)


def test_free_box_that_is_one_row_too_small_does_not_pass_that_test(halving, monkeypatch):
    def short(search, row, column):
        return search.places[:, row : row + search.side - 1, column : column + search.side].ravel()

    monkeypatch.setattr(positions._Search, "_free", short)
    monkeypatch.setattr(positions._Search, "_attack", lambda search: None)
    opened, white = open_detector(load_model(halving())), np.full((16, 16, 3), 255, np.uint8)
    result = certify(opened, white, 2)
    assert (result.states[covering(2, [(9, 12)])] == CERTIFIED).any()


def test_interval_bounds_contain_every_output_and_their_rounding(detector):
    opened = detector(strength=1.0, seed=5)
    network = open_network(opened)
    rng = np.random.default_rng(0)
    lower = rng.random((6, 192)).astype(np.float32).astype(np.float64) * 0.9
    upper = lower + 0.05
    rows = np.concatenate([np.eye(7), -np.eye(7), [[0, 0, 0, 0, 1, -1, 0]]])
    least = batch.least_values(batch.intervals(network.pieces, lower, upper), rows)
    for _ in range(50):
        points = (lower + (upper - lower) * (rng.random(lower.shape) > 0.5)).astype(np.float32)
        raw = [opened.exact(point.reshape(1, 3, 8, 8)) for point in points]
        values = np.array([np.concatenate([one["box"][0], one["scores"][0]]) for one in raw], np.float64)
        assert (values @ rows.T >= least).all()


def test_bounds_of_a_point_leave_room_for_the_rounding_of_float32(detector):
    """Without slack the bounds of a single point would be its value in real arithmetic, to 1e-15."""
    network = open_network(detector(strength=1.0, seed=5))
    point = np.random.default_rng(0).random((1, 192)).astype(np.float32).astype(np.float64)
    both = np.concatenate([np.eye(7), -np.eye(7)])
    least = batch.least_values(batch.intervals(network.pieces, point, point), both)[0]
    width = -least[7:] - least[:7]
    assert (width > 1e-7).all()
    exact = dataclasses.replace(network.net, roundoff=0.0)
    least = batch.least_values(batch.intervals(batch.exact_steps(exact), point, point), both)[0]
    assert (-least[7:] - least[:7] < width / 100).all()


@pytest.mark.parametrize("seed", range(4))
def test_least_iou_of_a_range_of_boxes_is_below_that_of_every_box_in_it(seed):
    rng = np.random.default_rng(seed)
    target = TARGET
    readout = margins.Readout(target, np.zeros((4, 4)))
    centre = np.array(target.box) + rng.normal(0, 0.1, (30, 4))
    reach = rng.random((30, 4)) * rng.choice([0.02, 0.2, 0.6], (30, 1))
    least = readout.least_iou(centre - reach, centre + reach)
    for share in rng.random((200, 30, 4)):
        boxes = centre + (2 * share - 1) * reach
        assert (output_of(boxes, np.zeros(30), target) >= least).all()
    vertices = np.array(list(itertools.product((-1, 1), repeat=4)))
    reached = np.min([output_of(centre + v * reach, np.zeros(30), target) for v in vertices], axis=0)
    np.testing.assert_allclose(least, reached, atol=1e-8)


def test_margins_are_positive_exactly_where_the_output_is_safe(detector):
    from holdfast.graph.ir import evaluate

    opened = detector(strength=0.6, seed=2)
    network = open_network(opened)
    target = opened.predict(opened.tensor(picture())[None])
    net = margins.with_margins(network.net, network.readout(target), 0.5)
    points = np.random.default_rng(1).random((200, 3, 8, 8), np.float32)
    safe = (evaluate(net, points) > 0).all(axis=1)
    values = np.array([opened.output(point[None], target) for point in points])
    assert 0 < safe.sum() < 200
    np.testing.assert_array_equal(safe, values > 0.5)


def test_strict_rule_and_another_threshold_reach_the_bounds(detector):
    opened, image = detector(strength=0.3, seed=1), picture()
    network = open_network(opened)
    counts = [
        certify(opened, image, 2, network, bar=SafetyRule(level), **BOUNDS).count("certified")
        for level in (0.3, 0.95)
    ]
    assert counts[0] > counts[1]


@pytest.mark.parametrize("side", [0, 9])
def test_patch_that_does_not_fit_is_an_input_error(detector, side):
    with pytest.raises(InputError, match=f"expected a patch of 1 to 8 pixels .* got {side}"):
        certify(detector(), picture(), side)


def test_picture_of_another_size_and_a_head_that_is_not_linear_are_errors(detector):
    opened = detector()
    with pytest.raises(InputError, match=r"expected a picture of shape \(3, 8, 8\), got \(3, 4, 4\)"):
        positions.certify_positions(open_network(opened), np.zeros((3, 4, 4), np.float32), TARGET, 2)
    unread = dataclasses.replace(opened, ports=None)
    with pytest.raises(CardError, match="expected a detector with the head 'landmark'"):
        open_network(unread)


def test_target_without_an_area_is_an_error(detector):
    clean = np.zeros((3, 8, 8), np.float32)
    with pytest.raises(ModelError, match="expected a target with an area"):
        positions.certify_positions(open_network(detector()), clean, Target(0, (0.5, 0.5, 0.5, 0.9)), 2)

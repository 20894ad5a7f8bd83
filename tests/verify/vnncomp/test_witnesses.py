import numpy as np
import pytest

from holdfast.verify.vnncomp.results import Counterexample
from holdfast.verify.vnncomp.rules import RULES
from holdfast.verify.vnncomp.witnesses import declared_error, grade
from holdfast.verify.vnnlib import parse_vnnlib

# Unsafe are inputs from 0 to 1 with an output of at most a half.
SPEC = parse_vnnlib(
    "(declare-const X_0 Real)(declare-const Y_0 Real)"
    "(assert (>= X_0 0.0))(assert (<= X_0 1.0))(assert (<= Y_0 0.5))"
)


def graded(year, x, declared, replayed):
    point = np.array([x], np.float64)
    found = Counterexample(point, np.array([declared]))
    return grade(RULES[year], SPEC, found, point, np.array([replayed]))[0]


@pytest.mark.parametrize(
    ("x", "declared", "replayed", "by_2022", "by_2025", "by_2026"),
    [
        (0.5, 0.4, 0.4, "valid", "valid", "valid"),
        (1.0, 0.5, 0.5, "valid", "valid", "valid"),
        (1.00005, 0.4, 0.4, "tolerated", "tolerated", "tolerated"),
        (-0.00005, 0.4, 0.4, "tolerated", "tolerated", "tolerated"),
        (1.001, 0.4, 0.4, "invalid", "invalid", "invalid"),
        (0.5, 0.50005, 0.50005, "tolerated", "tolerated", "invalid"),
        (0.5, 0.51, 0.51, "invalid", "invalid", "invalid"),
        (0.5, 0.4, 0.4003, "invalid", "valid", "valid"),  # 2022: 1e-4 absolute, later 1e-3 relative
        (0.5, 0.3, 0.4, "invalid", "invalid", "valid"),  # declared wrongly; 2026 does not mind
        (0.5, 0.4, 0.6, "invalid", "invalid", "invalid"),
        (0.5, 0.4, float("nan"), "invalid", "invalid", "invalid"),
    ],
)
def test_tolerances_of_the_years(x, declared, replayed, by_2022, by_2025, by_2026):
    assert graded("2022", x, declared, replayed) == by_2022
    assert graded("2025", x, declared, replayed) == by_2025
    assert graded("2026", x, declared, replayed) == by_2026


def test_a_strict_row_needs_more_than_equality():
    spec = parse_vnnlib(
        "(declare-const X_0 Real)(declare-const Y_0 Real)"
        "(assert (>= X_0 0.0))(assert (<= X_0 1.0))(assert (< Y_0 0.5))"
    )
    point = np.array([0.5])
    for year, best in (("2025", "tolerated"), ("2026", "invalid")):
        found = Counterexample(point, np.array([0.5]))
        assert grade(RULES[year], spec, found, point, np.array([0.5]))[0] == best


def test_rows_that_name_inputs_and_any_of_several_cases():
    spec = parse_vnnlib(
        "(declare-const X_0 Real)(declare-const Y_0 Real)"
        "(assert (or (and (>= X_0 0) (<= X_0 1) (>= Y_0 9)) (and (>= X_0 2) (<= X_0 3) (<= Y_0 X_0))))"
    )
    for x, y, expected in (
        (2.5, 2.4, "valid"),
        (2.5, 2.6, "invalid"),
        (0.5, 0.4, "invalid"),
        (0.5, 9.0, "valid"),
    ):
        point, outputs = np.array([x]), np.array([y])
        assert grade(RULES["2026"], spec, Counterexample(point, outputs), point, outputs)[0] == expected


def test_wrong_sizes_are_told():
    found = Counterexample(np.zeros(2), np.zeros(1))
    level, why = grade(RULES["2025"], SPEC, found, np.zeros(2), np.zeros(1))
    assert level == "invalid"
    assert "expected 1 inputs" in why
    assert declared_error(np.zeros(2), np.zeros(1), relative=True) == float("inf")
    assert declared_error(np.zeros(1), np.zeros(1), relative=True) == 0.0


def test_a_fixed_input_that_is_no_float32_may_be_the_nearest():
    spec = parse_vnnlib(
        "(declare-const X_0 Real)(declare-const X_1 Real)(declare-const Y_0 Real)"
        "(assert (>= X_0 0.1))(assert (<= X_0 0.1))(assert (>= X_1 0.1))(assert (<= X_1 0.2))"
        "(assert (<= Y_0 0.5))"
    )
    outputs = np.array([0.4])
    nearest, inside = np.float32(0.1), np.float32(0.15)  # the nearest is above 0.1
    for first, second, expected in (
        (nearest, inside, "valid"),
        (np.nextafter(nearest, np.float32(0)), inside, "tolerated"),
        (nearest, np.float32(0.2), "tolerated"),  # above 0.2, and that input is not fixed
    ):
        point = np.array([first, second])
        found = Counterexample(point.astype(np.float64), outputs)
        assert grade(RULES["2025"], spec, found, point, outputs)[0] == expected


def test_every_row_of_a_case_must_be_met():
    spec = parse_vnnlib(
        "(declare-const X_0 Real)(declare-const Y_0 Real)(declare-const Y_1 Real)"
        "(assert (>= X_0 0))(assert (<= X_0 1))(assert (<= Y_0 1))(assert (<= Y_1 2))"
    )
    point = np.array([0.5])
    for outputs, expected, told in (
        ([0.0, 0.0], "valid", ""),
        ([0.0, 5.0], "invalid", "by 3"),
        ([4.0, 0.0], "invalid", "by 3"),
    ):
        y = np.array(outputs)
        level, why = grade(RULES["2026"], spec, Counterexample(point, y), point, y)
        assert level == expected
        assert told in why


def test_the_nearest_case_is_told():
    spec = parse_vnnlib(
        "(declare-const X_0 Real)(declare-const Y_0 Real)"
        "(assert (or (and (>= X_0 0) (<= X_0 1) (<= Y_0 1)) (and (>= X_0 0) (<= X_0 2) (<= Y_0 3))))"
    )
    for x, y, told in ((0.5, 5.0, "safe, by 2"), (2.5, 0.0, "outside the box, by 0.5")):
        point, outputs = np.array([x]), np.array([y])
        assert told in grade(RULES["2026"], spec, Counterexample(point, outputs), point, outputs)[1]


def test_the_largest_difference_counts_against_the_largest_output():
    declared, replayed = np.array([100.0, 1.0, 0.0]), np.array([100.0, 1.05, 0.001])
    assert declared_error(declared, replayed, relative=False) == pytest.approx(0.05)
    assert declared_error(declared, replayed, relative=True) == pytest.approx(0.0005)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_numbers_that_are_none_are_refused(bad):
    spec = parse_vnnlib(
        "(declare-const X_0 Real)(declare-const X_1 Real)(declare-const Y_0 Real)(declare-const Y_1 Real)"
        "(assert (>= X_0 0))(assert (<= X_0 1))(assert (>= X_1 0))(assert (<= X_1 1))(assert (<= Y_0 1))"
    )
    good = np.array([0.5, 0.5])
    wrong = np.array([0.5, bad])
    for point, outputs in ((good, wrong), (wrong, good)):
        level, why = grade(RULES["2026"], spec, Counterexample(point, outputs), point, outputs)
        assert (level, why) == ("invalid", "some of its numbers are not finite")

"""Deliberate mistakes in the kernels and around them: the checks of the corpus must fail on every one."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from helpers.few_inputs import asked, check_certified, check_layers, check_programs
from helpers.plain_kernels import engine, install, plain
from helpers.verdicts import check_boxes, check_corner, check_line, check_numbers
from holdfast.verify import problem
from holdfast.verify.lowdim.search import BoxWalker

Check = Callable[[], object]


def layers(kernels) -> Iterator[Check]:
    """Ranges of layers, of large and small weights, in boxes down to points."""
    return (lambda s=s: check_layers(kernels, asked(s, (1.0, 1e4)[s % 2])) for s in range(60))


def programs(kernels) -> Iterator[Check]:
    """Rows, cuts, bounds and clips."""
    return (lambda s=s: check_programs(kernels, asked(s), s, bool(s % 2)) for s in range(60))


def loose_programs(kernels) -> Iterator[Check]:
    """The same in boxes that are hardly more than points, with rounding as large as can be."""
    return (
        lambda s=s: check_programs(kernels, asked(s, 3.0, 0.0, None, 1e-3), s, bool(s % 2)) for s in range(99)
    )


def wide_loose_programs(kernels) -> Iterator[Check]:
    """The same at the corners of large boxes."""
    return (lambda s=s: check_programs(kernels, asked(s, 1.0, 1.0, (4,), 0.1), s, False) for s in range(60))


def pooled_programs(kernels) -> Iterator[Check]:
    """The same with more open relus than symbols."""
    return (lambda s=s: check_programs(kernels, asked(s, 1.0, 1.0, (20, 6)), s, False) for s in range(12))


def sums(kernels) -> Iterator[Check]:
    """Certified bounds."""
    return (lambda s=s: check_certified(kernels, s) for s in range(300))


def numbers(kernels) -> Iterator[Check]:
    """What is not finite."""
    return (lambda w=w: check_numbers(w) for w in (float("nan"), float("inf")))


def verdicts(kernels) -> Iterator[Check]:
    """Verdicts at exact minima of one input."""
    return (lambda s=s: check_line(s, (1e-3, 0.0, -1e-15)) for s in range(40))


KERNELS = {
    "relaxation_sign": (
        layers,
        "max((slope - keep) * low, (1.0 - keep) * high)",
        "max((keep - slope) * low, (keep - 1.0) * high)",
    ),
    "relaxation_end_dropped": (
        layers,
        "    return keep, max((slope - keep) * low, (1.0 - keep) * high)",
        "    keep = max(slope, 0.5)\n    return keep, (slope - keep) * low",
    ),
    "half_a_parallelogram": (layers, "radius = (0.5 * lift +", "radius = (0.25 * lift +"),
    "middle_of_the_relaxation": (
        layers,
        "space.post[i] = keep * centre + 0.5 * lift",
        "space.post[i] = keep * centre",
    ),
    "no_rounding": (layers, "(error[i] + unit * total[i]) * UP + TINY", "TINY"),
    "rounding_not_carried": (
        loose_programs,
        "radius if pooled else keep * error if radius == 0.0 else 0.0",
        "0.0",
    ),
    "rounding_lost_in_a_symbol": (wide_loose_programs, "(0.5 * lift + keep * error +", "(0.5 * lift +"),
    "pool_lost": (
        pooled_programs,
        "post_error[i] = radius if pooled else",
        "post_error[i] = 0.0 if pooled else",
    ),
    "half_width_too_small": (layers, "half = half * UP + ", "half = half * 0.999 + "),
    "off_too_early": (layers, "elif phase[q] < 0 or high <= 0.0:", "elif phase[q] < 0 or centre <= 0.0:"),
    "empty_too_early": (programs, "(phase[q] > 0 and high < 0.0)", "(phase[q] > 0 and centre < 0.0)"),
    "phase_row_sign": (programs, "-1.0 if phase[q] > 0 else 1.0", "1.0 if phase[q] > 0 else -1.0"),
    "row_error_sign": (loose_programs, "+ shift - error\n", "+ shift + error\n"),
    "cut_sign": (programs, "lp.row[at, s] = -space.radius[q]", "lp.row[at, s] = space.radius[q]"),
    "cut_height": (programs, "-0.5 * space.lift[q], error)", "0.5 * space.lift[q], error)"),
    "back_line_swapped": (programs, "if a < 0.0:  # above", "if a > 0.0:  # above"),
    "back_lift_lost": (programs, "constant += a * space.lift[q]", "constant += 0.0"),
    "back_slope": (programs, "a *= net.slope[q]", "a *= 1.5"),
    "back_rounding_lost": (
        loose_programs,
        "return constant, (error + slop * size) * UP",
        "return constant, 0.0",
    ),
    "multiplier_not_clamped": (
        sums,
        "if w > 0.0:\n            row = lp.row[i]\n            for j in range(n):",
        "if w != 0.0:\n            row = lp.row[i]\n            for j in range(n):",
    ),
    "cube_corner": (sums, "value -= abs(joined[j])", "value -= joined[j]"),
    "no_number_is_a_proof": (numbers, "undecided = True\n", "undecided = bound <= 0.0\n"),
    "sum_rounding_lost": (sums, " - 2.0 * U * (rows + n + 8) * size * UP - TINY", ""),
    "clip_too_far": (
        programs,
        "norm * UP - abs(a) + slack) / abs(a)",
        "norm * UP - 1.5 * abs(a) + slack) / abs(a)",
    ),
    "clip_sign": (
        programs,
        "space.high_one[j] = min(space.high_one[j], reach)",
        "space.high_one[j] = min(space.high_one[j], -reach)",
    ),
    "clip_of_the_last_case_only": (
        programs,
        "max(space.high_clip[j], space.high_one[j])",
        "space.high_one[j]",
    ),
    "cut_box_too_far": (
        programs,
        "space.half[j] * space.high_clip[j] + slack",
        "space.half[j] * (space.high_clip[j] - 0.1) + slack",
    ),
    "case_skipped": (
        verdicts,
        "range(stack.alive.shape[1]):\n        if stack.alive",
        "range(1):\n        if stack.alive",
    ),
    "half_skipped": (verdicts, "stack.phase[top + 1, neuron] = 1, -1", "stack.phase[top + 1, neuron] = 1, 1"),
    "input_half_skipped": (
        verdicts,
        "stack.upper[top, d], stack.lower[top + 1, d] = at, at",
        "stack.lower[top, d], stack.lower[top + 1, d] = at, at",
    ),
    "leaf_forgotten": (
        verdicts,
        "        stack.point[j] = space.trial[j]\n    return LEAF",
        "        stack.point[j] = space.trial[j]\n    return MORE",
    ),
    "bound_nearly_positive": (
        verdicts,
        "    if bound > 0.0:\n        share",
        "    if bound > -1e-9:\n        share",
    ),
    "found_is_enough": (
        verdicts,
        "    if code == FOUND:\n        return FOUND\n",
        "    if code == FOUND:\n        state.top -= 1\n        return MORE\n",
    ),
}


def boxes_forgotten(patch):
    patch.setattr(engine, "same_box", lambda cases: problem.same_box(cases)[:1])


def parked_boxes_forgotten(patch):
    patch.setattr(engine, "PARKED", 10**9)
    patch.setattr(engine._Search, "parked", property(lambda self: 0, lambda self, value: None), raising=False)


def box_too_small(patch):
    once = BoxWalker.put_box
    patch.setattr(BoxWalker, "put_box", lambda self, case: once(self, replace(case, upper=case.upper - 1e-3)))


def bounds_of_the_first_case_for_all(patch):
    once = engine.table_of

    def table_of(layers, cases):
        return once(layers, [replace(case, bound=case.bound * 0 + cases[0].bound[0]) for case in cases])

    patch.setattr(engine, "table_of", table_of)


AROUND = (boxes_forgotten, parked_boxes_forgotten, box_too_small, bounds_of_the_first_case_for_all)


@pytest.mark.parametrize("mutant", AROUND, ids=lambda m: m.__name__)
def test_a_mutant_around_the_kernels_is_caught(mutant, monkeypatch):
    install(monkeypatch, plain())
    mutant(monkeypatch)
    monkeypatch.setattr(engine, "CLIMBS", 0)
    monkeypatch.setattr(BoxWalker, "fair_climbs", lambda self: 0)
    with pytest.raises(AssertionError):  # noqa: PT012 - any of the checks may be the one
        for seed in range(40):
            check_corner(seed)
            check_boxes(seed)
            check_line(seed, (1e-3, 0.0, -1e-15))


@pytest.mark.parametrize("mutant", KERNELS)
def test_a_mutant_of_the_kernels_is_caught(mutant, monkeypatch):
    checks, right, wrong = KERNELS[mutant]
    if checks is pooled_programs:
        monkeypatch.setattr(engine, "WORK", 0)
    kernels = plain((right, wrong))
    install(monkeypatch, kernels)
    monkeypatch.setattr(engine, "CLIMBS", 0)  # no luck: what is not proven is looked at
    monkeypatch.setattr(BoxWalker, "fair_climbs", lambda self: 0)
    with pytest.raises(AssertionError):  # noqa: PT012 - any of the checks may be the one
        for check in checks(kernels):
            check()

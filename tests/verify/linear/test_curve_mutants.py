"""Deliberate mistakes in lines and planes of curves and products: containment checks must fail on each."""

from dataclasses import replace

import pytest
import torch

from helpers.bounds import sample
from helpers.soundness import check_planes, check_queries, lines, queries, steps
from holdfast.verify.linear import curves, passes, root, shapes


def chord_below_a_convex_curve(patch):
    once = curves.ConvexRelaxation.line_data

    def drawn(*given):
        made = once(*given)
        made[:, 3] = made[:, 3] - 2 * made[:, 4] * 1e-3
        return made

    patch.setattr(curves.ConvexRelaxation, "line_data", drawn)
    return lines("square", "softplus", "elu")


def convex_curve_upside_down(patch):
    patch.setattr(shapes, "CONCAVE", ("square", "exp", "softplus", "elu"))
    return lines("square", "softplus", "elu")


def tangents_of_a_convex_curve_past_its_end(patch):
    patch.setattr(curves.ConvexRelaxation, "keep", lambda self, theta, split=None: theta + 1e-3)
    patch.setattr(curves, "derivative", lambda step, z: shapes.derivative(step, z + 0.5))
    return lines("square")


def sine_without_its_last_trough(patch):
    once = shapes.least

    def least(slope, lower, upper):
        return once(slope, lower, torch.minimum(upper, lower + 3.2))

    patch.setattr(curves, "least", least)
    return lines("sin")


def sine_range_by_its_ends(patch):
    def ends(lower, upper):
        values = torch.sin(lower), torch.sin(upper)
        return torch.minimum(*values), torch.maximum(*values)

    patch.setattr(shapes, "sine_range", ends)
    return steps("sin")


def square_falls_and_rises(patch):
    patch.setattr(root, "span", lambda step, low, high: (shapes.curve(step, low), shapes.curve(step, high)))
    return steps("square")


def the_wrong_corner_of_a_product(patch):
    once = shapes.ProductRelaxation.lines

    def planes(self, theta, split=None):
        made = once(self, theta, split)
        return replace(made, lo=made.uo, uo=made.lo)

    patch.setattr(shapes.ProductRelaxation, "lines", planes)
    return queries("product")


def products_mixed_beyond_their_planes(patch):
    patch.setattr(shapes.ProductRelaxation, "keep", lambda self, theta, split=None: theta.clamp(-1, 2))
    return iter([lambda: check_planes(0)])


def planes_without_room_for_rounding(patch):
    made = shapes.ProductRelaxation.__init__

    def init(self, *given):
        made(self, *given)
        self.pad = 0 * self.pad

    patch.setattr(shapes.ProductRelaxation, "__init__", init)
    return (lambda s=seed: check_planes(s) for seed in range(6))


def one_factor_forgotten(patch):
    once = passes._pass_product

    def multiplied(step, planes, rows, const, pending):
        other = {}
        const = once(step, planes, rows, const, other)
        passes._add(pending, step.left, other[step.left])
        passes._add(pending, step.right, 0 * other[step.right])
        return const

    patch.setattr(passes, "_pass_product", multiplied)
    return (lambda s=seed: check_queries(sample("product", s, 0.05), s) for seed in range(6))


def product_of_lower_ends(patch):
    patch.setattr(root, "product_range", lambda left, right: (left[0] * right[0], left[1] * right[1]))
    return steps("product")


def erf_bends_like_tanh(patch):
    slopes = dict(shapes._SLOPES, erf=shapes._SLOPES["tanh"])
    patch.setattr(shapes, "_SLOPES", slopes)
    return lines("erf")


MUTANTS = (
    chord_below_a_convex_curve,
    convex_curve_upside_down,
    tangents_of_a_convex_curve_past_its_end,
    sine_without_its_last_trough,
    sine_range_by_its_ends,
    square_falls_and_rises,
    the_wrong_corner_of_a_product,
    products_mixed_beyond_their_planes,
    planes_without_room_for_rounding,
    one_factor_forgotten,
    product_of_lower_ends,
    erf_bends_like_tanh,
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.__name__)
def test_a_mutant_is_caught(mutant, monkeypatch):
    torch.set_num_threads(1)
    checks = mutant(monkeypatch)
    with pytest.raises(AssertionError):  # noqa: PT012 - any of the checks may be the one
        for check in checks:
            check()

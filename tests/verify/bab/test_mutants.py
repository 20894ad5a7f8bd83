"""Deliberate mistakes in bounds and branching: the checks of the corpus must fail on every one of them."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from helpers.bounds import only_in, sample
from helpers.soundness import (
    TREES,
    Check,
    check_adjoint,
    check_conjunction,
    check_cut,
    check_moves,
    check_offsets,
    check_rounding,
    check_specification,
    check_threshold,
    check_weights,
    lines,
    queries,
    steps,
)
from holdfast.graph.ir import Conv
from holdfast.verify import problem
from holdfast.verify.bab import decide, search, tree
from holdfast.verify.bab.tree import RootMapping
from holdfast.verify.linear import curves, passes, root, tune
from holdfast.verify.linear.pieces import LinearSteps


def rounding() -> Iterator[Check]:
    """Bounds over nearly a point."""
    return (lambda k=kind, s=seed: check_rounding(k, s) for kind in ("relu", "conv") for seed in range(3))


def verdicts() -> Iterator[Check]:
    """Verdicts at exact minima, with bounds that float32 rounds, and of conjunctions."""
    checks = (check_offsets, check_conjunction, check_threshold)
    return (lambda c=check, s=seed: c(s) for seed in range(4) for check in checks)


def chord_offset_flipped(patch):
    made = curves.ReluRelaxation.__init__

    def init(self, *given):
        made(self, *given)
        self.offset = -self.offset

    patch.setattr(curves.ReluRelaxation, "__init__", init)
    return queries("relu")


def slopes_beyond_one(patch):
    patch.setattr(curves.ReluRelaxation, "keep", lambda self, theta, split=None: theta.clamp_(-0.5, 1.5))
    return lines("relu")


def slopes_beyond_one_when_tuned(patch):
    patch.setattr(curves.ReluRelaxation, "keep", lambda self, theta, split=None: theta.clamp_(-0.5, 1.5))
    return queries("relu")


def beta_sign_flipped(patch):
    once = tune._extra
    patch.setattr(tune, "_extra", lambda q: None if q.beta is None else {k: -v for k, v in once(q).items()})
    return queries("relu", "leaky", seeds=40)


def one_end_of_the_box_dropped(patch):
    once = root.ball

    def ball(pieces, lower, upper):
        return once(pieces, lower, lower + 0.9 * (upper - lower))

    patch.setattr(root, "ball", ball)
    return steps()


def a_disjunct_skipped(patch):
    patch.setattr(decide, "same_box", lambda cases: [g[:-1] or g for g in problem.same_box(cases)])
    return verdicts()


def a_box_skipped(patch):
    patch.setattr(decide, "same_box", lambda cases: problem.same_box(cases)[:2])
    return verdicts()


def slack_of_the_wrong_sign(patch):
    once = passes._Slack.total
    patch.setattr(passes._Slack, "total", lambda self, rows: -once(self, rows))
    return rounding()


def no_slack(patch):
    patch.setattr(passes._Slack, "total", lambda self, rows: torch.zeros(len(rows), dtype=torch.float64))
    return rounding()


def intervals_rounded_to_nearest(patch):
    once = root.interval

    def interval(pieces, at, sweep):
        low, high = once(pieces, at, sweep)
        middle = (low + high) / 2
        return middle, middle

    patch.setattr(root, "interval", interval)
    return rounding()


def tangent_past_the_reach(patch):
    patch.setattr(curves, "_reach", lambda step, lower, upper: torch.minimum(upper, upper.new_tensor(0.0)))
    return lines("tanh", "sigmoid")


def tangents_with_lost_digits(patch):
    patch.setattr(curves, "derivative", lambda step, z: 1 - torch.tanh(z) ** 2)
    return lines("tanh")


def sign_rises_too_fast(patch):
    made = curves.SignRelaxation.__init__

    def init(self, *given):
        made(self, *given)
        self.fixed_lines = replace(
            self.fixed_lines, ls=1.5 * self.fixed_lines.ls, us=1.5 * self.fixed_lines.us
        )

    patch.setattr(curves.SignRelaxation, "__init__", init)
    return lines("sign")


def best_leaf_instead_of_the_worst(patch):
    patch.setattr(decide, "_least", lambda group: max(domain.lower for domain in group))
    return steps(effort=TREES)


def one_child_forgotten(patch):
    patch.setattr(decide, "children", lambda *given: tree.children(*given)[::2])
    return steps(effort=TREES)


def one_part_of_a_curve_forgotten(patch):
    patch.setattr(decide, "children", lambda *given: tree.children(*given)[1::2])
    return steps("sigmoid", effort=TREES)


def a_gap_between_the_parts(patch):
    once = tree.children

    def children(made, domains, splits):
        halves = once(made, domains, splits)
        shrunk = []
        for d in halves:
            cuts = {n: (low + 0.1 * (high - low), high) for n, (low, high) in d.cuts.items()}
            shrunk.append(replace(d, cuts=cuts))
        return shrunk

    patch.setattr(decide, "children", children)
    return steps("sigmoid", effort=TREES)


def parts_with_the_lines_of_another(patch):
    patch.setattr(
        curves.SigmoidRelaxation,
        "assumed",
        lambda self, lower, upper: self.line_data(lower, lower),
    )
    return queries("sigmoid", "tanh")


def ends_of_parts_without_a_constant(patch):
    patch.setattr(tune, "_fixed", lambda asked: None)
    return queries("sigmoid", "tanh")


def ends_of_parts_swapped(patch):
    once = tune._extra
    patch.setattr(tune, "_extra", lambda q: None if q.beta is None else {k: -v for k, v in once(q).items()})
    return queries("sigmoid", "tanh")


def one_half_not_searched(patch):
    only_in(patch, decide, "grow", children=lambda *given: tree.children(*given)[::2])
    return verdicts()


def one_part_of_a_curve_not_searched(patch):
    only_in(patch, decide, "grow", children=lambda *given: tree.children(*given)[::2])
    return (lambda s=seed: check_cut(s, seconds=120) for seed in range(8))


def moves_drop_what_is_decided(patch):
    once = RootMapping.domain

    def domain(self, given, case, rows):
        wrong = bool((given.split * self.sign > 0).any())
        return None if wrong else once(self, given, case, rows)

    patch.setattr(RootMapping, "domain", domain)
    return (lambda s=seed: check_moves(sample("relu", s, 1.0)) for seed in range(6))


def moves_drop_what_is_cut_low(patch):
    once = RootMapping.domain

    def domain(self, given, case, rows):
        moved = once(self, given, case, rows)
        return None if moved is not None and any(low < -0.5 for low, _ in moved.cuts.values()) else moved

    patch.setattr(RootMapping, "domain", domain)
    return (lambda s=seed: check_moves(sample("sigmoid", s, 1.0)) for seed in range(6))


def pads_swapped(patch):
    once = LinearSteps._deconvolve

    def deconvolve(self, step, *given):
        assert isinstance(step, Conv)
        top, left, bottom, right = step.pads
        return once(self, replace(step, pads=(bottom, right, top, left)), *given)

    patch.setattr(LinearSteps, "_deconvolve", deconvolve)
    return iter([lambda: check_adjoint(sample("conv", 0))])


def the_specification_rounded(patch):
    once = search._double
    patch.setattr(search, "_double", lambda asked, exact: once(replace(asked, spec=None), exact))
    return verdicts()


def mixed_rows_rounded(patch):
    patch.setattr(tune, "_specified", lambda region, asked, spec, lower: lower - asked.offset)
    return iter([lambda: check_specification(0)])


def every_positive_bound_a_proof(patch):
    def closed(found, region, exact, asked):
        return tune.bound(region, asked).lower > -1e-6

    only_in(patch, decide, "_root", closed=closed)
    return verdicts()


def programs_believed(patch):
    patch.setattr(search, "closed", lambda *given: torch.ones(len(given[-1]), dtype=torch.bool))
    return verdicts()


def negative_weights_allowed(patch):
    def exactly(asked, spec):
        mix = asked.mix.double()
        return mix.abs(), replace(asked, parts=spec).mixed(mix)

    patch.setattr(tune, "exactly", exactly)
    patch.setattr(search, "exactly", exactly)
    return iter([check_weights])


MUTANTS = (
    chord_offset_flipped,
    slopes_beyond_one,
    slopes_beyond_one_when_tuned,
    beta_sign_flipped,
    one_end_of_the_box_dropped,
    a_disjunct_skipped,
    a_box_skipped,
    slack_of_the_wrong_sign,
    no_slack,
    intervals_rounded_to_nearest,
    tangent_past_the_reach,
    tangents_with_lost_digits,
    sign_rises_too_fast,
    best_leaf_instead_of_the_worst,
    one_child_forgotten,
    one_part_of_a_curve_forgotten,
    a_gap_between_the_parts,
    parts_with_the_lines_of_another,
    ends_of_parts_without_a_constant,
    ends_of_parts_swapped,
    one_half_not_searched,
    one_part_of_a_curve_not_searched,
    moves_drop_what_is_decided,
    moves_drop_what_is_cut_low,
    pads_swapped,
    the_specification_rounded,
    mixed_rows_rounded,
    every_positive_bound_a_proof,
    programs_believed,
    negative_weights_allowed,
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.__name__)
def test_a_mutant_is_caught(mutant, monkeypatch):
    torch.set_num_threads(1)
    checks = mutant(monkeypatch)
    with pytest.raises(AssertionError):  # noqa: PT012 - any of the checks may be the one
        for check in checks:
            check()

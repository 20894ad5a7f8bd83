"""Affine forms of every neuron over a box, in one forward pass; bounds of rows, in one backward pass.

A neuron before its activation is centre + Σ form[symbol] · e[symbol] ± error, each symbol within [-1, 1]:
one for each input and one for each open (unstable) activation. `error` bounds all rounding so far.

All kernels are compiled such that fused and reordered sums are allowed. Such a sum rounds no worse than the
plain one in the bounds used here, n·u·Σ|terms| with u = 2**-53, which hold for every order of summation. NaN
and infinity keep their meaning: a comparison with NaN is false, so a domain with one is never pruned.

Kernels raise nothing and allocate nothing: arrays are indexed and sliced, never assigned to as a whole or
reshaped. So they are compiled without reference counting, which halves their time.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

from holdfast.verify.lowdim.tables import Integers, LayerTable, Reals, Signs, Workspace

Function = TypeVar("Function", bound=Callable[..., Any])
FINE, EMPTY, WILD = 1, 0, -1
U = 2.0**-53
UP = 1.0 + 2.0**-36  # exceeds every product of factors (1 + n·u) used here, n < 2**16
TINY = 1e-300  # exceeds the loss by underflow
HUGE = 1e100  # larger ranges are not processed: their sums could be infinite or NaN
_OPTIONS: dict[str, Any] = {
    "_nrt": False,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "error_model": "numpy",
    "fastmath": {"contract", "reassoc"},
}


def kernel(function: Function) -> Function:
    """Compile a function that other kernels call. Python cannot call it."""
    compiled: Function = njit(**_OPTIONS)(function)
    return compiled


def part(function: Function) -> Function:
    """Compile a function into its only caller."""
    compiled: Function = njit(inline="always", **_OPTIONS)(function)
    return compiled


@kernel
def add_rows(out: Reals, coef: Reals, pick: Integers, count: int, table: Reals) -> None:
    """Add to out (n,) Σ coef[q] · row pick[q] of the flat table (.., n), over q < count."""
    n = out.size
    q = 0
    while q + 4 <= count:
        a, b, c, d = coef[q], coef[q + 1], coef[q + 2], coef[q + 3]
        ra = table[pick[q] * n : pick[q] * n + n]
        rb = table[pick[q + 1] * n : pick[q + 1] * n + n]
        rc = table[pick[q + 2] * n : pick[q + 2] * n + n]
        rd = table[pick[q + 3] * n : pick[q + 3] * n + n]
        for i in range(n):
            out[i] += a * ra[i] + b * rb[i] + c * rc[i] + d * rd[i]
        q += 4
    while q < count:
        a = coef[q]
        ra = table[pick[q] * n : pick[q] * n + n]
        for i in range(n):
            out[i] += a * ra[i]
        q += 1


@kernel
def enter(space: Workspace, lower: Reals, upper: Reals) -> int:
    """FINE, or WILD when the box is not finite; the inputs' forms: middle ± half covers the box."""
    state = FINE
    for i in range(lower.size):
        middle = 0.5 * lower[i] + 0.5 * upper[i]
        half = max(upper[i] - middle, middle - lower[i])
        half = half * UP + 4.0 * U * (abs(lower[i]) + abs(upper[i])) + TINY
        space.middle[i] = middle
        space.half[i] = half
        space.post[i] = middle
        space.post_error[i] = 0.0
        space.post_size[i] = abs(middle) + half
        space.post_radius[i] = half
        space.owner[i] = -1
        if not (abs(middle) < HUGE and half < HUGE):
            state = WILD
    return state


@kernel
def carry_symbols(net: LayerTable, space: Workspace, k: int) -> None:
    """Set the forms of layer k (1..) from those of the layer before."""
    n, m = net.sizes[k - 1], net.sizes[k]
    column = net.column[net.at[k - 1] : net.at[k]]
    base = space.owner.size * net.first[k - 1]
    total = 0
    if k > 1:
        total = space.count[k - 1]
        p, before = net.first[k - 2], space.owner.size * net.first[k - 2]
        active = 0
        for i in range(n):
            if space.keep[p + i] != 0.0:
                space.pick[active] = i
                active += 1
        for j in range(total):
            last = space.form[before + j * n : before + j * n + n]
            for q in range(active):
                i = space.pick[q]
                space.coef[q] = space.keep[p + i] * last[i]
            out = space.form[base + j * m : base + j * m + m]
            for i in range(m):
                out[i] = 0.0
            add_rows(out, space.coef, space.pick, active, column)
    for i in range(n):
        radius = space.post_radius[i]
        if radius > 0.0:
            row = column[i * m : i * m + m]
            out = space.form[base + total * m : base + total * m + m]
            for o in range(m):
                out[o] = radius * row[o]
            total += 1
    space.count[k] = total


@kernel
def bound_layer(net: LayerTable, space: Workspace, k: int) -> None:
    """Set centre, error and range of layer k (1..), after `carry_symbols`."""
    n, m, f, unit = net.sizes[k - 1], net.sizes[k], net.first[k - 1], net.unit[k - 1]
    column, size = net.column[net.at[k - 1] : net.at[k]], net.size[net.at[k - 1] : net.at[k]]
    centre, error, total = space.centre[f : f + m], space.error[f : f + m], space.sum[f : f + m]
    spread = space.spread[f : f + m]
    for i in range(m):
        centre[i], error[i], total[i], spread[i] = net.bias[f + i], 0.0, net.bias_size[f + i], 0.0
    used = 0
    for i in range(n):
        if space.post_size[i] != 0.0:  # so that no number is no zero
            space.pick[used] = i
            used += 1
    for which in range(3):
        source = space.post if which == 0 else space.post_error if which == 1 else space.post_size
        for q in range(used):
            space.coef[q] = source[space.pick[q]]
        out = centre if which == 0 else error if which == 1 else total
        add_rows(out, space.coef, space.pick, used, column if which == 0 else size)
    base = space.owner.size * f
    for j in range(space.count[k]):
        row = space.form[base + j * m : base + j * m + m]
        for i in range(m):
            spread[i] += abs(row[i])
    for i in range(m):
        error[i] = (error[i] + unit * total[i]) * UP + TINY
        reach = (spread[i] + error[i] + 4.0 * U * abs(centre[i])) * UP
        space.low[f + i] = centre[i] - reach
        space.high[f + i] = centre[i] + reach


@kernel
def relaxed(low: float, high: float, slope: float) -> tuple[float, float]:
    """The slope and the height of a parallelogram around f(x) = max(x, slope·x) over [low, high] about 0.

    f(x) lies in keep·x + [0, lift] for every keep in [slope, 1] with lift the larger gap at the ends: f is
    convex and f(0) = 0.
    """
    keep = min(1.0, max(slope, (high - slope * low) / (high - low)))
    return keep, max((slope - keep) * low, (1.0 - keep) * high) * UP + TINY


@kernel
def relax(net: LayerTable, space: Workspace, k: int, phase: Signs) -> int:
    """FINE, EMPTY when layer k (1..) cannot be in these phases, or WILD; the forms after its activations."""
    f, total = net.first[k - 1], space.count[k]
    for i in range(net.sizes[k]):
        q = f + i
        low, high, a = space.low[q], space.high[q], net.slope[q]
        centre, error, spread = space.centre[q], space.error[q], space.spread[q]
        if (phase[q] > 0 and high < 0.0) or (phase[q] < 0 and low > 0.0):
            return EMPTY
        if not (low > -HUGE and high < HUGE):
            return WILD
        keep, lift, radius = 1.0, 0.0, 0.0
        space.symbol[q] = -1
        if a >= 1.0 or phase[q] > 0 or low >= 0.0:
            space.state[q] = 1
        elif phase[q] < 0 or high <= 0.0:
            space.state[q], keep = -1, a
        else:
            keep, lift = relaxed(low, high, a)
            radius = (0.5 * lift + keep * error + 4.0 * U * (abs(centre) + lift + spread)) * UP
            space.state[q] = 3
            if total < space.owner.size:
                space.state[q], space.symbol[q], space.owner[total] = 2, total, q
                total += 1
        space.keep[q], space.lift[q], space.radius[q] = keep, lift, radius
        pooled = space.state[q] == 3
        space.post[i] = keep * centre + 0.5 * lift
        space.post_error[i] = radius if pooled else keep * error if radius == 0.0 else 0.0
        space.post_radius[i] = 0.0 if pooled else radius
        space.post_size[i] = (abs(space.post[i]) + keep * (spread + error) + radius) * UP
    return FINE


@part
def forward(net: LayerTable, space: Workspace, lower: Reals, upper: Reals, phase: Signs) -> int:
    """FINE, EMPTY when the box cannot be in these phases, or WILD; the forms and ranges of all layers."""
    if enter(space, lower, upper) == WILD:
        return WILD
    last = net.sizes.size - 1
    for k in range(1, last + 1):
        carry_symbols(net, space, k)
        bound_layer(net, space, k)
        if k < last:
            state = relax(net, space, k, phase)
            if state != FINE:
                return state
    return FINE


@kernel
def step_back(space: Workspace, weight: Reals, used: int, n: int) -> None:
    """Set `here` to the picked coefficients times the rows of a layer's weights (.., n)."""
    here = space.here[:n]
    for i in range(n):
        here[i] = 0.0
    add_rows(here, space.coef, space.pick, used, weight)


@kernel
def backward(net: LayerTable, space: Workspace, row: int, out: Reals) -> tuple[float, float]:
    """The constant and the error of a lower bound on the row, whose slopes (inputs,) are put into `out`.

    The bound is constant + slopes·x - error; ranges and states are those of the forward pass.
    """
    last = net.sizes.size - 1
    q, n = net.first[last - 1] + row, net.sizes[last - 1]
    constant, error = net.bias[q], net.unit[last - 1] * space.sum[q]
    slop = 4.0 * U * (net.bias.size + net.sizes[0] + 16)  # of the sum `constant`, and of that with the inputs
    error += slop * net.bias_size[q]
    for i in range(n):
        space.here[i] = net.weight[net.at[last - 1] + row * n + i]
    for k in range(last - 1, 0, -1):
        f, used, unit = net.first[k - 1], 0, net.unit[k - 1] + 16.0 * U
        for i in range(net.sizes[k]):
            a, q = space.here[i], f + i
            if a == 0.0 or (space.state[q] == -1 and space.keep[q] == 0.0):
                continue
            if space.state[q] == -1:
                a *= space.keep[q]
            elif space.state[q] >= 2:
                if a < 0.0:  # above f lies keep·x + lift
                    constant += a * space.lift[q]
                    error += slop * abs(a * space.lift[q])
                    a *= space.keep[q]
                elif space.high[q] < -space.low[q]:  # below f lie x and slope·x
                    a *= net.slope[q]
            if a != 0.0:
                space.pick[used], space.coef[used] = i, a
                used += 1
                constant += a * net.bias[q]
                error += abs(a) * (unit * space.sum[q] + slop * net.bias_size[q])
        step_back(space, net.weight[net.at[k - 1] : net.at[k]], used, net.sizes[k - 1])
    size = abs(constant)
    for i in range(net.sizes[0]):
        out[i] = space.here[i]
        size += abs(space.here[i]) * (abs(space.middle[i]) + space.half[i])
    return constant, (error + slop * size) * UP


@kernel
def gradient(net: LayerTable, space: Workspace, row: int, out: Reals) -> None:
    """Set `out` to the row's slopes (inputs,) at the point evaluated last."""
    last = net.sizes.size - 1
    n = net.sizes[last - 1]
    for i in range(n):
        space.here[i] = net.weight[net.at[last - 1] + row * n + i]
    for k in range(last - 1, 0, -1):
        f, used = net.first[k - 1], 0
        for i in range(net.sizes[k]):
            a = space.here[i] if space.preactivation[f + i] > 0.0 else space.here[i] * net.slope[f + i]
            if a != 0.0:
                space.pick[used], space.coef[used] = i, a
                used += 1
        step_back(space, net.weight[net.at[k - 1] : net.at[k]], used, net.sizes[k - 1])
    for i in range(net.sizes[0]):
        out[i] = space.here[i]

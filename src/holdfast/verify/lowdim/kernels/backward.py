"""A row of the last layer bounded from below by a linear function of the inputs, in one backward pass."""

from __future__ import annotations

from holdfast.verify.lowdim.kernels.compiled import UP, U, kernel
from holdfast.verify.lowdim.kernels.zonotope import add_rows
from holdfast.verify.lowdim.tables import Reals, Space, Table


@kernel
def step_back(space: Space, weight: Reals, used: int, n: int) -> None:
    """Nothing; in `here` the picked coefficients times the rows of a layer's weights (.., n)."""
    here = space.here[:n]
    for i in range(n):
        here[i] = 0.0
    add_rows(here, space.coef, space.pick, used, weight)


@kernel
def backward(net: Table, space: Space, row: int, out: Reals) -> tuple[float, float]:
    """The constant and the error of a lower bound on the row, whose slopes (inputs,) are put into `out`.

    The bound is constant + slopes·x - error; ranges and states are those of the forward pass.
    """
    last = net.sizes.size - 1
    q, n = net.first[last - 1] + row, net.sizes[last - 1]
    constant, error = net.bias[q], net.unit[last - 1] * space.sum[q]
    slop = (
        4.0 * U * (net.bias.size + net.sizes[0] + 16)
    )  # of the sum that `constant` is, and of that with the inputs
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
def gradient(net: Table, space: Space, row: int, out: Reals) -> None:
    """Nothing; the row's slopes (inputs,) at the point evaluated last, put into `out`."""
    last = net.sizes.size - 1
    n = net.sizes[last - 1]
    for i in range(n):
        space.here[i] = net.weight[net.at[last - 1] + row * n + i]
    for k in range(last - 1, 0, -1):
        f, used = net.first[k - 1], 0
        for i in range(net.sizes[k]):
            a = space.here[i] if space.seen[f + i] > 0.0 else space.here[i] * net.slope[f + i]
            if a != 0.0:
                space.pick[used], space.coef[used] = i, a
                used += 1
        step_back(space, net.weight[net.at[k - 1] : net.at[k]], used, net.sizes[k - 1])
    for i in range(net.sizes[0]):
        out[i] = space.here[i]

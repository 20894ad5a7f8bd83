"""The one function that Python calls: a walk over the boxes of a stack, in blocks of plain memory."""

from __future__ import annotations

from typing import Any

from numba import carray, njit

from holdfast.verify.lowdim.kernels.compiled import kernel
from holdfast.verify.lowdim.kernels.walk import walk
from holdfast.verify.lowdim.tables import Blocks, views

_named = kernel(views)


def run(  # one pointer for each block
    size: Any, shape: Any, matrix: Any, bias: Any, unit: Any, start: Any, neuron: Any, mark: Any, owner: Any,
    count: Any, form: Any, inputs: Any, wide: Any, pick: Any, share: Any, row: Any, table: Any, slope: Any,
    tall: Any, basic: Any, long: Any, order: Any, lower: Any, upper: Any, phase: Any, alive: Any, limit: Any,
    real: Any, whole: Any,
) -> int:  # fmt: skip
    """Why the walk paused; `size` holds two numbers a block, its shape."""
    z = carray(size, 56)
    blocks = Blocks(
        carray(shape, (z[0], z[1])), carray(matrix, (z[2], z[3])), carray(bias, (z[4], z[5])),
        carray(unit, z[6]), carray(start, z[8]), carray(neuron, (z[10], z[11])), carray(mark, (z[12], z[13])),
        carray(owner, z[14]), carray(count, z[16]), carray(form, z[18]), carray(inputs, (z[20], z[21])),
        carray(wide, (z[22], z[23])), carray(pick, z[24]), carray(share, (z[26], z[27])),
        carray(row, (z[28], z[29])), carray(table, (z[30], z[31])), carray(slope, (z[32], z[33])),
        carray(tall, (z[34], z[35])), carray(basic, z[36]), carray(long, (z[38], z[39])),
        carray(order, (z[40], z[41])), carray(lower, (z[42], z[43])), carray(upper, (z[44], z[45])),
        carray(phase, (z[46], z[47])), carray(alive, (z[48], z[49])), carray(limit, (z[50], z[51])),
        carray(real, z[52]), carray(whole, z[54]),
    )  # fmt: skip
    net, space, lp, stack = _named(blocks)
    return walk(net, space, lp, stack, blocks.real, blocks.whole)


# carray wants numba's own care for memory, which the kernels go without.
compiled: Any = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)(run)

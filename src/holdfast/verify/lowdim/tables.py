"""The arrays the kernels work on, and how they are laid out in memory.

The kernels get plain blocks of memory and see them as the named rows below; so does Python, by the same
function `views`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]
Whole = NDArray[np.int64]
Signs = NDArray[np.int8]


class Table(NamedTuple):
    """Layers 1..n, flat; the last one gives row values, and a case is met when all its rows are <= 0."""

    sizes: Whole  # (n + 1,) neurons of each layer, the inputs first
    first: Whole  # (n + 1,) where each layer's neurons begin among all neurons
    at: Whole  # (n + 1,) where each layer's weights begin
    weight: Reals  # weights, row by row
    column: Reals  # the same, column by column
    size: Reals  # their magnitudes, column by column: at least |weight|, more where layers were merged
    bias: Reals  # (neurons,)
    bias_size: Reals
    slope: Reals  # (neurons,) below zero: 0 relu, 1 no activation
    unit: Reals  # (n,) rounding per magnitude, for a sum over the layer's terms
    start: Whole  # (cases + 1,) where each case's rows begin


class Space(NamedTuple):
    """What a kernel writes while it looks at one box; one for each thread."""

    centre: Reals  # (neurons,) of the forms before the activations
    error: Reals  # (neurons,) what rounding and pooled symbols add to a form
    spread: Reals  # (neurons,) sum of the form's magnitudes over all symbols
    sum: Reals  # (neurons,) the magnitude all terms of a form add up to
    low: Reals  # (neurons,)
    high: Reals  # (neurons,)
    keep: Reals  # (neurons,) the slope of the relaxed activation
    lift: Reals  # (neurons,) the height of its parallelogram
    radius: Reals  # (neurons,) of its error symbol
    seen: Reals  # (neurons,) before the activations, at the point evaluated last
    state: Whole  # (neurons,) -1 off, 1 on, 2 open, 3 open and pooled
    symbol: Whole  # (neurons,) the error symbol of an open neuron, else -1
    owner: Whole  # (symbols,) the neuron of a symbol
    count: Whole  # type: ignore[assignment] # (n + 1,) symbols known in each layer's forms
    form: Reals  # (symbols * neurons,) layer by layer, symbol by symbol
    middle: Reals  # (inputs,) of the box
    half: Reals  # (inputs,) its half widths
    trial: Reals  # (inputs,) a point to evaluate
    low_clip: Reals  # (inputs,) range of the input symbols that any case needs
    high_clip: Reals
    low_one: Reals  # (inputs,) the same of one case
    high_one: Reals
    post: Reals  # (widest,) after the activations: centre
    post_error: Reals
    post_size: Reals  # magnitude of all terms
    post_radius: Reals  # radius of the new symbol
    coef: Reals  # (widest,)
    here: Reals  # (widest,) a row on its way back, or values on their way forward
    there: Reals
    pick: Whole  # (widest,)
    share: Reals  # (symbols, inputs): whence a symbol comes


class Program(NamedTuple):
    """A linear program over the symbols: rows fixed[i] + row[i]·e <= t (goals) or <= 0 (the others)."""

    row: Reals  # (rows, symbols)
    table: Reals  # (rows, symbols + 1): the tableau; the last column stands for the first slack
    slope: Reals  # (rows, inputs): gradients of a climb
    fixed: Reals  # (rows,) already less the row's error
    norm: Reals  # (rows,) Σ|row|
    value: Reals  # (rows,) of the basic variables
    weight: Reals  # (rows,) the multipliers found
    rank: Reals  # (rows,) of a cut; or a row's value in a climb
    basic: Whole  # (rows,) which variable is basic: -1 for t, symbols 0.., slacks from `symbols`
    place: Reals  # (symbols + 1,) where a nonbasic variable stands
    cost: Reals  # (symbols + 1,)
    ratio: Reals  # (symbols + 1,)
    joined: Reals  # (symbols,) the rows weighted by the multipliers
    point: Reals  # (symbols,) a vertex
    kept: Reals  # (symbols,) the weighted row that says where to split
    kept_point: Reals  # (symbols,)
    column: Whole  # (symbols + 1,) which variable is not basic
    order: Whole  # (symbols + 1,)


class Stack(NamedTuple):
    """Boxes still open, the next one on top."""

    lower: Reals  # (depth, inputs)
    upper: Reals
    phase: Signs  # (depth, neurons) 1 on, -1 off, 0 free
    alive: Signs  # (depth, cases) which may still be met there
    lower32: Reals  # (inputs,) the range of witnesses: float32 values inside the box
    upper32: Reals
    floor: Reals  # (inputs,) half widths that are not halved any more
    point: Reals  # (inputs,) the best point met


class Blocks(NamedTuple):
    """The memory itself: the net's first, shared by all threads, then what a thread owns."""

    shape: Whole  # (3, n + 1)
    matrix: Reals  # (3, weights)
    bias: Reals  # (3, neurons)
    unit: Reals  # (n,)
    start: Whole  # (cases + 1,)
    neuron: Reals  # (10, neurons)
    mark: Whole  # (2, neurons)
    owner: Whole  # (symbols,)
    count: Whole  # type: ignore[assignment] # (n + 1,)
    form: Reals  # (symbols * neurons,)
    input: Reals  # (7, inputs)
    wide: Reals  # (7, widest)
    pick: Whole  # (widest,)
    share: Reals  # (symbols, inputs)
    row: Reals  # (rows, symbols)
    table: Reals  # (rows, symbols + 1)
    slope: Reals  # (rows, inputs)
    tall: Reals  # (5, rows)
    basic: Whole  # (rows,)
    long: Reals  # (7, symbols + 1)
    order: Whole  # (2, symbols + 1)
    lower: Reals  # (depth, inputs)
    upper: Reals  # (depth, inputs)
    phase: Signs  # (depth, neurons)
    alive: Signs  # (depth, cases)
    limit: Reals  # (4, inputs)
    real: Reals  # (8,) see MARGIN ..
    whole: Whole  # (8,) see TOP ..


# What each block holds, by numpy's letters: q whole numbers, d reals, b signs.
KINDS = "qdddqdqqqdddqdddddqdqddbbddq"

# Places in `real`: the smallest bound proven, the worst bound met, the lowest value met and the one wanted,
# and the bound with which a box is settled at once.
MARGIN, WORST, BEST_VALUE, WANTED, TARGET = 0, 1, 2, 3, 4
# Places in `whole`: the top of the stack, boxes to look at, boxes looked at, programs solved, the state of
# the random numbers, climbs to make first, and the symbols of all boxes looked at.
TOP, MOST, SEEN, SOLVED, RANDOM, CLIMBS, SYMBOLS = 0, 1, 2, 3, 4, 5, 6
# Why a walk paused: nothing is open; as many boxes as asked for; no room; a point looks unsafe; a box was
# dropped undecided.
DONE, MORE, FULL, FOUND, LEAF = 0, 1, 2, 3, 4


def views(b: Blocks) -> tuple[Table, Space, Program, Stack]:
    """The named rows of the blocks."""
    s, m, n = b.shape, b.matrix, b.bias
    net = Table(s[0], s[1], s[2], m[0], m[1], m[2], n[0], n[1], n[2], b.unit, b.start)
    q, k, i, w = b.neuron, b.mark, b.input, b.wide
    # fmt: off
    space = Space(
        q[0], q[1], q[2], q[3], q[4], q[5], q[6], q[7], q[8], q[9], k[0], k[1], b.owner, b.count, b.form,
        i[0], i[1], i[2], i[3], i[4], i[5], i[6], w[0], w[1], w[2], w[3], w[4], w[5], w[6], b.pick, b.share,
    )
    t, g, o = b.tall, b.long, b.order
    lp = Program(
        b.row, b.table, b.slope, t[0], t[1], t[2], t[3], t[4], b.basic,
        g[0], g[1], g[2], g[3], g[4], g[5], g[6], o[0], o[1],
    )
    # fmt: on
    c = b.limit
    return net, space, lp, Stack(b.lower, b.upper, b.phase, b.alive, c[0], c[1], c[2], c[3])


@dataclass(frozen=True)
class Sizes:
    """What decides how large the blocks are."""

    layers: int
    weights: int
    neurons: int
    cases: int
    inputs: int
    widest: int
    symbols: int
    rows: int
    depth: int


def shapes(z: Sizes) -> tuple[tuple[int, ...], ...]:
    """The shape of each block."""
    n, s = z.layers, z.symbols
    return (
        *((3, n + 1), (3, z.weights), (3, z.neurons), (n,), (z.cases + 1,)),
        *((10, z.neurons), (2, z.neurons), (s,), (n + 1,), (s * z.neurons,)),
        *((7, z.inputs), (7, z.widest), (z.widest,), (s, z.inputs)),
        *((z.rows, s), (z.rows, s + 1), (z.rows, z.inputs), (5, z.rows), (z.rows,), (7, s + 1), (2, s + 1)),
        *((z.depth, z.inputs), (z.depth, z.inputs), (z.depth, z.neurons), (z.depth, z.cases)),
        *((4, z.inputs), (8,), (8,)),
    )

"""Arrays of the kernels: the net, the workspace of a thread, the linear program and the open boxes.

The annotation of a field has its type and shape, in terms of the sizes that `allocate` is given.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Annotated, Any, NamedTuple, TypeAlias, TypeVar, get_type_hints

import numpy as np
from numpy.typing import NDArray

Reals: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
Signs: TypeAlias = NDArray[np.int8]
Neurons = Annotated[Reals, "d", "neurons"]
Inputs = Annotated[Reals, "d", "inputs"]
Widest = Annotated[Reals, "d", "widest"]  # as long as the widest layer
Rows = Annotated[Reals, "d", "rows"]
Columns = Annotated[Reals, "d", "columns"]  # one for each symbol and one more
Group = TypeVar("Group", bound="Workspace | LinearProgram | BoxStack")


class LayerTable(NamedTuple):
    """Layers 1..n, flat; the last one gives row values, and a case is met when all its rows are <= 0."""

    sizes: Integers  # (n + 1,) neurons of each layer, the inputs first
    first: Integers  # (n + 1,) where each layer's neurons begin among all neurons
    at: Integers  # (n + 1,) where each layer's weights begin
    weight: Reals  # weights, row by row
    column: Reals  # the same, column by column
    size: Reals  # their magnitudes, column by column: at least |weight|, more where layers were merged
    bias: Reals  # (neurons,)
    bias_size: Reals
    slope: Reals  # (neurons,) below zero: 0 relu, 1 no activation
    unit: Reals  # (n,) rounding per magnitude, for a sum over the layer's terms
    start: Integers  # (cases + 1,) where each case's rows begin


class Workspace(NamedTuple):
    """Workspace of a kernel for one box; one per thread."""

    centre: Neurons  # of the forms before the activations
    error: Neurons  # what rounding and pooled symbols add to a form
    spread: Neurons  # sum of the form's magnitudes over all symbols
    sum: Neurons  # the magnitude all terms of a form add up to
    low: Neurons
    high: Neurons
    keep: Neurons  # the slope of the relaxed activation
    lift: Neurons  # the height of its parallelogram
    radius: Neurons  # of its error symbol
    preactivation: Neurons  # before the activations, at the point evaluated last
    state: Annotated[Integers, "q", "neurons"]  # -1 off, 1 on, 2 open, 3 open and pooled
    symbol: Annotated[Integers, "q", "neurons"]  # the error symbol of an open neuron, else -1
    owner: Annotated[Integers, "q", "symbols"]  # the neuron of a symbol
    count: Annotated[Integers, "q", "levels"]  # type: ignore[assignment] # symbols in each layer's forms
    form: Annotated[Reals, "d", "forms"]  # layer by layer, symbol by symbol
    middle: Inputs  # of the box
    half: Inputs  # its half widths
    trial: Inputs  # a point to evaluate
    low_clip: Inputs  # range of the input symbols that any case needs
    high_clip: Inputs
    low_one: Inputs  # the same of one case
    high_one: Inputs
    post: Widest  # after the activations: centre
    post_error: Widest
    post_size: Widest  # magnitude of all terms
    post_radius: Widest  # radius of the new symbol
    coef: Widest
    here: Widest  # a row in the backward pass, or values in the forward pass
    there: Widest
    pick: Annotated[Integers, "q", "widest"]
    share: Annotated[Reals, "d", "symbols", "inputs"]  # the inputs that a symbol stems from


class LinearProgram(NamedTuple):
    """A linear program over the symbols: rows fixed[i] + row[i]·e <= t (goals) or <= 0 (the others)."""

    row: Annotated[Reals, "d", "rows", "symbols"]
    table: Annotated[Reals, "d", "rows", "columns"]  # the tableau; the last column is the first slack's
    slope: Annotated[Reals, "d", "rows", "inputs"]  # gradients of a climb
    fixed: Rows  # already less the row's error
    norm: Rows  # Σ|row|
    value: Rows  # of the basic variables
    weight: Rows  # the multipliers found
    rank: Rows  # of a cut; or a row's value in a climb
    basic: Annotated[Integers, "q", "rows"]  # the basic variable: -1 for t, then symbols, then slacks
    place: Columns  # where a nonbasic variable stands
    cost: Columns
    ratio: Columns
    joined: Columns  # the rows weighted by the multipliers
    point: Columns  # a vertex
    split_row: Columns  # the weighted row that says where to split
    split_point: Columns
    column: Annotated[Integers, "q", "columns"]  # which variable is not basic
    order: Annotated[Integers, "q", "columns"]


class BoxStack(NamedTuple):
    """Boxes still open, the next one on top."""

    lower: Annotated[Reals, "d", "depth", "inputs"]
    upper: Annotated[Reals, "d", "depth", "inputs"]
    phase: Annotated[Signs, "b", "depth", "neurons"]  # 1 on, -1 off, 0 free
    alive: Annotated[Signs, "b", "depth", "cases"]  # cases that may still be met there
    lower32: Inputs  # the range of witnesses: float32 values inside the box
    upper32: Inputs
    floor: Inputs  # half widths below which inputs are not halved
    point: Inputs  # the best point of the last walk, or that of the leaf it ended at


def allocate(kind: Callable[..., Group], sizes: Mapping[str, int]) -> Group:
    """Zeros for every field, of the type and shape in its annotation."""
    fields = (hint.__metadata__ for hint in _hints(kind).values())
    return kind(*(np.zeros([sizes[name] for name in shape], letter) for letter, *shape in fields))


_hints = cache(partial(get_type_hints, include_extras=True))  # they take milliseconds


State: TypeAlias = Any  # one record of STATE, which the kernels write to
STATE = np.dtype(
    [
        ("margin", "d"),  # the smallest bound proven
        ("worst", "d"),  # the worst bound found
        ("best", "d"),  # the lowest value found
        ("goal", "d"),  # a value that ends the walk
        ("target", "d"),  # the bound at which a box counts as decided
        ("top", "q"),  # of the stack, -1 if it is empty
        ("most", "q"),  # boxes to process
        ("visited", "q"),  # boxes processed
        ("random", "q"),  # the state of the random numbers
        ("climbs", "q"),  # local searches to run first
        ("symbols", "q"),  # of all boxes processed
    ]
)
# Why a walk paused: no open boxes; the requested number of boxes is reached; the stack is full; a point
# looks unsafe; a box was dropped undecided.
DONE, MORE, FULL, FOUND, LEAF = 0, 1, 2, 3, 4

"""What heads share: options and outputs, activations, grids, anchors, deltas and the choice of candidates."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import CardError
from holdfast.core.model import Card
from holdfast.core.registry import part
from holdfast.core.types import Floats, Ints, Size, Tensor
from holdfast.graph.card import fit_fields

T = TypeVar("T")


def options_of(shape: type[T], card: Card) -> T:
    """The card's head options as the dataclass `shape`, or a CardError that names every wrong one."""
    problems: list[str] = []
    values = fit_fields(shape, card.head.options, "head.", problems)
    if problems:
        raise wrong(card, "; ".join(problems))
    return shape(**values)


def wrong(card: Card, what: str) -> CardError:
    """The error of a card that does not fit its model, naming the head."""
    return CardError(f"head {card.head.name!r}: {what}")


def shapes(raw: Mapping[str, Tensor]) -> str:
    """The outputs with their shapes, for messages."""
    return ", ".join(f"{name!r} {value.shape}" for name, value in raw.items())


def named(raw: Mapping[str, Any], names: Sequence[str], card: Card) -> dict[str, Tensor]:
    """The outputs of those names in that order, or all when none are named; one image's worth each."""
    for name in names:
        if name not in raw:
            raise wrong(card, f"no output is named {name!r}; the model has {shapes(raw)}")
    return {name: raw[name] for name in (names or raw)}


def single(raw: Mapping[str, Tensor], names: Sequence[str], card: Card) -> tuple[str, Tensor]:
    """The one output that is named, or the only one there is."""
    chosen = named(raw, names, card)
    if len(chosen) != 1:
        problem = f"expected one output, got {len(chosen)}: {shapes(chosen)}"
        raise wrong(card, f'{problem}; name it in the card: outputs = ["..."]')
    return next(iter(chosen.items()))


def one_image(name: str, value: Tensor, card: Card) -> Tensor:
    """The tensor without its first axis, which must count one image."""
    if value.ndim < 2 or value.shape[0] != 1:
        raise wrong(card, f"output {name!r}: expected a batch of one image, got shape {value.shape}")
    return np.asarray(value[0])


def table_rows(
    raw: Mapping[str, Tensor],
    names: Sequence[str],
    card: Card,
    around: tuple[int, int],
    what: str,
    hint: str = "",
) -> tuple[str, Tensor]:
    """The name of the one output (1, n, columns) and its rows.

    `around` counts the columns before and behind those of the classes; `what` and `hint` are for messages.
    """
    name, value = single(raw, names, card)
    rows, k, (first, trailing) = one_image(name, value, card), len(card.classes), around
    if rows.ndim != 2 or rows.shape[1] != first + k + trailing:
        more = f" + {trailing} trailing columns" if trailing else ""
        expected = f"expected (1, {what}, {first} + {k} classes{more}); correct `classes` in the card{hint}"
        raise wrong(card, f"output {name!r} {value.shape}: {expected}")
    return name, rows


def pixels(card: Card, normalised: bool) -> Floats:
    """Input pixels (x, y) per unit of a box: the input size if boxes are relative to it, else 1."""
    return np.array(card.input.size if normalised else (1.0, 1.0), np.float64)


LARGEST_LOG = 40.0  # exp of more than this is no box size; keeps an adversarial output finite


def sigmoid(x: Tensor) -> Floats:
    """1 / (1 + exp(-x)) in double precision, without overflow."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * np.asarray(x, np.float64))), np.float64)


def logit(p: float) -> float:
    """The x whose sigmoid is p, slightly reduced so that no candidate at the threshold is dropped."""
    if 0.0 < p < 1.0:
        return math.log(p / (1.0 - p)) - 1e-5
    return -math.inf if p <= 0.0 else 15.0  # float32 outputs from 15 on have a sigmoid that rounds to 1


def softmax(x: Tensor) -> Floats:
    """exp(x) over its sum along the last axis, in double precision."""
    x = np.asarray(x, np.float64)
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True), np.float64)


def bounded_exp(x: Tensor) -> Floats:
    """exp(x) in double precision, finite for every finite x."""
    return np.asarray(np.exp(np.minimum(np.asarray(x, np.float64), LARGEST_LOG)), np.float64)


@lru_cache(maxsize=256)
def levels(
    size: Size, strides: tuple[int, ...], cells: int, slack: int = 1
) -> tuple[tuple[int, int], ...] | None:
    """Rows and columns of each stride's map so that all maps have `cells` cells together; None if none fit.

    A network whose pools round the other way has maps up to `slack` larger or smaller, each computed from
    the one before; no cell moves. Also None if more than one such sequence of maps fits.
    """
    expected = [[math.ceil(side / s) for s in strides] for side in (size.height, size.width)]
    if sum(r * c for r, c in zip(*expected, strict=True)) == cells:
        return tuple(zip(*expected, strict=True))
    rows, columns = (_chains(side, strides, slack) for side in expected)
    square = size.height == size.width  # then so are its maps
    fitting = []
    for r, c in zip(rows, rows, strict=True) if square else itertools.product(rows, columns):
        if sum(a * b for a, b in zip(r, c, strict=True)) == cells:
            differences = [a - b for a, b in zip((*r, *c), (*expected[0], *expected[1]), strict=True)]
            if min(differences) >= 0 or max(differences) <= 0:  # all pools round the same way
                fitting.append(tuple(zip(r, c, strict=True)))
    return fitting[0] if len(fitting) == 1 else None


def _chains(expected: Sequence[int], strides: Sequence[int], slack: int) -> list[tuple[int, ...]]:
    """The sizes along one side that the maps may have together, finest first, in the order of the strides."""
    order = sorted(range(len(strides)), key=lambda i: strides[i])
    chains: list[tuple[int, ...]] = [()]
    for at, i in enumerate(order):
        allowed = [expected[i] + d for d in range(-slack, slack + 1) if expected[i] + d > 0]
        longer = [(*chain, n) for chain in chains for n in allowed]
        factor, rest = divmod(strides[i], strides[order[at - 1]]) if at else (0, 1)
        chains = longer if rest else [c for c in longer if c[-2] // factor <= c[-1] <= c[-2] // factor + 1]
    return [tuple(chain[order.index(i)] for i in range(len(strides))) for chain in chains]


def grid(shapes: Sequence[tuple[int, int]], strides: Sequence[int]) -> tuple[Floats, Floats]:
    """Column and row (n, 2) of every cell, stride by stride and row by row, and the stride (n,) of each."""
    cells = [np.divmod(np.arange(rows * columns), columns)[::-1] for rows, columns in shapes]
    places = np.concatenate(cells, axis=1).T.astype(np.float64)
    return places, np.repeat(np.array(strides, np.float64), [rows * columns for rows, columns in shapes])


def nominal_stride(pixels: int, cells: int) -> int | None:
    """The power of two by which a map is smaller, exactly or else up to a cell; None if not just one is."""
    powers = [2**i for i in range(pixels.bit_length())]
    exact = [s for s in powers if cells in (pixels // s, -(-pixels // s))]
    near = exact or [s for s in powers if abs(pixels / s - cells) <= 1]
    return near[0] if len(near) == 1 else None


def above(scores: NDArray[np.floating], least: float, multi_label: bool) -> tuple[Ints, Ints, Floats]:
    """Row, class and score of candidates in (n, k): all that reach `least`, or only the best of a row."""
    if multi_label:
        rows, classes = np.nonzero(scores >= least)
    else:
        best = scores.argmax(axis=1)
        rows = np.flatnonzero(scores[np.arange(len(scores)), best] >= least)
        classes = best[rows]
    return rows, classes, scores[rows, classes].astype(np.float64)


def from_centres(centres: Floats, sides: Floats) -> Floats:
    """Boxes (n, 4) xyxy from centres (n, 2) and sides (n, 2)."""
    return np.concatenate([centres - 0.5 * sides, centres + 0.5 * sides], axis=1)


Form: TypeAlias = Literal["xyxy", "yxyx", "cxcywh", "xywh"]


def as_xyxy(corners: Floats, form: str) -> Floats:
    """Boxes (n, 4) xyxy from boxes in another order or form."""
    if form == "yxyx":
        return corners[:, [1, 0, 3, 2]]
    if form == "cxcywh":
        return from_centres(corners[:, :2], corners[:, 2:])
    if form == "xywh":
        return np.concatenate([corners[:, :2], corners[:, :2] + corners[:, 2:]], axis=1)
    return corners


def upright_sides(sides: Floats, angles: Floats) -> Floats:
    """Sides (n, 2) of the smallest upright boxes around boxes rotated by angles (n,) in radians."""
    cos, sin = np.abs(np.cos(angles)), np.abs(np.sin(angles))
    return sides * cos[:, None] + sides[:, ::-1] * sin[:, None]


def known_labels(labels: Ints, card: Card) -> Ints:
    """The same labels (n,), or a CardError if the card has no class of that number."""
    if len(labels) and labels.max() >= (k := len(card.classes)):
        problem = f"a label is {int(labels.max())}, but the card names {k} classes (0 to {k - 1})"
        hint = 'COCO\'s own ids, up to 90, are classes = "coco91"'
        raise wrong(card, f"{problem}; correct `classes` or `label_offset` in the card ({hint})")
    return labels


LARGEST = math.log(1000.0 / 16.0)  # the equations' limit of dw and dh


def base_anchors(
    size: float,
    ratios: Sequence[float],
    scales: Sequence[float],
    major: Literal["ratios", "scales"],
    whole: bool,
) -> Floats:
    """Anchors (A, 4) xyxy around the origin; a ratio is height over width; `whole` rounds their corners."""
    root = np.sqrt(np.asarray(ratios, np.float64))[:, None]
    reach = size * np.asarray(scales, np.float64)
    order: Literal["C", "F"] = "C" if major == "ratios" else "F"
    sides = np.stack([(reach / root).ravel(order), (reach * root).ravel(order)], axis=1)
    half = 0.5 * np.concatenate([-sides, sides], axis=1)
    return np.round(half) if whole else half


def spread(base: Floats, rows: int, columns: int, stride: float, centre: float) -> Floats:
    """Anchors (rows·columns·A, 4) at every cell, row by row; cell x has its centre at (x + centre)·stride."""
    y, x = np.divmod(np.arange(rows * columns), columns)
    shift = (np.stack([x, y, x, y], axis=1) + centre) * stride
    return (shift[:, None, :] + base[None, :, :]).reshape(-1, 4)


def apply_deltas(
    anchors: Floats,
    deltas: Floats,
    means: Sequence[float],
    stds: Sequence[float],
    offset: float,
    exp: Callable[[Tensor], Floats] = bounded_exp,
) -> Floats:
    """Boxes (n, 4) from anchors and deltas; `offset` is ALIGNED_FLAG.offset, `exp` gets clamped deltas."""
    deltas = deltas * np.asarray(stds, np.float64) + np.asarray(means, np.float64)
    sides = anchors[:, 2:] - anchors[:, :2]
    centres = deltas[:, :2] * sides + (anchors[:, :2] + 0.5 * sides)
    boxes = from_centres(centres, exp(np.minimum(deltas[:, 2:], LARGEST)) * sides)
    boxes[:, 2:] -= offset
    return boxes


Exp: TypeAlias = Callable[[Tensor], Floats]
Kind: TypeAlias = Literal["", "plain", "clamped"]

LARGEST_HALF = 65504.0  # the largest finite number of binary16


def half_exp(x: Tensor) -> Floats:
    """exp(x) as binary16 arithmetic gives it: x rounded to binary16, the result rounded to it again.

    Overflow gives the largest half instead of infinity; boxes are clipped to the image, so it is equivalent.
    """
    with np.errstate(over="ignore"):
        rounded = np.asarray(x, np.float64).astype(np.float16).astype(np.float64)
        result = np.exp(np.minimum(rounded, 12.0)).astype(np.float16).astype(np.float64)
    return np.minimum(result, LARGEST_HALF)


def clamped_exp(x: Tensor) -> Floats:
    """exp(min(x, log(1000/16))): a side is at most 62.5 times its anchor or stride."""
    return bounded_exp(np.minimum(x, LARGEST))


def clamped_half_exp(x: Tensor) -> Floats:
    """exp(min(x, log(1000/16))) as binary16 arithmetic gives it."""
    return half_exp(np.minimum(x, LARGEST))


def exp_of(card: Card) -> Kind:
    """How the card's head takes exp of sides; empty if it takes none, or the graph has done it already.

    A head that takes exp has the fact `exp`, a function of its options, and takes the exponential to use as
    an argument of that name. "clamped" is by the limit of SysNoise, appendix A.
    """
    facts = part("head", card.head.name).facts
    kind: Callable[[object], Kind] | None = facts.get("exp")
    return kind(options_of(facts["options"], card)) if kind else ""

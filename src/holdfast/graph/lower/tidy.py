"""The same network in fewer steps: linear steps merged where that is cheap, dead steps dropped."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from holdfast.graph import ir
from holdfast.graph.ir import Conv, Dense, FreeInputs, ScaleShift, Selection, Step, WeightedSum, sources_of

GROWTH = 2  # a Dense may take over a Take if it becomes at most so much wider


def tidied(steps: Sequence[Step], output: int, as_evaluated: bool = False) -> tuple[Step, ...]:
    """The steps that matter, merged and numbered anew; the last one is the output.

    With `as_evaluated` only steps that a runtime rounds together are merged: (x + c) - c stays two sums.
    """
    current, last = _alive(list(steps), output)
    while True:
        uses = Counter(s for step in current for s in sources_of(step))
        uses[last] += 1
        merged: list[Step] = []
        changed = False
        for step in current:
            better = _merged(step, merged, uses, as_evaluated)
            changed |= better is not step
            merged.append(better)
        readers = [step for step in merged if 0 in sources_of(step)]
        if len(readers) == 1 and _in_order(readers[0]) and prod(readers[0].shape) == prod(merged[0].shape):
            merged[0] = FreeInputs(readers[0].shape)  # the inputs in the shape that their only reader needs
        current, last = _alive(merged, last)
        if not changed:
            return tuple(current)


def _in_order(step: Step) -> bool:
    """Whether a step is the first elements of one source, in their order."""
    if not isinstance(step, Selection) or step.fill is not None or len(step.sources) > 1:
        return False
    return bool((step.index.ravel() == np.arange(step.index.size)).all())


def _alive(steps: list[Step], output: int) -> tuple[list[Step], int]:
    """The steps on which the output depends, plain copies skipped, renumbered in order."""
    alias = list(range(len(steps)))
    for at, step in enumerate(steps):
        if not isinstance(step, FreeInputs) and _copies(step, steps):
            alias[at] = alias[sources_of(step)[0]]
    live = {alias[output], 0}
    for at in range(alias[output], 0, -1):
        if at in live:
            live.update(alias[s] for s in sources_of(steps[at]))
    number = {old: new for new, old in enumerate(sorted(live))}
    renumbered = [_renumbered(steps[old], lambda s: number[alias[s]]) for old in sorted(live)]
    return renumbered, number[alias[output]]


def _copies(step: Step, steps: list[Step]) -> bool:
    """Whether a step gives nothing but its source, in the same shape."""
    if isinstance(step, ScaleShift):
        return bool((step.factor == 1).all() and (step.offset == 0).all())
    if isinstance(step, WeightedSum):
        return len(step.sources) == 1 and step.weights[0] == 1.0
    return _in_order(step) and steps[sources_of(step)[0]].shape == step.shape


def _renumbered(step: Step, number: Callable[[int], int]) -> Step:
    if isinstance(step, FreeInputs):
        return step
    if isinstance(step, Selection | WeightedSum):
        return replace(step, sources=tuple(number(s) for s in step.sources))
    if isinstance(step, ir.Product):
        return replace(step, left=number(step.left), right=number(step.right))
    return replace(step, source=number(step.source))


def _merged(step: Step, before: list[Step], uses: Counter[int], as_evaluated: bool) -> Step:
    if as_evaluated and _rounds_differently(step, before):
        return step
    if isinstance(step, ScaleShift):
        return _merged_scale(step, before[step.source], uses[step.source] == 1)
    if isinstance(step, Dense):
        return _merged_dense(step, before, uses[step.source] == 1)
    if isinstance(step, Conv):
        return _merged_conv(step, before[step.source])
    if isinstance(step, Selection) and len(step.sources) == 1:
        return _merged_take(step, before[step.sources[0]], uses[step.sources[0]] == 1)
    if isinstance(step, WeightedSum):
        return _merged_total(step, before)
    return step


def _rounds_differently(step: Step, before: list[Step]) -> bool:
    """Whether merging a step with its source could change the roundings."""
    if isinstance(step, WeightedSum):
        return True
    if not isinstance(step, ScaleShift | Dense | Conv):
        return False
    source = before[step.source]
    if isinstance(step, ScaleShift):  # a sum after a product without one is that product's bias
        bias = isinstance(source, Dense | Conv) and not source.bias.any()
        return not (bias and (step.factor == 1).all())
    return not isinstance(source, Selection) or source.fill is not None or not distinct(source)


def distinct(step: Selection) -> bool:
    """Whether a Take reads no element twice."""
    live = step.index[step.index >= 0]
    return len(np.unique(live)) == live.size


def _merged_scale(step: ScaleShift, source: Step, only: bool) -> Step:
    if isinstance(source, ScaleShift):
        factor, offset = step.factor * source.factor, step.factor * source.offset + step.offset
        return replace(step, source=source.source, factor=factor, offset=offset)
    if isinstance(source, Dense) and only:
        factor, offset = step.factor.ravel(), step.offset.ravel()
        return replace(source, weight=source.weight * factor[:, None], bias=source.bias * factor + offset)
    if isinstance(source, Conv) and only:
        factor, offset = step.factor.reshape(source.shape), step.offset.reshape(source.shape)
        if _flat(factor) and _flat(offset):
            bias = source.bias * factor[:, 0, 0] + offset[:, 0, 0]
            return replace(source, weight=source.weight * factor[:, :1, :1, None], bias=bias)
    return step


def _flat(values: np.ndarray) -> bool:
    """Whether every channel (c, h, w) holds one value."""
    return bool((values == values[:, :1, :1]).all())


def _merged_dense(step: Dense, before: list[Step], only: bool) -> Step:
    source = before[step.source]
    if isinstance(source, ScaleShift):
        weight, bias = step.weight * source.factor.ravel(), step.bias + step.weight @ source.offset.ravel()
        return replace(step, source=source.source, weight=weight, bias=bias)
    if isinstance(source, Selection) and len(source.sources) == 1:
        # on what the Take read: columns moved about, constants in the bias
        index, size = source.index.ravel(), prod(before[source.sources[0]].shape)
        if size > GROWTH * len(index):
            return step
        live = index >= 0
        weight, bias = np.zeros((size, len(step.bias))), step.bias
        np.add.at(weight, index[live], step.weight.T[live])
        if source.fill is not None:
            bias = bias + step.weight[:, ~live] @ source.fill.ravel()[~live]
        return replace(step, source=source.sources[0], weight=weight.T.copy(), bias=bias)
    if isinstance(source, Dense) and only:
        (m, k), n = step.weight.shape, source.weight.shape[1]
        if m * n <= m * k + k * n:
            weight, bias = step.weight @ source.weight, step.weight @ source.bias + step.bias
            return replace(step, source=source.source, weight=weight, bias=bias)
    return step


def _merged_conv(step: Conv, source: Step) -> Step:
    """A factor per input channel goes into the kernel; an offset only where no padding meets it."""
    if not isinstance(source, ScaleShift) or len(source.shape) != 3:
        return step
    if not _flat(source.factor) or not _flat(source.offset) or (source.offset.any() and any(step.pads)):
        return step
    inner = step.weight.shape[1]
    factor, offset = (v[:, 0, 0].reshape(step.groups, 1, inner) for v in (source.factor, source.offset))
    kernel = step.weight.reshape(step.groups, -1, inner, *step.weight.shape[2:])
    bias = step.bias + (kernel.sum(axis=(3, 4)) * offset).sum(axis=2).ravel()
    weight = (kernel * factor[..., None, None]).reshape(step.weight.shape)
    return replace(step, source=source.source, weight=weight, bias=bias)


def _merged_take(step: Selection, source: Step, only: bool) -> Step:
    """Restrict a Dense with no other reader to the rows that the selection uses."""
    index = step.index.ravel()
    if not isinstance(source, Dense) or not only or len(step.shape) != 1 or len(index) > len(source.bias):
        return step
    weight, bias = source.weight[index], source.bias[index]
    if step.fill is not None:
        weight[index < 0] = 0.0
        bias = np.where(index < 0, step.fill.ravel(), bias)
    return Dense(source.source, weight, bias, step.shape)


def _merged_total(step: WeightedSum, before: list[Step]) -> Step:
    """Scales by one number, without an offset, become weights."""
    sources, weights = list(step.sources), list(step.weights)
    for i, at in enumerate(sources):
        source = before[at]
        if not isinstance(source, ScaleShift) or before[source.source].shape != step.shape:
            continue
        factor = float(source.factor.flat[0])
        if not source.offset.any() and (source.factor == factor).all():
            sources[i], weights[i] = source.source, weights[i] * factor
    if tuple(sources) == step.sources:
        return step
    return replace(step, sources=tuple(sources), weights=tuple(weights))

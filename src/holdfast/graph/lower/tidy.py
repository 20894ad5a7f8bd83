"""The same network in fewer steps: linear steps merged where that is cheap, dead steps dropped."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from holdfast.graph.ir import Conv, Dense, Product, Scale, Start, Step, Take, Total, sources_of

GROWTH = 2  # a Dense may take over a Take if it becomes at most so much wider


def tidied(steps: Sequence[Step], output: int) -> tuple[Step, ...]:
    """The steps that matter, merged and numbered anew; the last one is the output."""
    current, last = _alive(list(steps), output)
    while True:
        uses = Counter(s for step in current for s in sources_of(step))
        uses[last] += 1
        merged: list[Step] = []
        changed = False
        for step in current:
            better = _merged(step, merged, uses)
            changed |= better is not step
            merged.append(better)
        current, last = _alive(merged, last)
        if not changed:
            return tuple(current)


def _alive(steps: list[Step], output: int) -> tuple[list[Step], int]:
    """The steps on which the output depends, plain copies skipped, renumbered in order."""
    alias = list(range(len(steps)))
    for at, step in enumerate(steps):
        if not isinstance(step, Start) and _copies(step, steps):
            alias[at] = alias[sources_of(step)[0]]
    wanted = {alias[output], 0}
    for at in range(alias[output], 0, -1):
        if at in wanted:
            wanted.update(alias[s] for s in sources_of(steps[at]))
    number = {old: new for new, old in enumerate(sorted(wanted))}
    kept = [_renumbered(steps[old], lambda s: number[alias[s]]) for old in sorted(wanted)]
    return kept, number[alias[output]]


def _copies(step: Step, steps: list[Step]) -> bool:
    """Whether a step gives nothing but its source, in the same shape."""
    if isinstance(step, Scale):
        return bool((step.factor == 1).all() and (step.offset == 0).all())
    if isinstance(step, Total):
        return len(step.sources) == 1 and step.weights[0] == 1.0
    return False


def _renumbered(step: Step, number: Callable[[int], int]) -> Step:
    if isinstance(step, Start):
        return step
    if isinstance(step, Take | Total):
        return dataclasses.replace(step, sources=tuple(number(s) for s in step.sources))
    if isinstance(step, Product):
        return dataclasses.replace(step, left=number(step.left), right=number(step.right))
    return dataclasses.replace(step, source=number(step.source))


def _merged(step: Step, before: list[Step], uses: Counter[int]) -> Step:
    """The step, or one that does the work of its source too."""
    if isinstance(step, Scale):
        return _merged_scale(step, before[step.source], uses[step.source] == 1)
    if isinstance(step, Dense):
        return _merged_dense(step, before[step.source], uses[step.source] == 1)
    if isinstance(step, Conv):
        return _merged_conv(step, before[step.source])
    if isinstance(step, Take) and len(step.sources) == 1:
        return _merged_take(step, before[step.sources[0]], uses[step.sources[0]] == 1)
    if isinstance(step, Total):
        return _merged_total(step, before)
    return step


def _merged_scale(step: Scale, source: Step, only: bool) -> Step:
    if isinstance(source, Scale):
        factor, offset = step.factor * source.factor, step.factor * source.offset + step.offset
        return dataclasses.replace(step, source=source.source, factor=factor, offset=offset)
    if isinstance(source, Dense) and only:
        factor, offset = step.factor.ravel(), step.offset.ravel()
        return dataclasses.replace(
            source, weight=source.weight * factor[:, None], bias=source.bias * factor + offset
        )
    if isinstance(source, Conv) and only:
        factor, offset = step.factor.reshape(source.shape), step.offset.reshape(source.shape)
        if _flat(factor) and _flat(offset):
            each = factor[:, 0, 0]
            return dataclasses.replace(
                source,
                weight=source.weight * each[:, None, None, None],
                bias=source.bias * each + offset[:, 0, 0],
            )
    return step


def _flat(values: np.ndarray) -> bool:
    """Whether every channel (c, h, w) holds one value."""
    return bool((values == values[:, :1, :1]).all())


def _merged_dense(step: Dense, source: Step, only: bool) -> Step:
    if isinstance(source, Scale):
        factor, offset = source.factor.ravel(), source.offset.ravel()
        return dataclasses.replace(
            step, source=source.source, weight=step.weight * factor, bias=step.bias + step.weight @ offset
        )
    if isinstance(source, Dense) and only:
        (m, k), n = step.weight.shape, source.weight.shape[1]
        if m * n <= m * k + k * n:
            weight, bias = step.weight @ source.weight, step.weight @ source.bias + step.bias
            return dataclasses.replace(step, source=source.source, weight=weight, bias=bias)
    return step


def _merged_conv(step: Conv, source: Step) -> Step:
    """A factor per input channel goes into the kernel; an offset only where no padding meets it."""
    if not isinstance(source, Scale) or len(source.shape) != 3:
        return step
    if not _flat(source.factor) or not _flat(source.offset) or (source.offset.any() and any(step.pads)):
        return step
    inner = step.weight.shape[1]
    factor, offset = (v[:, 0, 0].reshape(step.groups, 1, inner) for v in (source.factor, source.offset))
    kernel = step.weight.reshape(step.groups, -1, inner, *step.weight.shape[2:])
    bias = step.bias + (kernel.sum(axis=(3, 4)) * offset).sum(axis=2).ravel()
    weight = (kernel * factor[..., None, None]).reshape(step.weight.shape)
    return dataclasses.replace(step, source=source.source, weight=weight, bias=bias)


def _merged_take(step: Take, source: Step, only: bool) -> Step:
    """Rows of a Dense that nobody else reads; Take steps in a row as one."""
    return step


def _merged_total(step: Total, before: list[Step]) -> Step:
    """Scales by one number, without an offset, become weights."""
    sources, weights = list(step.sources), list(step.weights)
    for i, at in enumerate(sources):
        source = before[at]
        if (
            isinstance(source, Scale)
            and not source.offset.any()
            and (source.factor == source.factor.flat[0]).all()
            and before[source.source].shape == step.shape
        ):
            sources[i], weights[i] = source.source, weights[i] * float(source.factor.flat[0])
    if tuple(sources) == step.sources:
        return step
    return dataclasses.replace(step, sources=tuple(sources), weights=tuple(weights))

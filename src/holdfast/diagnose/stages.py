"""Two pipelines on the same images, stage by stage: where they differ, and by how much."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.core.errors import ImageError, InputError
from holdfast.core.model import Model
from holdfast.core.pipeline import Pipeline, load_pipeline
from holdfast.core.types import Detections, LabelMap, Scores
from holdfast.evaluate.difference import matched_pairs

STAGES = ("decode", "colour", "resize", "normalise", "infer", "post")


@dataclass(frozen=True)
class ValueDifference:
    """How two values of one stage differ: the largest and the mean difference, and the share of values."""

    largest: float
    mean: float
    share: float

    @property
    def same(self) -> bool:
        """Whether they are equal in every value."""
        return self.share == 0.0


@dataclass(frozen=True)
class StageDifference:
    """A stage over all compared images: how many differ, and by how much at most and on average."""

    stage: str
    images: int
    differ: int
    largest: float
    mean: float
    share: float


def compare_stages(
    model: Model, train: Pipeline, deploy: Pipeline, images: Iterable[tuple[str, bytes]]
) -> tuple[StageDifference, ...]:
    """The outputs of every stage of the two pipelines, compared image by image; failed images are skipped.

    Raise InputError with the first failure if all images fail.
    """
    first, second = load_pipeline(train, model), load_pipeline(deploy, model)
    seen: dict[str, list[ValueDifference]] = {stage: [] for stage in STAGES}
    failed = ""
    for name, data in images:
        try:
            found = first.trace(data), second.trace(data)
        except ImageError as problem:
            failed = failed or f"{name}: {problem}"
            continue
        for stage in STAGES:
            seen[stage].append(compare_values(found[0][stage], found[1][stage]))
    if failed and not seen[STAGES[0]]:
        raise InputError(f"no image ran in both pipelines; first {failed}")
    return tuple(
        StageDifference(
            stage,
            len(every),
            differ=sum(not a.same for a in every),
            largest=max((a.largest for a in every), default=0.0),
            mean=float(np.mean([a.mean for a in every] or [0.0])),
            share=float(np.mean([a.share for a in every] or [0.0])),
        )
        for stage, every in seen.items()
    )


def first_difference(stages: Iterable[StageDifference]) -> StageDifference | None:
    """The first stage at which any image differs; None if all stages are identical."""
    return next((stage for stage in stages if stage.differ), None)


def compare_values(one: Any, other: Any) -> ValueDifference:
    """How two outputs of a stage differ; values of different shapes differ in all values.

    Each detection is compared with its match; one without a match counts as different in all its values.
    """
    if isinstance(one, Detections) and isinstance(other, Detections):
        return _compare_detections(one, other)
    if isinstance(one, Mapping):
        pairs = [(value, other.get(name, np.zeros(0))) for name, value in one.items()]
    else:
        pairs = [(_numbers(one), _numbers(other))]
    parts = [_compare_arrays(a, b) for a, b in pairs]
    sizes = np.array([max(np.size(a), 1) for a, _ in pairs], np.float64)
    weight = sizes / sizes.sum()
    return ValueDifference(
        max((p.largest for p in parts), default=0.0),
        float(sum(w * p.mean for w, p in zip(weight, parts, strict=True))),
        float(sum(w * p.share for w, p in zip(weight, parts, strict=True))),
    )


def _numbers(value: Any) -> Any:
    """The array by which a prediction or an image is compared."""
    if isinstance(value, Scores):
        return value.values
    return value.classes if isinstance(value, LabelMap) else value


def _compare_detections(one: Detections, other: Detections) -> ValueDifference:
    pairs = matched_pairs(one, other)
    alone = len(one) + len(other) - 2 * len(pairs)
    first, second = (
        np.column_stack([found.boxes, found.scores, found.classes])[[pair[side] for pair in pairs]]
        for side, found in enumerate((one, other))
    )
    met = _compare_arrays(first, second)
    values = len(pairs) + alone
    return ValueDifference(
        met.largest, met.mean, (met.share * len(pairs) + alone) / values if values else 0.0
    )


def _compare_arrays(one: Any, other: Any) -> ValueDifference:
    first, second = np.asarray(one, np.float64), np.asarray(other, np.float64)
    if first.shape != second.shape:
        return ValueDifference(float("inf"), float("inf"), 1.0)
    if not first.size:
        return ValueDifference(0.0, 0.0, 0.0)
    gap = np.abs(first - second)
    return ValueDifference(float(gap.max()), float(gap.mean()), float((gap > 0).mean()))

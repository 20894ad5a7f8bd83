"""Two pipelines on the same images, stage by stage: where they part, and by how much."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.core.errors import ImageError, InputError
from holdfast.core.model import Model
from holdfast.core.pipeline import Pipeline, load_pipeline
from holdfast.core.types import Detections, LabelMap, Scores
from holdfast.evaluate.difference import partners

STAGES = ("decode", "colour", "resize", "normalise", "infer", "post")


@dataclass(frozen=True)
class Apart:
    """How two values of one stage differ: the largest and the mean difference, and the share of values."""

    largest: float
    mean: float
    share: float

    @property
    def same(self) -> bool:
        """Whether they are equal in every value."""
        return self.share == 0.0


@dataclass(frozen=True)
class StageApart:
    """A stage over all images looked at: how many differ there, and by how much at most and on average."""

    stage: str
    images: int
    differ: int
    largest: float
    mean: float
    share: float


def lockstep(
    model: Model, train: Pipeline, deploy: Pipeline, images: Iterable[tuple[str, bytes]]
) -> tuple[StageApart, ...]:
    """What every stage of the two hands on, compared image by image; images that fail are left out.

    If all of them fail, the first failure is an InputError: nothing was compared, so nothing agrees.
    """
    first, second = load_pipeline(train, model), load_pipeline(deploy, model)
    seen: dict[str, list[Apart]] = {stage: [] for stage in STAGES}
    failed = ""
    for name, data in images:
        try:
            found = first.trace(data), second.trace(data)
        except ImageError as problem:
            failed = failed or f"{name}: {problem}"
            continue
        for stage in STAGES:
            seen[stage].append(apart(found[0][stage], found[1][stage]))
    if failed and not seen[STAGES[0]]:
        raise InputError(f"no image could be run in both systems; first {failed}")
    return tuple(
        StageApart(
            stage,
            len(every),
            differ=sum(not a.same for a in every),
            largest=max((a.largest for a in every), default=0.0),
            mean=float(np.mean([a.mean for a in every] or [0.0])),
            share=float(np.mean([a.share for a in every] or [0.0])),
        )
        for stage, every in seen.items()
    )


def first_apart(stages: Iterable[StageApart]) -> StageApart | None:
    """The first stage at which any image differs; None if the two are alike throughout."""
    return next((stage for stage in stages if stage.differ), None)


def apart(one: Any, other: Any) -> Apart:
    """How two values of a stage differ; values of different shapes differ in all.

    Of detections each is compared with its partner; one without counts as different in all its values.
    """
    if isinstance(one, Detections) and isinstance(other, Detections):
        return _of_detections(one, other)
    if isinstance(one, Mapping):
        pairs = [(value, other.get(name, np.zeros(0))) for name, value in one.items()]
    else:
        pairs = [(_numbers(one), _numbers(other))]
    parts = [_of_arrays(a, b) for a, b in pairs]
    sizes = np.array([max(np.size(a), 1) for a, _ in pairs], np.float64)
    weight = sizes / sizes.sum()
    return Apart(
        max((p.largest for p in parts), default=0.0),
        float(sum(w * p.mean for w, p in zip(weight, parts, strict=True))),
        float(sum(w * p.share for w, p in zip(weight, parts, strict=True))),
    )


def _numbers(value: Any) -> Any:
    """The array that a prediction or a picture is compared by."""
    if isinstance(value, Scores):
        return value.values
    return value.classes if isinstance(value, LabelMap) else value


def _of_detections(one: Detections, other: Detections) -> Apart:
    pairs = partners(one, other)
    alone = len(one) + len(other) - 2 * len(pairs)
    first, second = (
        np.column_stack([found.boxes, found.scores, found.classes])[[pair[side] for pair in pairs]]
        for side, found in enumerate((one, other))
    )
    met = _of_arrays(first, second)
    values = len(pairs) + alone
    return Apart(met.largest, met.mean, (met.share * len(pairs) + alone) / values if values else 0.0)


def _of_arrays(one: Any, other: Any) -> Apart:
    first, second = np.asarray(one, np.float64), np.asarray(other, np.float64)
    if first.shape != second.shape:
        return Apart(float("inf"), float("inf"), 1.0)
    if not first.size:
        return Apart(0.0, 0.0, 0.0)
    gap = np.abs(first - second)
    return Apart(float(gap.max()), float(gap.mean()), float((gap > 0).mean()))

"""A patch of any content at every position of the images of a dataset: certified, violated or unknown."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from holdfast.core.dataset import Dataset
from holdfast.core.errors import ImageError
from holdfast.core.model import Model
from holdfast.core.pipeline import pipeline_of, place
from holdfast.core.property import Budget
from holdfast.core.registry import lookup
from holdfast.core.types import Image
from holdfast.engine.executor import Progress, silent
from holdfast.patchbench.positions.free import (
    STATES,
    PositionCertificates,
    Status,
    certify_positions,
    open_network,
)
from holdfast.patchbench.positions.models import open_detector
from holdfast.patchbench.positions.sweep import SafetyRule

INDICATION = 20  # images below which a figure is an indication


@dataclass(frozen=True, eq=False)
class CertifiedImage:
    """An image (h, w, 3) as the network sees it, and its positions, or the reason why it has none."""

    name: str
    picture: Image
    label: str
    result: PositionCertificates | None
    trouble: str = ""


@dataclass(frozen=True, eq=False)
class CertificationResult:
    """The positions of all images of one model and dataset."""

    subject: str
    source: str
    side: int
    bar: SafetyRule
    images: tuple[CertifiedImage, ...]
    seconds: float
    facts: dict[str, Any] = field(default_factory=dict)

    def decided(self) -> Iterator[tuple[CertifiedImage, PositionCertificates]]:
        """The images that have positions."""
        for image in self.images:
            if image.result is not None:
                yield image, image.result

    def count(self, status: Status) -> int:
        """The number of positions in a state, over all images."""
        return sum(result.count(status) for _, result in self.decided())

    @property
    def positions(self) -> int:
        """The number of positions of all images."""
        return sum(result.states.size for _, result in self.decided())

    def share(self, status: Status) -> float:
        """The share of positions in a state; NaN without any."""
        return self.count(status) / self.positions if self.positions else float("nan")


def certify_model(
    model: Model,
    data: Dataset,
    side: int,
    *,
    bar: SafetyRule | None = None,
    budget: Budget | None = None,
    split_seconds: float = 5.0,
    step: Progress = silent,
) -> CertificationResult:
    """Decide every position of every image, each within the budget; targets are the clean predictions."""
    began, bar = time.perf_counter(), bar or SafetyRule()
    detector = open_detector(model)
    network, card = open_network(detector), model.card
    pipeline = pipeline_of(card)
    decode, resize = lookup("decode", pipeline.decode), lookup("resize", pipeline.resize)
    images = []
    for entry in data.entries:
        try:
            pixels = np.ascontiguousarray(place(decode(entry.load().data), card.input, resize)[0])
        except ImageError as problem:
            blank = np.zeros((1, 1, 3), np.uint8)
            images.append(CertifiedImage(entry.name, blank, "", None, str(problem)))
            step(1, 1)
            continue
        result = certify_positions(network, pixels, side, bar=bar, budget=budget, split_seconds=split_seconds)
        images.append(CertifiedImage(entry.name, pixels, card.classes[result.target.label], result))
        step(1, 0)
    facts = {"model": model.name, "sha256": model.sha256, "patch": side, "rule": str(bar)}
    seconds = time.perf_counter() - began
    return CertificationResult(model.name, data.name, side, bar, tuple(images), seconds, facts)


def as_dict(result: CertificationResult) -> dict[str, Any]:
    """The result as plain values, with the state of every position and every counterexample."""
    return {
        "holdfast": 1,
        "kind": "certified positions",
        "subject": result.subject,
        "source": result.source,
        "seconds": round(result.seconds, 3),
        **result.facts,
        "positions": {status: result.count(status) for status in STATES},
        "images": [_plain(image, certificates) for image, certificates in result.decided()],
        "without": {image.name: image.trouble for image in result.images if image.trouble},
    }


def _plain(image: CertifiedImage, result: PositionCertificates) -> dict[str, Any]:
    violations = [
        {"row": row, "column": column, "output": result.outputs[row, column], "content": content.tolist()}
        for (row, column), content in sorted(result.witnesses.items())
    ]
    bounds = [
        [None if np.isnan(value) else round(value, 6) for value in line] for line in result.bounds.tolist()
    ]
    return {
        "name": image.name,
        "target": {"class": result.target.label, "box": list(result.target.box)},
        **{status: result.count(status) for status in STATES},
        "by_splitting": result.split,
        "seconds": round(result.seconds, 3),
        "states": [[STATES[state] for state in line] for line in result.states.tolist()],
        "bounds": bounds,
        "violations": violations,
    }

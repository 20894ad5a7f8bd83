"""A patch of any content at every position of a dataset or a benchmark: certified, violated or unknown."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.dataset import Dataset
from holdfast.core.errors import ImageError, InputError
from holdfast.core.model import Model
from holdfast.core.model import Network as File
from holdfast.core.pipeline import pipeline_of, place
from holdfast.core.property import Budget
from holdfast.core.registry import lookup
from holdfast.core.types import Image, Tensor
from holdfast.engine.executor import Progress, silent
from holdfast.graph.inspect import read_proto
from holdfast.patchbench.folder import Benchmark, instances
from holdfast.patchbench.layout import Target
from holdfast.patchbench.positions.file_detector import network_of
from holdfast.patchbench.positions.files import Network as FileNetwork
from holdfast.patchbench.positions.files import open_instance
from holdfast.patchbench.positions.free import (
    STATES,
    ExactNetwork,
    PositionCertificates,
    Status,
    certify_positions,
    open_network,
)
from holdfast.patchbench.positions.models import open_detector
from holdfast.patchbench.positions.sweep import SafetyRule
from holdfast.verify.vnnlib.read import read_vnnlib
from holdfast.verify.vnnlib.spec import property_of

SIDE = 3  # of the patch, if none is given
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
    def sides(self) -> list[int]:
        """The sides of the patches."""
        return sorted({result.side for _, result in self.decided()})

    @property
    def positions(self) -> int:
        """The number of positions of all images."""
        return sum(result.states.size for _, result in self.decided())

    def share(self, status: Status) -> float:
        """The share of positions in a state; NaN without any."""
        return self.count(status) / self.positions if self.positions else float("nan")


@dataclass(frozen=True)
class CertificationPlan:
    """The side of the patch (None: that of each instance), the rule, and the limits per image."""

    side: int | None
    bar: SafetyRule
    budget: Budget
    split_seconds: float

    def decide(self, network: ExactNetwork, clean: Tensor, target: Target, side: int) -> PositionCertificates:
        """Decide the positions of one picture."""
        how: dict[str, Any] = {"bar": self.bar, "budget": self.budget, "split_seconds": self.split_seconds}
        return certify_positions(network, clean, target, side, **how)


def certify_model(
    model: Model, data: Dataset, plan: CertificationPlan, step: Progress = silent
) -> CertificationResult:
    """Decide every position of every image; targets are the predictions without a patch."""
    began = time.perf_counter()
    detector = open_detector(model)
    network, card = open_network(detector), model.card
    pipeline = pipeline_of(card)
    decode, resize = lookup("decode", pipeline.decode), lookup("resize", pipeline.resize)
    images = []
    for entry in data.entries:
        try:
            pixels = np.ascontiguousarray(place(decode(entry.load().data), card.input, resize)[0])
        except ImageError as problem:
            images.append(_skipped(entry.name, problem))
            step(1, 1)
            continue
        clean = detector.tensor(pixels)
        result = plan.decide(network, clean, detector.predict(clean[np.newaxis]), plan.side or SIDE)
        images.append(CertifiedImage(entry.name, pixels, card.classes[result.target.label], result))
        step(1, 0)
    facts = {"model": model.name, "sha256": model.sha256, "rule": str(plan.bar)}
    seconds = time.perf_counter() - began
    return CertificationResult(model.name, data.name, plan.bar, tuple(images), seconds, facts=facts)


def certify_bench(
    bench: Benchmark, plan: CertificationPlan, images: int | None = None, step: Progress = silent
) -> CertificationResult:
    """Decide every position of each instance's picture; its own file confirms violations."""
    began = time.perf_counter()
    networks: dict[Path, FileNetwork] = {}
    certified = []
    for listed in islice(instances(bench), images):
        side = plan.side or max(listed.patch)
        name = f"{listed.name} ({side}×{side})"
        try:
            if listed.free:
                raise InputError("its patch has any content at one position: holdfast verify decides that")
            question = property_of(read_vnnlib(listed.spec), File(listed.network.name, listed.network))
            if listed.network not in networks:
                networks[listed.network] = FileNetwork(read_proto(listed.network))
            opened = open_instance(question, networks[listed.network], plan.bar)
            network, clean = network_of(opened, listed.target)
            result = plan.decide(network, clean, listed.target, side)
            certified.append(CertifiedImage(name, listed.image, f"class {listed.target.label}", result))
            step(1, 0)
        except InputError as problem:
            certified.append(_skipped(name, problem))
            step(1, 1)
    source = ", ".join(sorted({path.name for path in networks}))
    seconds = time.perf_counter() - began
    facts = {"folder": bench.folder.name, "rule": str(plan.bar)}
    name = bench.folder.resolve().name
    return CertificationResult(name, source, plan.bar, tuple(certified), seconds, facts=facts)


def _skipped(name: str, problem: Exception) -> CertifiedImage:
    return CertifiedImage(name, np.zeros((1, 1, 3), np.uint8), "", None, str(problem))


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
        "patch": result.side,
        "target": {"class": result.target.label, "box": list(result.target.box)},
        **{status: result.count(status) for status in STATES},
        "by_splitting": result.split,
        "seconds": round(result.seconds, 3),
        "states": [[STATES[state] for state in line] for line in result.states.tolist()],
        "bounds": bounds,
        "violations": violations,
    }

"""Threats replayed under deployments: what the model says of every image in every field of the matrix."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from holdfast.audit.result import NO_THREAT
from holdfast.audit.threats import seen, threatened
from holdfast.core import fingerprint
from holdfast.core.dataset import Dataset
from holdfast.core.errors import InputError
from holdfast.core.patch import Patch
from holdfast.core.pipeline import Decode, Pipeline
from holdfast.core.registry import lookup
from holdfast.engine.records import Record
from holdfast.engine.store import printable
from holdfast.noise.suite import Watch
from holdfast.noise.vision.choose import reason_of
from holdfast.noise.vision.run import Prepared, run_variants, sweep_plan
from holdfast.noise.vision.sweep import SweepResult, Variant, steps, sweep

LAID_BY = (
    "pillow"  # what reads the PNGs of laid patches: they hold the pixels of the deployment's own decoder
)


@dataclass(frozen=True)
class Threatened:
    """A threat made as trained: a patch for each image it was made for.

    An image is struck if it `loses` all that was found in it, or any of it.
    """

    name: str
    patches: Mapping[str, Patch] = field(repr=False)
    words: str = ""
    loses: Literal["all", "any"] = "all"


@dataclass(frozen=True)
class Replayed:
    """(threat, deployment) -> image -> record; or why a deployment cannot be run."""

    records: dict[tuple[str, str], dict[str, Record]] = field(repr=False)
    problems: dict[str, str]


@dataclass(frozen=True)
class Waves:
    """The distinct patches of every image, one of each image a wave, and in which wave a threat is met.

    An attack that is shrunk below a small budget is the same patch within every larger one: it is run once.
    """

    patches: tuple[dict[str, Patch], ...] = field(repr=False)
    at: dict[tuple[str, str], int]  # (threat, image)

    @property
    def images(self) -> int:
        """How many pictures are run under each deployment."""
        return sum(map(len, self.patches))


def waves_of(threats: Sequence[Threatened], names: Collection[str]) -> Waves:
    """The patches on these images; images a threat does not change are in no wave."""
    patches: list[dict[str, Patch]] = []
    at: dict[tuple[str, str], int] = {}
    given = {t.name: {printable(name): patch for name, patch in t.patches.items()} for t in threats}
    for name in names:
        known: dict[str, int] = {}
        for threat in threats:
            patch = given[threat.name].get(name)
            if patch is None or not patch.mask.any():
                continue
            small = seen(patch)
            place = known.setdefault(fingerprint.of(small), len(known))
            if place == len(patches):
                patches.append({})
            patches[place].setdefault(name, small)
            at[threat.name, name] = place
    return Waves(tuple(patches), at)


def replayed(
    prepared: Prepared, variants: Sequence[Variant], threats: Sequence[Threatened], names: Collection[str],
    watch: Watch,
) -> Replayed:  # fmt: skip
    """The records of the named images under every threat (none first) and every variant.

    Without a threat the suite's own cells are read, and run now only where there are none. An image that a
    threat does not change has the record it has without.
    """
    _check(prepared, threats)
    wanted = frozenset(names)
    model = prepared.noise.plan.model
    made = run_variants(prepared, tuple(variants), watch, f"without a threat {model.name}")
    clean, problems = _read(made, prepared, wanted)
    waves = waves_of(threats, names)
    struck: list[dict[str, dict[str, Record]]] = []
    for number, patches in enumerate(waves.patches):
        able = [v for v in variants if v.name not in problems]
        said = f"threats {number + 1} of {len(waves.patches)} {model.name}"
        found, more = _wave(prepared, able, patches, watch, said)
        struck.append(found)
        problems |= more
    records: dict[tuple[str, str], dict[str, Record]] = {}
    for title in (v.name for v in variants if v.name not in problems):
        records[NO_THREAT, title] = clean[title]
        for threat in threats:
            changed = {n: struck[w][title][n] for (t, n), w in waves.at.items() if t == threat.name}
            records[threat.name, title] = clean[title] | changed
    return Replayed(records, problems)


def _check(prepared: Prepared, threats: Sequence[Threatened]) -> None:
    names = [NO_THREAT, *(t.name for t in threats)]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise InputError(f"expected threats of different names, got {twice!r} twice")
    for threat in threats:  # a patch for an image that is not there is told before anything is run
        threatened(prepared.noise.plan.dataset, threat.patches, LAID_BY)


def _wave(
    prepared: Prepared, variants: Sequence[Variant], patches: Mapping[str, Patch], watch: Watch, said: str
) -> tuple[dict[str, dict[str, Record]], dict[str, str]]:
    """Records of the patched images by variant, and problems; one sweep for each distinct decoder."""
    plan = prepared.noise.plan
    some = tuple(e for e in plan.dataset.entries if printable(e.name) in patches)
    data: Dataset = dataclasses.replace(plan.dataset, entries=some)
    by_decoder: dict[str, list[Variant]] = {}
    for variant in variants:
        by_decoder.setdefault(variant.pipeline.describe()["decode"], []).append(variant)
    found: dict[str, dict[str, Record]] = {}
    problems: dict[str, str] = {}
    for group in by_decoder.values():
        decode, sendable = _sendable(group[0].pipeline)
        name = decode if isinstance(decode, str) else getattr(decode, "__name__", "a decoder")
        # The patch lies on the picture as the deployment's decoder gives it. What is run is a PNG of that,
        # read by one decoder for all: another one might not know PNG, or read it in a way of its own.
        laid = tuple(Variant(v.name, v.pipeline.replace(decode=LAID_BY)) for v in group)
        some_jobs = plan if sendable else dataclasses.replace(plan, jobs=1)
        whole = sweep_plan(some_jobs, threatened(data, patches, decode), laid)
        with watch(f"{said}, {name}", steps(whole)) as progress:
            read, told = _read(sweep(whole, progress), prepared, frozenset(patches))
        found |= read
        problems |= told
    return found, problems


def _sendable(pipeline: Pipeline) -> tuple[str | Decode, bool]:
    """The decoder as other processes find it, and whether they can: our own by name, others by module."""
    function: Decode = lookup("decode", pipeline.decode)
    if str(getattr(function, "__module__", "")).startswith("holdfast."):
        return pipeline.decode, True
    try:
        pickle.dumps(function)
    except (pickle.PicklingError, AttributeError, TypeError):
        return function, False
    return function, True


def _read(
    made: Mapping[str, SweepResult], prepared: Prepared, wanted: frozenset[str]
) -> tuple[dict[str, dict[str, Record]], dict[str, str]]:
    model = prepared.context.model
    problems = {name: reason_of(one.problem, model) for name, one in made.items() if one.problem}
    found = {
        name: {r.name: r for r in one.read().records if r.name in wanted}
        for name, one in made.items()
        if not one.problem
    }
    return found, problems

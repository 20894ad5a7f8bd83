"""Deployments, and threats replayed under them: a record of every image for every cell of the matrix."""

import dataclasses
import pickle
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeAlias

from holdfast.audit.result import NO_THREAT, TOGETHER, TRAINED
from holdfast.audit.threats import patched_dataset
from holdfast.core.dataset import Dataset
from holdfast.core.errors import InputError
from holdfast.core.patch import Patch
from holdfast.core.pipeline import Decode, Pipeline
from holdfast.core.registry import lookup
from holdfast.core.text import printable
from holdfast.engine.records import Record
from holdfast.noise.suite import Watch
from holdfast.noise.vision.choose import ImageCandidate, build_variant, reason_of
from holdfast.noise.vision.result import ModelNoise, NoiseRow
from holdfast.noise.vision.run import PreparedNoise, run_variants, sweep_plan, worst_options
from holdfast.noise.vision.sweep import SweepResult, Variant, steps, sweep
from holdfast.stages.families import NoiseOption, applied

LAID_BY = "pillow"  # reads the PNGs of patched images, which hold the pixels of the deployment's decoder
# Proofs for fp32 are repeated under these: the most common 8-bit precision, the most accurate, and 16 bits.
ALWAYS = ("precision=int8-minmax", "precision=int8-mixed", "precision=fp16")
MOST = 12  # columns a page can show side by side


def deployments_of(suite: ModelNoise, prepared: PreparedNoise, most: int = MOST) -> list[ImageCandidate]:
    """The training pipeline, the worst option of each family, the precisions of ALWAYS, and combined noise.

    At most `most` of them, the worst, in the order of the families. An option that cannot be built is listed
    with its reason if nothing else of its family can be measured; options without effect are not listed.
    """
    if most < 1:
        raise InputError(f"expected at least one deployment, got {most}")
    candidates = {candidate.option.label: candidate for candidate in prepared.candidates}
    unknown = sorted({row.label for row in suite.rows} - candidates.keys())
    if unknown:
        raise InputError(f"{unknown[0]}: in the suite but not in the plan; expected one plan for both")
    together = _together(suite, prepared) if most > 1 else None
    ranked = sorted(_chosen(suite.rows), key=_harm, reverse=True)[: most - 1 - (together is not None)]
    alone = []
    for row in (row for row in suite.rows if row in ranked):
        candidate = candidates[row.label]
        if row.outcome == "impossible":  # it failed on every image of the suite: no threat is run under it
            candidate = dataclasses.replace(candidate, status="impossible", note=row.note, variant=None)
        alone.append(candidate)
    return [as_trained(prepared), *alone, *([together] if together else [])]


def as_trained(prepared: PreparedNoise) -> ImageCandidate:
    """The training pipeline as the first deployment."""
    same = NoiseOption("", TRAINED, lambda pipeline: pipeline, "the pipeline the model was trained with")
    return ImageCandidate(same, "measured", "", Variant(TRAINED, prepared.context.clean))


def label_of(deployment: ImageCandidate) -> str:
    """The name of a deployment in the matrix: family=option, or its own name."""
    if deployment.variant is not None:
        return deployment.variant.name
    return deployment.option.label if deployment.option.family else deployment.option.name


def _chosen(rows: Sequence[NoiseRow]) -> list[NoiseRow]:
    """The worst measured row of each family, the precisions by name, and why a family has none at all."""
    chosen: list[NoiseRow] = []
    for family in dict.fromkeys(row.family for row in rows):
        own = [row for row in rows if row.family == family]
        measured = [row for row in own if row.outcome == "measured" and not row.hypothetical]
        if measured:
            chosen.append(max(measured, key=_harm))
        elif all(row.outcome == "impossible" for row in own):
            chosen.append(own[0])
    named = [row for row in rows if row.label in ALWAYS and row.outcome in ("measured", "impossible")]
    return list({row.label: row for row in (*chosen, *named)}.values())


def _harm(row: NoiseRow) -> tuple[bool, float, int]:
    """The rank of a deployment: whether it can be measured, the points lost, the predictions changed."""
    return row.outcome == "measured", row.points_lost or 0.0, row.changed or 0


def _together(suite: ModelNoise, prepared: PreparedNoise) -> ImageCandidate | None:
    """The worst option of each family combined; None if fewer than two lose accuracy."""
    chosen = worst_options(suite.rows, prepared.options)
    combined = build_variant(prepared.context, chosen) if len(chosen) > 1 else None
    if combined is None:
        return None
    words = " + ".join(option.label for option in chosen)
    option = NoiseOption("", TOGETHER, partial(applied, chosen=tuple(chosen)), words)
    variant = combined.variant and dataclasses.replace(combined.variant, name=TOGETHER)
    note = words if variant else f"{words}: {combined.note}"
    return dataclasses.replace(combined, option=option, variant=variant, note=note)


@dataclass(frozen=True)
class PatchThreat:
    """A threat computed for the training pipeline: one patch per image."""

    name: str
    patches: Mapping[str, Patch] = field(repr=False)
    words: str = ""
    loses: Literal["all", "any"] = "all"  # detected objects that a broken image loses


Records: TypeAlias = dict[tuple[str, str], dict[str, Record]]  # (threat, deployment) -> image -> record


def replay(
    prepared: PreparedNoise,
    variants: Sequence[Variant],
    threats: Sequence[PatchThreat],
    names: Collection[str],
    watch: Watch,
) -> tuple[Records, dict[str, str]]:
    """The records of the named images under every threat (none first) and variant; why a variant has none.

    Without a threat the suite's own cells are read, and run now only where there are none. An image that a
    threat does not change has the record it has without.
    """
    titles = [NO_THREAT, *(t.name for t in threats)]
    twice = next((title for title in titles if titles.count(title) > 1), None)
    if twice is not None:
        raise InputError(f"expected threats of different names, got {twice!r} twice")
    for threat in threats:  # report a patch for an image that is not there before anything is run
        patched_dataset(prepared.noise.plan.dataset, threat.patches, LAID_BY)
    selected, model = frozenset(names), prepared.noise.plan.model.name
    results = run_variants(prepared, tuple(variants), watch, f"matrix {model}, no attack")
    clean, problems = _read(results, prepared, selected)
    patched: dict[str, dict[str, dict[str, Record]]] = {}  # threat -> deployment -> image
    for number, threat in enumerate(threats, 1):
        named = {printable(name): patch for name, patch in threat.patches.items() if patch.mask.any()}
        patches = {name: patch for name, patch in named.items() if name in selected}
        runnable = [v for v in variants if v.name not in problems]
        title = f"matrix {model}, {threat.name} ({number} of {len(threats)})"
        patched[threat.name], more = _patched(prepared, runnable, patches, watch, title)
        problems |= more
    records: Records = {}
    for under in (v.name for v in variants if v.name not in problems):
        records[NO_THREAT, under] = clean[under]
        records |= {(t.name, under): clean[under] | patched[t.name].get(under, {}) for t in threats}
    return records, problems


def _patched(
    prepared: PreparedNoise,
    variants: Sequence[Variant],
    patches: Mapping[str, Patch],
    watch: Watch,
    title: str,
) -> tuple[dict[str, dict[str, Record]], dict[str, str]]:
    """Records of the patched images by variant, and problems; one sweep for each distinct decoder.

    The cell of an image depends on its patch, not on the threat: a patch that several threats share (an
    attack that needs fewer pixels than its budget) is run once.
    """
    if not patches:
        return {}, {}
    plan = prepared.noise.plan
    entries = tuple(e for e in plan.dataset.entries if printable(e.name) in patches)
    data: Dataset = dataclasses.replace(plan.dataset, entries=entries)
    by_decoder: dict[str, list[Variant]] = {}
    for variant in variants:
        by_decoder.setdefault(variant.pipeline.describe()["decode"], []).append(variant)
    records: dict[str, dict[str, Record]] = {}
    problems: dict[str, str] = {}
    for group in by_decoder.values():
        decode, sendable = _sendable(group[0].pipeline)
        name = decode if isinstance(decode, str) else getattr(decode, "__name__", "a decoder")
        # The patch lies on the picture as the deployment's decoder gives it. What is run is a PNG of that,
        # read by one decoder for all: another one might not know PNG, or read it in a way of its own.
        decoded = tuple(Variant(v.name, v.pipeline.replace(decode=LAID_BY)) for v in group)
        sent = plan if sendable else dataclasses.replace(plan, jobs=1)
        whole = sweep_plan(sent, patched_dataset(data, patches, decode), decoded)
        with watch(f"{title}, decoded by {name}", steps(whole)) as progress:
            more, failed = _read(sweep(whole, progress), prepared, frozenset(patches))
        records, problems = records | more, problems | failed
    return records, problems


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
    results: Mapping[str, SweepResult], prepared: PreparedNoise, names: frozenset[str]
) -> tuple[dict[str, dict[str, Record]], dict[str, str]]:
    """The records of the named images by variant, and why a variant has none."""
    model = prepared.context.model
    problems = {name: reason_of(r.problem, model) for name, r in results.items() if r.problem}
    read = {name: r.read().records for name, r in results.items() if not r.problem}
    return {v: {r.name: r for r in records if r.name in names} for v, records in read.items()}, problems

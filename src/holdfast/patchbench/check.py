"""A benchmark folder looked at as a whole: whether networks, specifications, images, numpy agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.errors import HoldfastError, InputError
from holdfast.core.patch import Patch
from holdfast.core.seeds import generator
from holdfast.core.types import Size
from holdfast.data.patchfile import patch_of
from holdfast.patchbench.agree import (
    Apart,
    Opened,
    apart,
    as_described,
    clean_output,
    laid,
    opened,
)
from holdfast.patchbench.files import Beside, Finding, beside, file_findings, left_over
from holdfast.patchbench.network.folder import Bench, Instance, Row, instance_of
from holdfast.patchbench.network.layout import SECONDS, THRESHOLD
from holdfast.patchbench.network.probe import told

CLOSE = 1e-4  # outputs nearer to one another agree: float32 on two ways
Step = Callable[[int, int], None]


@dataclass(frozen=True)
class Result:
    """What a check found: facts that are no fault, and faults."""

    folder: str
    facts: tuple[str, ...]
    findings: tuple[Finding, ...]


@dataclass
class _Notes:
    """What was noticed so far."""

    findings: list[Finding] = field(default_factory=list)
    networks: dict[str, Opened | None] = field(default_factory=dict)
    inside: dict[str, Apart] = field(default_factory=dict)
    sizes: dict[Path, Size] = field(default_factory=dict)
    rules: dict[tuple[float, bool], int] = field(default_factory=dict)
    clean: list[float] = field(default_factory=list)
    swapped: int = 0  # pictures with blue before red
    compared: int = 0
    apart: float = 0.0
    differ: dict[str, tuple[int, int]] = field(default_factory=dict)


def check_bench(bench: Bench, step: Step = lambda done, reused: None) -> Result:
    """Everything that is wrong with a benchmark folder, and what its networks really ask."""
    notes = _Notes(list(file_findings(bench)))
    for row in bench.rows:
        if row.network is not None and row.spec is not None:
            try:
                _look(bench, row, notes)
            except HoldfastError as problem:
                notes.findings.append(
                    Finding("unreadable", row.spec_name, str(problem).removeprefix(f"{row.spec}: "))
                )
        step(1, 0)
    return Result(str(bench.folder), tuple(_facts(bench, notes)), tuple(_grouped(notes.findings)))


def _patch(bench: Bench, row: Row) -> Patch:
    """The patch of a network of ours, from the picture beside it."""
    path = bench.folder / "patches" / f"{Path(row.network_name).stem}.png"
    try:
        return patch_of(path.read_bytes(), b"", str(path.with_suffix("")))
    except OSError as problem:
        raise InputError(f"{path}: expected the patch's picture, got: {problem.strerror}") from None


def _look(bench: Bench, row: Row, notes: _Notes) -> None:
    """Nothing; what one instance shows is in the notes."""
    instance = instance_of(bench, row, notes.sizes)
    rule = (instance.threshold, instance.strict)
    notes.rules[rule] = notes.rules.get(rule, 0) + 1
    found, problems = beside(bench, row)
    notes.findings += problems
    notes.findings += _told_wrong(bench, row, instance, found, notes)
    if row.network_name not in notes.networks:
        notes.networks[row.network_name] = None  # if it cannot be opened, it is told once
        notes.networks[row.network_name] = network = opened(instance.network, instance)
        if bench.manifest is not None:
            notes.inside[row.network_name] = apart(network.model, bench.manifest)
        notes.findings += _meant(row, network, instance)
    opened_network = notes.networks[row.network_name]
    if opened_network is None:
        return
    notes.findings += _ranges(row, opened_network, instance)
    image = found.image if found.image is not None else instance.image
    clean = clean_output(opened_network, instance, image)
    notes.clean.append(clean)
    if abs(clean - 1) > CLOSE:
        said = f"the output without a patch is {clean:.6f}; expected 1: the target is what the model predicts"
        notes.findings.append(Finding("clean output not 1", row.spec_name, said))
    _compare(bench, row, opened_network, instance, notes)


def _told_wrong(bench: Bench, row: Row, instance: Instance, found: Beside, notes: _Notes) -> list[Finding]:
    """Where specification, image, label and manifest say different things."""
    problems = []
    if found.image is not None:
        problems += _picture(row, instance, found, notes)
    if found.predicted is not None:
        far = np.abs(np.array(found.predicted.box) - np.array(instance.target.box)).max()
        if far > 1e-6 or found.predicted.label != instance.target.label:
            said = f"its target is {instance.target}, the predicted label {found.predicted}"
            problems.append(Finding("other target", row.spec_name, said))
    if instance.threshold != THRESHOLD:
        said = f"its threshold is {instance.threshold:g}; expected {THRESHOLD}"
        problems.append(Finding("other threshold", row.spec_name, said))
    if bench.manifest is not None and bench.manifest["rule"]["strict"] != instance.strict:
        said = f"it is {'strict' if instance.strict else 'not strict'}; the manifest says otherwise"
        problems.append(Finding("other rule", row.spec_name, said))
    return problems


def _picture(row: Row, instance: Instance, found: Beside, notes: _Notes) -> list[Finding]:
    image, own = found.image, instance.image
    if image is None or image.shape != own.shape:
        got = "none" if image is None else f"{image.shape[1]}×{image.shape[0]}"
        said = f"its picture is {own.shape[1]}×{own.shape[0]}, the image {got}"
        return [Finding("other picture", row.spec_name, said)]
    same = np.ones(own.shape[:2], bool)
    if instance.free:
        (x, _), (y, _), (w, h) = instance.columns, instance.rows, instance.patch
        same[int(y) : int(y) + h, int(x) : int(x) + w] = False
    far, swapped = (
        int(np.abs(colours.astype(np.int16) - own)[same].max(initial=0))
        for colours in (image, image[:, :, ::-1])
    )
    if swapped < far:
        notes.swapped += 1  # no fault: what the network was trained on
    if min(far, swapped) > 0:
        said = f"its picture differs from the image by up to {min(far, swapped)} of 255"
        return [Finding("other picture", row.spec_name, said)]
    return []


def _meant(row: Row, network: Opened, instance: Instance) -> list[Finding]:
    """Whether a position does to the picture what the benchmark's text says."""
    moved = any(axis.length for axis in network.effect.axes)
    if instance.free:
        said = "the patch's content is free, yet a position changes the picture"
        return [Finding("position", row.network_name, said)] if moved else []
    if network.effect.as_described:
        return []
    said = f"a position is no patch at column = first, row = second value, but {told(network.effect)}"
    return [Finding("position", row.network_name, said)]


def _ranges(row: Row, network: Opened, instance: Instance) -> list[Finding]:
    """Whether the positions of a specification are those at which the patch lies wholly in the picture."""
    height, width = instance.image.shape[:2]
    if instance.free:
        return _free_place(row, instance)
    side, problems = network.effect.patch, []
    whole = (("column", instance.columns, width, side.width), ("row", instance.rows, height, side.height))
    for word, (low, high), extent, length in whole:
        last = extent - length
        if (low, high) == (0, last):
            continue
        why = f"{word} {last} is never tried" if high < last else "beyond it the patch is cut off"
        if low != 0:
            why = f"it should begin at 0{'' if high == last else '; ' + why}"
        said = f"{word} {low:g} to {high:g}; a {side.width}×{side.height} patch fits at 0 to {last}: {why}"
        problems.append(Finding("wrong range", row.network_name, said))
    return problems


def _free_place(row: Row, instance: Instance) -> list[Finding]:
    (x, x2), (y, y2), (w, h) = instance.columns, instance.rows, instance.patch
    height, width = instance.image.shape[:2]
    if x == x2 and y == y2 and 0 <= x <= width - w and 0 <= y <= height - h:
        return []
    said = f"expected one place inside the picture, got columns {x:g} to {x2:g}, rows {y:g} to {y2:g}"
    return [Finding("wrong range", row.spec_name, said)]


def _compare(bench: Bench, row: Row, network: Opened, instance: Instance, notes: _Notes) -> None:
    """Nothing; the network's outputs at some positions are compared with those found apart from it."""
    (x0, x1), (y0, y1) = instance.columns, instance.rows
    places = [(x0, y0), (x1, y0), (x0, y1), (x1, y1), ((x0 + x1) // 2, (y0 + y1) // 2)]
    rng = generator(0, "patchbench check", row.spec_name)
    places += [(int(rng.uniform(x0, x1 + 1)), int(rng.uniform(y0, y1 + 1))) for _ in range(5)]
    spots = list(dict.fromkeys((int(x), int(y)) for x, y in places))
    inside = notes.inside.get(row.network_name)
    if inside is None:
        both = [as_described(network, instance, at) for at in spots]
        other, tried = notes.differ.get(row.network_name, (0, 0))
        far = sum(abs(a - b) > CLOSE for a, b in both)
        notes.differ[row.network_name] = other + far, tried + len(both)
        if far and network.effect.as_described:
            said = f"{far} of {len(both)} outputs differ from those of a black square laid by numpy"
            notes.findings.append(Finding("numpy disagrees", row.spec_name, said))
        return
    patch = None if instance.free else _patch(bench, row)
    for at in spots:
        point = instance.point.astype(np.float32)
        point[-8:-6] = at
        seen = instance.image if patch is None else laid(instance.image, patch, at)
        alone, within = inside.output(instance, seen), network.output(point)
        notes.compared += 1
        notes.apart = max(notes.apart, abs(alone - within))
        if not abs(alone - within) <= CLOSE:
            said = f"at column {at[0]}, row {at[1]} the network says {within:.6f}, numpy {alone:.6f}"
            notes.findings.append(Finding("numpy disagrees", row.spec_name, said))


def _facts(bench: Bench, notes: _Notes) -> list[str]:
    made = "made by holdfast" if bench.manifest is not None else "no manifest: published elsewhere"
    facts = [f"{len(bench.rows)} instances, {len(notes.networks)} networks, {made}"]
    for name, network in notes.networks.items():
        if network is not None:
            free = bench.manifest is not None and bench.manifest["content"] == "free"
            does = "nothing, as it should: the patch's content is free" if free else told(network.effect)
            facts.append(f"{name}: what a position does: {does}")
    for (threshold, strict), count in notes.rules.items():
        sign = "<" if strict else "<="
        facts.append(f"unsafe if Y_0 {sign} {threshold:g}: {count} specifications")
    if notes.clean:
        facts.append(f"output without a patch: {min(notes.clean):.6f} to {max(notes.clean):.6f}")
    if notes.compared:
        facts.append(f"numpy: {notes.compared} outputs recomputed, largest difference {notes.apart:.1e}")
    for name, (other, tried) in notes.differ.items():
        facts.append(f"{name}: {other} of {tried} outputs differ from those of a black square laid by numpy")
    if notes.swapped:
        facts.append(f"{notes.swapped} pictures are in BGR order: blue is the first channel")
    limits = sorted({row.seconds for row in bench.rows})
    if limits != [SECONDS]:
        facts.append(
            f"limits of {', '.join(f'{s:g}' for s in limits)} s; the benchmark's text says {SECONDS} s"
        )
    unused = left_over(bench)
    if unused:
        facts.append(f"{len(unused)} images without an instance, first {unused[0]}")
    return facts


def _grouped(findings: list[Finding]) -> list[Finding]:
    """Findings of one kind that differ only in where: once, with their number."""
    made: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        key = finding.kind, finding.what if finding.kind in ("position", "wrong range") else ""
        before = made.get(key)
        made[key] = finding if before is None else replace(before, count=before.count + 1)
    return list(made.values())


def as_dict(result: Result) -> Mapping[str, Any]:
    """The result as JSON values."""
    findings = [vars(finding) for finding in result.findings]
    return {"folder": result.folder, "well": not findings, "facts": list(result.facts), "findings": findings}

"""A benchmark folder checked as a whole: whether networks, specifications, images and numpy agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import HoldfastError, InputError
from holdfast.core.model import Card, Head, Input, read_onnx
from holdfast.core.patch import Patch, Spot, apply
from holdfast.core.registry import lookup, part
from holdfast.core.seeds import generator
from holdfast.core.types import Detections, Image, Size
from holdfast.data.patchfile import patch_of
from holdfast.graph.inspect import read_proto
from holdfast.graph.nodes import part_of
from holdfast.patchbench.folder import (
    Bench,
    Beside,
    Finding,
    Instance,
    Row,
    beside,
    file_findings,
    instance_of,
    left_over,
)
from holdfast.patchbench.layout import SECONDS, TAIL, THRESHOLD, output_of, unit
from holdfast.patchbench.probe import Effect, Probe, clean_picture, effect_of, first_output, open_probe, told
from holdfast.verify.replay import session_of

Values = NDArray[np.float32]
CLOSE = 1e-4  # outputs nearer to one another agree: float32 on two ways
Step = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Opened:
    """A network taken apart: as a whole, up to the picture it reads, and from there on."""

    model: Any  # onnx.ModelProto
    whole: Any
    probe: Probe
    tail: Any
    effect: Effect

    def output(self, point: Values) -> float:
        """The output for a flat input."""
        return float(first_output(self.whole, {self.probe.input: point}).ravel()[0])

    def after(self, picture: Values, point: Values) -> float:
        """The output if the network proper reads this picture; the target is the point's."""
        given = {self.probe.tensor: picture, self.probe.input: point}
        fed = {port.name: given[port.name] for port in self.tail.get_inputs()}
        return float(first_output(self.tail, fed).ravel()[0])


def opened(network: Path, instance: Instance) -> Opened:
    """The network with what its position inputs do, seen over the range of an instance."""
    model = read_proto(network)
    point = instance.point.astype(np.float32)
    probe = open_probe(model, len(point))
    effect = effect_of(probe, point, *_some_positions(instance))
    outputs = [port.name for port in model.graph.output]
    tail = part_of(model, {probe.tensor: probe.picture(point), probe.input: point}, outputs)
    whole, after = session_of(read_onnx(network)), session_of(tail.SerializeToString())
    return Opened(model, whole, probe, after, effect)


def _some_positions(instance: Instance) -> tuple[list[int], list[int]]:
    """Whole columns and rows to look at: near both ends of the range, and between."""
    found = []
    height, width = instance.image.shape[:2]
    for ends, extent in ((instance.columns, width), (instance.rows, height)):
        low, high = int(ends[0]), int(ends[1])
        if low == high:  # a place that is fixed: moved anyway, to see what it does
            low, high = 0, extent - 1
        between = [low + round((high - low) * share) for share in (0, 0.25, 0.5, 0.75, 1)]
        wanted = [*range(low, low + 5), *between, *range(high - 4, high + 1)]
        found.append(sorted({at for at in wanted if low <= at <= high}))
    return found[0], found[1]


def clean_output(network: Opened, instance: Instance, image: Image) -> float:
    """The output for the picture without a patch."""
    base = instance.point.astype(np.float32)
    if instance.free:
        base[:-TAIL] = unit(image).ravel()
    return network.after(clean_picture(network.probe, base, *_some_positions(instance)), base)


def as_described(network: Opened, instance: Instance, at: tuple[int, int]) -> tuple[float, float]:
    """The output at a position, and the one with the benchmark's own text: a black square laid there."""
    height, width = instance.image.shape[:2]
    point = instance.point.astype(np.float32)
    point[-TAIL : 2 - TAIL] = at
    picture = point[:-TAIL].reshape(1, 3, height, width).copy()
    side = network.effect.patch
    picture[:, :, at[1] : at[1] + side.height, at[0] : at[0] + side.width] = 0.0
    shape = network.probe.picture(point).shape
    if shape != picture.shape:
        picture = picture.transpose(0, 2, 3, 1)
    return network.output(point), network.after(picture.reshape(shape), point)


@dataclass(frozen=True, eq=False)
class Apart:
    """The detector inside our network run by itself, fed by numpy and read by its card's head."""

    card: Card
    run: Any
    input: str
    outputs: tuple[str, ...]

    def output(self, instance: Instance, image: Image) -> float:
        """IoU · equal(class) of what the detector finds on an image, computed in numpy."""
        tensor = lookup("normalise", "card")(image, self.card.input)[np.newaxis]
        raw = dict(zip(self.outputs, self.run.run(list(self.outputs), {self.input: tensor}), strict=True))
        found = part("head", self.card.head.name).function(raw, self.card)
        if not isinstance(found, Detections):
            return float("nan")
        boxes = found.boxes / np.array([*self.card.input.size] * 2, np.float64)
        return float(output_of(boxes, found.classes, instance.target)[0])


def apart(model: Any, manifest: Mapping[str, Any]) -> Apart:
    """The detector of a network of ours, cut out of it."""
    inside = manifest["model"]
    card, names = card_of(inside["card"]), tuple(inside["outputs"])
    w, h = card.input.size
    shape = (1, 3, h, w) if card.input.layout == "nchw" else (1, h, w, 3)
    detector = part_of(model, {inside["input"]: np.zeros(shape, card.input.dtype)}, names)
    return Apart(card, session_of(detector.SerializeToString()), inside["input"], names)


def card_of(plain: Mapping[str, Any]) -> Card:
    """The card that a manifest holds."""
    try:
        given = dict(plain["input"])
        given |= {"size": Size(*given["size"]), "mean": tuple(given["mean"]), "std": tuple(given["std"])}
        head = Head(plain["head"]["name"], dict(plain["head"]["options"]))
        rest = {key: value for key, value in plain.items() if key not in ("input", "head", "classes")}
        return Card(input=Input(**given), head=head, classes=tuple(plain["classes"]), **rest)
    except (KeyError, TypeError, ValueError) as problem:
        raise InputError(
            f"manifest.json: expected the model's card, got one with a fault: {problem}"
        ) from None


@dataclass(frozen=True)
class Result:
    """What a check found: facts that are no fault, and faults."""

    folder: str
    facts: tuple[str, ...]
    findings: tuple[Finding, ...]


@dataclass
class _Notes:
    """Findings so far, and what the instances have in common."""

    findings: list[Finding] = field(default_factory=list)
    networks: dict[str, Opened | None] = field(default_factory=dict)
    inside: dict[str, Apart] = field(default_factory=dict)
    rules: Counter[tuple[float, bool]] = field(default_factory=Counter)
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
                said = str(problem).removeprefix(f"{row.spec}: ")
                notes.findings.append(Finding("unreadable", row.spec_name, said))
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
    """Check one instance and write down what it shows."""
    instance = instance_of(bench, row)
    notes.rules[instance.threshold, instance.strict] += 1
    found, problems = beside(bench, row)
    notes.findings += problems
    notes.findings += _contradictions(bench, row, instance, found, notes)
    if row.network_name not in notes.networks:
        notes.networks[row.network_name] = None  # if it cannot be opened, that is reported once
        notes.networks[row.network_name] = network = opened(instance.network, instance)
        if bench.manifest is not None:
            notes.inside[row.network_name] = apart(network.model, bench.manifest)
        notes.findings += _meant(row, network, instance)
    opened_network = notes.networks[row.network_name]
    if opened_network is None:
        return
    notes.findings += _ranges(row, opened_network, instance)
    image = found.image
    if image is None or image.shape != instance.image.shape:
        image = instance.image
    clean = clean_output(opened_network, instance, image)
    notes.clean.append(clean)
    if abs(clean - 1) > CLOSE:
        said = f"the output without a patch is {clean:.6f}; expected 1: the target is what the model predicts"
        notes.findings.append(Finding("clean output not 1", row.spec_name, said))
    _compare(bench, row, opened_network, instance, notes)


def _contradictions(
    bench: Bench, row: Row, instance: Instance, found: Beside, notes: _Notes
) -> Iterator[Finding]:
    """Where specification, image, label and manifest say different things."""
    if found.image is not None:
        yield from _picture(row, instance, found.image, notes)
    if found.predicted is not None:
        far = np.abs(np.array(found.predicted.box) - np.array(instance.target.box)).max()
        if far > 1e-6 or found.predicted.label != instance.target.label:
            said = f"its target is {instance.target}, the predicted label {found.predicted}"
            yield Finding("other target", row.spec_name, said)
    if instance.threshold != THRESHOLD:
        said = f"its threshold is {instance.threshold:g}; expected {THRESHOLD}"
        yield Finding("other threshold", row.spec_name, said)
    if bench.manifest is not None and bench.manifest["rule"]["strict"] != instance.strict:
        said = f"it is {'strict' if instance.strict else 'not strict'}; the manifest says otherwise"
        yield Finding("other rule", row.spec_name, said)


def _picture(row: Row, instance: Instance, image: Image, notes: _Notes) -> Iterator[Finding]:
    own = instance.image
    if image.shape != own.shape:
        said = f"its picture is {own.shape[1]}×{own.shape[0]}, the image {image.shape[1]}×{image.shape[0]}"
        yield Finding("other picture", row.spec_name, said)
        return
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
        yield Finding("other picture", row.spec_name, said)


def _meant(row: Row, network: Opened, instance: Instance) -> Iterator[Finding]:
    """Whether a position does to the picture what the benchmark's text says."""
    if instance.free and any(axis.length for axis in network.effect.axes):
        said = "the patch's content is free, yet a position changes the picture"
        yield Finding("position", row.network_name, said)
    if not instance.free and not network.effect.as_described:
        said = f"a position is no patch at column = first, row = second value, but {told(network.effect)}"
        yield Finding("position", row.network_name, said)


def _ranges(row: Row, network: Opened, instance: Instance) -> Iterator[Finding]:
    """Whether the positions of a specification are those at which the patch lies wholly in the picture."""
    height, width = instance.image.shape[:2]
    if instance.free:
        (x, x2), (y, y2), (w, h) = instance.columns, instance.rows, instance.patch
        if not (x == x2 and y == y2 and 0 <= x <= width - w and 0 <= y <= height - h):
            said = f"expected one place inside the picture, got columns {x:g} to {x2:g}, rows {y:g} to {y2:g}"
            yield Finding("wrong range", row.spec_name, said)
        return
    side = network.effect.patch
    whole = (("column", instance.columns, width, side.width), ("row", instance.rows, height, side.height))
    for word, (low, high), extent, length in whole:
        last = extent - length
        if (low, high) == (0, last):
            continue
        why = f"{word} {last} is never tried" if high < last else "beyond it the patch is cut off"
        if low != 0:
            why = f"it should begin at 0{'' if high == last else '; ' + why}"
        said = f"{word} {low:g} to {high:g}; a {side.width}×{side.height} patch fits at 0 to {last}: {why}"
        yield Finding("wrong range", row.network_name, said)


def _compare(bench: Bench, row: Row, network: Opened, instance: Instance, notes: _Notes) -> None:
    """Compare the network's outputs at some positions with those computed apart from it."""
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
        point[-TAIL : 2 - TAIL] = at
        seen = instance.image
        if patch is not None:
            seen = apply(seen, replace(patch, where=Spot(*at)))
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

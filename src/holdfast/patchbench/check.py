"""A benchmark folder checked as a whole: whether networks, specifications, images and numpy agree."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import HoldfastError, InputError
from holdfast.core.fingerprint import generator
from holdfast.core.model import Card, Model, read_onnx
from holdfast.core.patch import Position, apply
from holdfast.core.types import Image, Size, Tensor
from holdfast.data.patchfile import read_patch
from holdfast.engine.executor import Progress, silent
from holdfast.engine.manifest import from_plain
from holdfast.graph.inspect import read_proto
from holdfast.patchbench import folder, probe
from holdfast.patchbench.folder import Benchmark, Finding, Instance, InstanceRow
from holdfast.patchbench.layout import SECONDS, TAIL, THRESHOLD, Target, unit
from holdfast.patchbench.positions.batches import Session, open_bytes, open_part
from holdfast.patchbench.positions.models import Detector

Values = NDArray[np.float32]
CLOSE = 1e-4  # outputs nearer to one another agree: float32 on two ways


def detector_inside(model: Any, network: Path, manifest: Mapping[str, Any]) -> Detector:
    """The detector of a network of ours, cut out of it, to be fed by numpy."""
    inside = manifest["model"]
    names = list(inside["outputs"])
    try:
        card: Card = from_plain(Card, inside["card"])
        w, h = size = Size(*card.input.size)
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        said = f"expected the model's card, got one with a fault: {problem}"
        raise InputError(f"manifest.json: {said}") from None
    card = replace(card, input=replace(card.input, size=size))
    shape = (1, 3, h, w) if card.input.layout == "nchw" else (1, h, w, 3)
    alone = open_part(model, {inside["input"]: np.zeros(shape, card.input.dtype)}, names)

    def run(tensor: Tensor) -> dict[str, Tensor]:
        return dict(zip(names, alone({inside["input"]: tensor}), strict=True))

    return Detector(Model(network.name, network, card, sha256=""), run)


@dataclass(frozen=True, eq=False)
class Network:
    """A network taken apart: whole, up to the picture it reads, from there on, and our detector in it."""

    whole: Session
    head: probe.Probe
    tail: Session
    effect: probe.Effect
    detector: Detector | None

    def output(self, point: Values) -> float:
        """The output for a flat input."""
        return float(probe.first_output(self.whole, {self.head.input: point}).ravel()[0])

    def after(self, picture: Values, point: Values) -> float:
        """The output if the network proper reads this picture; the target is the point's."""
        given = {self.head.tensor: picture, self.head.input: point}
        return float(probe.first_output(self.tail, given).ravel()[0])


def open_network(instance: Instance, manifest: Mapping[str, Any]) -> Network:
    """The network with what its position inputs do, seen over the range of an instance."""
    model = read_proto(instance.network)
    point = instance.point.astype(np.float32)
    opened = probe.open_probe(model, len(point))
    outputs = [port.name for port in model.graph.output]
    return Network(
        whole=open_bytes(read_onnx(instance.network)),
        head=opened,
        tail=open_part(model, {opened.tensor: opened.picture(point), opened.input: point}, outputs),
        effect=probe.effect_of(opened, point, *_some_positions(instance)),
        detector=detector_inside(model, instance.network, manifest) if manifest else None,
    )


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


def as_described(network: Network, instance: Instance, at: tuple[int, int]) -> tuple[float, float]:
    """The output at a position, and the one with the benchmark's own text: a black square laid there."""
    height, width = instance.image.shape[:2]
    point = probe.moved(instance.point.astype(np.float32), *at)
    picture = point[:-TAIL].reshape(1, 3, height, width).copy()
    side = network.effect.patch
    picture[:, :, at[1] : at[1] + side.height, at[0] : at[0] + side.width] = 0.0
    shape = network.head.picture(point).shape
    if shape != picture.shape:
        picture = picture.transpose(0, 2, 3, 1)
    return network.output(point), network.after(picture.reshape(shape), point)


@dataclass(frozen=True)
class CheckResult:
    """What a check found: facts that are no fault, and faults."""

    folder: str
    facts: tuple[str, ...]
    findings: tuple[Finding, ...]


@dataclass
class _CheckNotes:
    """Findings so far, and what the instances have in common."""

    findings: list[Finding] = field(default_factory=list)
    networks: dict[str, Network | None] = field(default_factory=dict)
    rules: Counter[tuple[float, bool]] = field(default_factory=Counter)
    clean: list[float] = field(default_factory=list)
    swapped: int = 0  # pictures with blue before red
    apart: list[float] = field(default_factory=list)  # our outputs from those computed by numpy
    differ: dict[str, tuple[int, int]] = field(default_factory=dict)


def check_bench(bench: Benchmark, step: Progress = silent) -> CheckResult:
    """Everything that is wrong with a benchmark folder, and what its networks really ask."""
    notes = _CheckNotes(list(folder.file_findings(bench)))
    for row in bench.rows:
        if not row.missing:
            try:
                _look(bench, row, notes)
            except HoldfastError as problem:
                said = str(problem).removeprefix(f"{row.spec}: ")
                notes.findings.append(Finding("unreadable", row.spec_name, said))
        step(1, 0)
    grouped: dict[tuple[str, str], Finding] = {}  # those of one kind that differ only in where: once
    for finding in notes.findings:
        key = finding.kind, finding.what if finding.kind in ("position", "wrong range") else ""
        first = grouped.get(key)
        grouped[key] = finding if first is None else replace(first, count=first.count + 1)
    return CheckResult(str(bench.folder), tuple(_facts(bench, notes)), tuple(grouped.values()))


def _look(bench: Benchmark, row: InstanceRow, notes: _CheckNotes) -> None:
    """Check one instance and write down what it shows."""
    instance = folder.instance_of(bench, row)
    notes.rules[instance.threshold, instance.strict] += 1
    image, predicted, problems = folder.beside(bench, row)
    notes.findings += problems
    notes.findings += [
        Finding(kind, row.spec_name, what)
        for kind, what in _contradictions(bench, instance, image, predicted, notes)
    ]
    if row.network_name not in notes.networks:
        notes.networks[row.network_name] = None  # if it cannot be opened, that is reported once
        notes.networks[row.network_name] = network = open_network(instance, bench.manifest)
        said = ""
        if not instance.free and not network.effect.as_described:
            said = f"a position is no patch at column = first, row = second value, but {network.effect}"
        elif instance.free and any(axis.length for axis in network.effect.axes):
            said = "the patch's content is free, yet a position changes the picture"
        notes.findings += [Finding("position", row.network_name, said)] if said else []
    opened = notes.networks[row.network_name]
    if opened is None:
        return
    notes.findings += _ranges(row, opened, instance)
    if image is None or image.shape != instance.image.shape:
        image = instance.image
    base = instance.point.astype(np.float32)
    if instance.free:
        base[:-TAIL] = unit(image).ravel()
    clean = opened.after(probe.clean_picture(opened.head, base, *_some_positions(instance)), base)
    notes.clean.append(clean)
    if abs(clean - 1) > CLOSE:
        said = f"the output without a patch is {clean:.6f}; expected 1: the target is what the model predicts"
        notes.findings.append(Finding("clean output not 1", row.spec_name, said))
    _compare(bench, row, opened, instance, notes)


def _contradictions(
    bench: Benchmark, instance: Instance, image: Image | None, predicted: Target | None, notes: _CheckNotes
) -> Iterator[tuple[str, str]]:
    """Where specification, image, label and manifest say different things: the kind, and what they say."""
    own = instance.image
    if image is not None and image.shape != own.shape:
        sizes = f"{own.shape[1]}×{own.shape[0]}, the image {image.shape[1]}×{image.shape[0]}"
        yield "other picture", f"its picture is {sizes}"
    elif image is not None:
        far, swapped = _difference(instance, image), _difference(instance, image[:, :, ::-1])
        notes.swapped += swapped < far  # no fault: what the network was trained on
        if min(far, swapped) > 0:
            yield "other picture", f"its picture differs from the image by up to {min(far, swapped)} of 255"
    if predicted is not None:
        far = np.abs(np.array(predicted.box) - np.array(instance.target.box)).max()
        if far > 1e-6 or predicted.label != instance.target.label:
            yield "other target", f"its target is {instance.target}, the predicted label {predicted}"
    if instance.threshold != THRESHOLD:
        yield "other threshold", f"its threshold is {instance.threshold:g}; expected {THRESHOLD}"
    if bench.manifest and bench.manifest["rule"]["strict"] != instance.strict:
        word = "strict" if instance.strict else "not strict"
        yield "other rule", f"it is {word}; the manifest says otherwise"


def _difference(instance: Instance, image: Image) -> int:
    """How far the image is from the specification's, of 255; what a free patch covers does not count."""
    far = np.abs(image.astype(np.int16) - instance.image)
    if instance.free:
        (x, _), (y, _), (w, h) = instance.columns, instance.rows, instance.patch
        far[int(y) : int(y) + h, int(x) : int(x) + w] = 0
    return int(far.max())


def _ranges(row: InstanceRow, network: Network, instance: Instance) -> Iterator[Finding]:
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


def _compare(
    bench: Benchmark, row: InstanceRow, network: Network, instance: Instance, notes: _CheckNotes
) -> None:
    """Compare the network's outputs at some positions with those computed apart from it."""
    (x0, x1), (y0, y1) = instance.columns, instance.rows
    places = [(x0, y0), (x1, y0), (x0, y1), (x1, y1), ((x0 + x1) // 2, (y0 + y1) // 2)]
    rng = generator(0, "patchbench check", row.spec_name)
    places += [(int(rng.uniform(x0, x1 + 1)), int(rng.uniform(y0, y1 + 1))) for _ in range(5)]
    spots = list(dict.fromkeys((int(x), int(y)) for x, y in places))
    if network.detector is None:
        both = [as_described(network, instance, at) for at in spots]
        other, tried = notes.differ.get(row.network_name, (0, 0))
        far = sum(abs(a - b) > CLOSE for a, b in both)
        notes.differ[row.network_name] = other + far, tried + len(both)
        if far and network.effect.as_described:
            said = f"{far} of {len(both)} outputs differ from those of a black square laid by numpy"
            notes.findings.append(Finding("numpy disagrees", row.spec_name, said))
        return
    path = bench.folder / "patches" / f"{Path(row.network_name).stem}.png"
    patch = None if instance.free else read_patch(path)
    for at in spots:
        image = instance.image
        if patch is not None:
            image = apply(image, replace(patch, where=Position(*at)))
        alone = network.detector.output(network.detector.tensor(image)[np.newaxis], instance.target)
        within = network.output(probe.moved(instance.point.astype(np.float32), *at))
        notes.apart.append(abs(alone - within))
        if not notes.apart[-1] <= CLOSE:
            said = f"at column {at[0]}, row {at[1]} the network says {within:.6f}, numpy {alone:.6f}"
            notes.findings.append(Finding("numpy disagrees", row.spec_name, said))


def _facts(bench: Benchmark, notes: _CheckNotes) -> list[str]:
    made = "made by holdfast" if bench.manifest else "no manifest: published elsewhere"
    facts = [f"{len(bench.rows)} instances, {len(notes.networks)} networks, {made}"]
    for name, network in notes.networks.items():
        if network is not None:
            free = bench.manifest.get("content") == "free"
            does = "nothing, as it should: the patch's content is free" if free else network.effect
            facts.append(f"{name}: what a position does: {does}")
    for (threshold, strict), count in notes.rules.items():
        facts.append(f"unsafe if Y_0 {'<' if strict else '<='} {threshold:g}: {count} specifications")
    if notes.clean:
        facts.append(f"output without a patch: {min(notes.clean):.6f} to {max(notes.clean):.6f}")
    if notes.apart:
        facts.append(
            f"numpy: {len(notes.apart)} outputs recomputed, largest difference {max(notes.apart):.1e}"
        )
    for name, (other, tried) in notes.differ.items():
        facts.append(f"{name}: {other} of {tried} outputs differ from those of a black square laid by numpy")
    if notes.swapped:
        facts.append(f"{notes.swapped} pictures are in BGR order: blue is the first channel")
    limits = sorted({row.seconds for row in bench.rows})
    if limits != [SECONDS]:
        given = ", ".join(f"{limit:g}" for limit in limits)
        facts.append(f"limits of {given} s; the benchmark's text says {SECONDS} s")
    unused = folder.left_over(bench)
    if unused:
        facts.append(f"{len(unused)} images without an instance, first {unused[0]}")
    return facts


def as_dict(result: CheckResult) -> Mapping[str, Any]:
    """The result as JSON values."""
    findings = [vars(finding) for finding in result.findings]
    return {"folder": result.folder, "well": not findings, "facts": list(result.facts), "findings": findings}

"""Check a benchmark folder: whether networks, specifications, images and NumPy agree."""

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
CLOSE = 1e-4  # tolerance of outputs: float32, computed in two ways


def detector_inside(model: Any, network: Path, manifest: Mapping[str, Any]) -> Detector:
    """The detector extracted from one of our networks, to be run on NumPy arrays."""
    stored = manifest["model"]
    names = list(stored["outputs"])
    try:
        card: Card = from_plain(Card, stored["card"])
        w, h = size = Size(*card.input.size)
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        message = f"expected the model's card, got one with a fault: {problem}"
        raise InputError(f"manifest.json: {message}") from None
    card = replace(card, input=replace(card.input, size=size))
    shape = (1, 3, h, w) if card.input.layout == "nchw" else (1, h, w, 3)
    session = open_part(model, {stored["input"]: np.zeros(shape, card.input.dtype)}, names)

    def run(tensor: Tensor) -> dict[str, Tensor]:
        return dict(zip(names, session({stored["input"]: tensor}), strict=True))

    return Detector(Model(network.name, network, card, sha256=""), run)


@dataclass(frozen=True, eq=False)
class Network:
    """A network and its parts: up to the picture with the patch, from there on, and our detector in it."""

    whole: Session
    head: probe.Probe
    tail: Session
    effect: probe.Effect
    detector: Detector | None

    def output(self, point: Values) -> float:
        """The output for a flat input."""
        return float(probe.first_output(self.whole, {self.head.input: point}).ravel()[0])

    def after(self, picture: Values, point: Values) -> float:
        """The output of the network after the patch for this picture; the target is that of the point."""
        inputs = {self.head.tensor: picture, self.head.input: point}
        return float(probe.first_output(self.tail, inputs).ravel()[0])


def open_network(instance: Instance, manifest: Mapping[str, Any]) -> Network:
    """Open a network and measure the effect of its position inputs over the range of an instance."""
    model = read_proto(instance.network)
    point = instance.point.astype(np.float32)
    head = probe.open_probe(model, len(point))
    outputs = [port.name for port in model.graph.output]
    return Network(
        whole=open_bytes(read_onnx(instance.network)),
        head=head,
        tail=open_part(model, {head.tensor: head.picture(point), head.input: point}, outputs),
        effect=probe.effect_of(head, point, *_sample_positions(instance)),
        detector=detector_inside(model, instance.network, manifest) if manifest else None,
    )


def _sample_positions(instance: Instance) -> tuple[list[int], list[int]]:
    """Integer columns and rows to test: near both ends of the range, and between."""
    positions = []
    height, width = instance.image.shape[:2]
    for ends, extent in ((instance.columns, width), (instance.rows, height)):
        low, high = int(ends[0]), int(ends[1])
        if low == high:  # a fixed position: varied anyway, to measure its effect
            low, high = 0, extent - 1
        between = [low + round((high - low) * share) for share in (0, 0.25, 0.5, 0.75, 1)]
        values = [*range(low, low + 5), *between, *range(high - 4, high + 1)]
        positions.append(sorted({value for value in values if low <= value <= high}))
    return positions[0], positions[1]


def as_described(network: Network, instance: Instance, at: tuple[int, int]) -> tuple[float, float]:
    """The output at a position, and the output with a black square drawn there, as documented."""
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
    """The result of a check: facts and problems."""

    folder: str
    facts: tuple[str, ...]
    findings: tuple[Finding, ...]


@dataclass
class _CheckNotes:
    """The findings so far, and statistics over the instances."""

    findings: list[Finding] = field(default_factory=list)
    networks: dict[str, Network | None] = field(default_factory=dict)
    rules: Counter[tuple[float, bool]] = field(default_factory=Counter)
    clean: list[float] = field(default_factory=list)
    swapped: int = 0  # pictures with blue before red
    errors: list[float] = field(default_factory=list)  # differences between our outputs and those of NumPy
    mismatches: dict[str, tuple[int, int]] = field(default_factory=dict)  # network -> (different, compared)


def check_bench(bench: Benchmark, step: Progress = silent) -> CheckResult:
    """Check a benchmark folder: all problems, and the actual properties of its networks."""
    notes = _CheckNotes(list(folder.file_findings(bench)))
    for row in bench.rows:
        if not row.missing:
            try:
                _check_instance(bench, row, notes)
            except HoldfastError as problem:
                message = str(problem).removeprefix(f"{row.spec}: ")
                notes.findings.append(Finding("unreadable", row.spec_name, message))
        step(1, 0)
    grouped: dict[tuple[str, str], Finding] = {}  # one per kind, if they differ only in location
    for finding in notes.findings:
        key = finding.kind, finding.what if finding.kind in ("position", "wrong range") else ""
        first = grouped.get(key)
        grouped[key] = finding if first is None else replace(first, count=first.count + 1)
    return CheckResult(str(bench.folder), tuple(_facts(bench, notes)), tuple(grouped.values()))


def _check_instance(bench: Benchmark, row: InstanceRow, notes: _CheckNotes) -> None:
    instance = folder.instance_of(bench, row)
    notes.rules[instance.threshold, instance.strict] += 1
    image, predicted, problems = folder.image_and_label(bench, row)
    notes.findings += problems
    notes.findings += [
        Finding(kind, row.spec_name, what)
        for kind, what in _contradictions(bench, instance, image, predicted, notes)
    ]
    if row.network_name not in notes.networks:
        notes.networks[row.network_name] = None  # if it cannot be opened, that is reported once
        notes.networks[row.network_name] = network = open_network(instance, bench.manifest)
        message = ""
        if not instance.free and not network.effect.as_described:
            message = f"a position is no patch at column = first, row = second value, but {network.effect}"
        elif instance.free and any(axis.length for axis in network.effect.axes):
            message = "the patch's content is free, yet a position changes the picture"
        notes.findings += [Finding("position", row.network_name, message)] if message else []
    checked = notes.networks[row.network_name]
    if checked is None:
        return
    notes.findings += _ranges(row, checked, instance)
    if image is None or image.shape != instance.image.shape:
        image = instance.image
    base = instance.point.astype(np.float32)
    if instance.free:
        base[:-TAIL] = unit(image).ravel()
    clean = checked.after(probe.clean_picture(checked.head, base, *_sample_positions(instance)), base)
    notes.clean.append(clean)
    if abs(clean - 1) > CLOSE:
        expected = "expected 1: the target is what the model predicts"
        message = f"the output without a patch is {clean:.6f}; {expected}"
        notes.findings.append(Finding("clean output not 1", row.spec_name, message))
    _compare(bench, row, checked, instance, notes)


def _contradictions(
    bench: Benchmark, instance: Instance, image: Image | None, predicted: Target | None, notes: _CheckNotes
) -> Iterator[tuple[str, str]]:
    """Yield contradictions between specification, image, label and manifest: kind and description."""
    own = instance.image
    if image is not None and image.shape != own.shape:
        sizes = f"{own.shape[1]}×{own.shape[0]}, the image {image.shape[1]}×{image.shape[0]}"
        yield "other picture", f"its picture is {sizes}"
    elif image is not None:
        distance, swapped = _difference(instance, image), _difference(instance, image[:, :, ::-1])
        notes.swapped += swapped < distance  # not a problem: the network was trained on BGR
        if (gap := min(distance, swapped)) > 0:
            yield "other picture", f"its picture differs from the image by up to {gap} of 255"
    if predicted is not None:
        distance = np.abs(np.array(predicted.box) - np.array(instance.target.box)).max()
        if distance > 1e-6 or predicted.label != instance.target.label:
            yield "other target", f"its target is {instance.target}, the predicted label {predicted}"
    if instance.threshold != THRESHOLD:
        yield "other threshold", f"its threshold is {instance.threshold:g}; expected {THRESHOLD}"
    if bench.manifest and bench.manifest["rule"]["strict"] != instance.strict:
        word = "strict" if instance.strict else "not strict"
        yield "other rule", f"it is {word}; the manifest says otherwise"


def _difference(instance: Instance, image: Image) -> int:
    """Largest difference from the image of the specification, of 255, outside a free patch."""
    distance = np.abs(image.astype(np.int16) - instance.image)
    if instance.free:
        (x, _), (y, _), (w, h) = instance.columns, instance.rows, instance.patch
        distance[int(y) : int(y) + h, int(x) : int(x) + w] = 0
    return int(distance.max())


def _ranges(row: InstanceRow, network: Network, instance: Instance) -> Iterator[Finding]:
    """Yield a finding unless the range contains exactly the positions with the patch inside the picture."""
    height, width = instance.image.shape[:2]
    if instance.free:
        (x, x2), (y, y2), (w, h) = instance.columns, instance.rows, instance.patch
        if not (x == x2 and y == y2 and 0 <= x <= width - w and 0 <= y <= height - h):
            got = f"columns {x:g} to {x2:g}, rows {y:g} to {y2:g}"
            message = f"expected one place inside the picture, got {got}"
            yield Finding("wrong range", row.spec_name, message)
        return
    side = network.effect.patch
    axes = (("column", instance.columns, width, side.width), ("row", instance.rows, height, side.height))
    for word, (low, high), extent, length in axes:
        last = extent - length
        if (low, high) == (0, last):
            continue
        reason = f"{word} {last} is never tried" if high < last else "beyond it the patch is cut off"
        if low != 0:
            reason = f"it should begin at 0{'' if high == last else '; ' + reason}"
        fits = f"a {side.width}×{side.height} patch fits at 0 to {last}"
        yield Finding("wrong range", row.network_name, f"{word} {low:g} to {high:g}; {fits}: {reason}")


def _compare(
    bench: Benchmark, row: InstanceRow, network: Network, instance: Instance, notes: _CheckNotes
) -> None:
    """Compare the network's outputs at some positions with independently computed ones."""
    (x0, x1), (y0, y1) = instance.columns, instance.rows
    points = [(x0, y0), (x1, y0), (x0, y1), (x1, y1), ((x0 + x1) // 2, (y0 + y1) // 2)]
    rng = generator(0, "patchbench check", row.spec_name)
    points += [(int(rng.uniform(x0, x1 + 1)), int(rng.uniform(y0, y1 + 1))) for _ in range(5)]
    positions = list(dict.fromkeys((int(x), int(y)) for x, y in points))
    if network.detector is None:
        pairs = [as_described(network, instance, at) for at in positions]
        different, compared = notes.mismatches.get(row.network_name, (0, 0))
        count = sum(abs(a - b) > CLOSE for a, b in pairs)
        notes.mismatches[row.network_name] = different + count, compared + len(pairs)
        if count and network.effect.as_described:
            message = f"{count} of {len(pairs)} outputs differ from those of a black square laid by numpy"
            notes.findings.append(Finding("numpy disagrees", row.spec_name, message))
        return
    path = bench.folder / "patches" / f"{Path(row.network_name).stem}.png"
    patch = None if instance.free else read_patch(path)
    for at in positions:
        image = instance.image
        if patch is not None:
            image = apply(image, replace(patch, where=Position(*at)))
        expected = network.detector.output(network.detector.tensor(image)[np.newaxis], instance.target)
        actual = network.output(probe.moved(instance.point.astype(np.float32), *at))
        notes.errors.append(abs(expected - actual))
        if not notes.errors[-1] <= CLOSE:
            message = f"at column {at[0]}, row {at[1]} the network says {actual:.6f}, numpy {expected:.6f}"
            notes.findings.append(Finding("numpy disagrees", row.spec_name, message))


def _facts(bench: Benchmark, notes: _CheckNotes) -> list[str]:
    origin = "made by holdfast" if bench.manifest else "no manifest: published elsewhere"
    facts = [f"{len(bench.rows)} instances, {len(notes.networks)} networks, {origin}"]
    for name, network in notes.networks.items():
        if network is not None:
            free = bench.manifest.get("content") == "free"
            effect = "nothing, as it should: the patch's content is free" if free else network.effect
            facts.append(f"{name}: what a position does: {effect}")
    for (threshold, strict), count in notes.rules.items():
        facts.append(f"unsafe if Y_0 {'<' if strict else '<='} {threshold:g}: {count} specifications")
    if notes.clean:
        facts.append(f"output without a patch: {min(notes.clean):.6f} to {max(notes.clean):.6f}")
    if notes.errors:
        largest = f"largest difference {max(notes.errors):.1e}"
        facts.append(f"numpy: {len(notes.errors)} outputs recomputed, {largest}")
    for name, (different, compared) in notes.mismatches.items():
        differing = f"{different} of {compared} outputs"
        facts.append(f"{name}: {differing} differ from those of a black square laid by numpy")
    if notes.swapped:
        facts.append(f"{notes.swapped} pictures are in BGR order: blue is the first channel")
    limits = sorted({row.seconds for row in bench.rows})
    if limits != [SECONDS]:
        listed = ", ".join(f"{limit:g}" for limit in limits)
        facts.append(f"limits of {listed} s; the benchmark's text says {SECONDS} s")
    unused = folder.unused_images(bench)
    if unused:
        facts.append(f"{len(unused)} images without an instance, first {unused[0]}")
    return facts


def as_dict(result: CheckResult) -> Mapping[str, Any]:
    """The result as JSON values."""
    findings = [vars(finding) for finding in result.findings]
    return {"folder": result.folder, "well": not findings, "facts": list(result.facts), "findings": findings}

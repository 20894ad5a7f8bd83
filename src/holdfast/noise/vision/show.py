"""What noise options do to one image: before, after, and the amplified difference, as a page."""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from holdfast.core import fingerprint
from holdfast.core.dataset import Entry
from holdfast.core.errors import HoldfastError, InputError, one_line
from holdfast.core.model import Input, Model
from holdfast.core.pipeline import Pipeline, open_preparation, pipeline_of, place
from holdfast.core.registry import lookup
from holdfast.core.types import Image, Label, Sample, Size
from holdfast.engine.store import write_atomic
from holdfast.graph.rewrite.follow.walk import unchanged
from holdfast.noise.suite import NoiseSelection
from holdfast.noise.vision.choose import fit_no_effect
from holdfast.report.html import document, picture_uri, write_page
from holdfast.report.parts import Document, Figure, Section, fragment, scroll
from holdfast.report.tables import Cell, Column, Table, to_html
from holdfast.stages.deployed import Calibration, DeployedInference, rewritten
from holdfast.stages.families import NoiseOption, families, options

WIDEST = 420  # pixels of one image on the page
_LEAD = (
    "The image before and after each noise option, and the difference |after − before|. Differences are "
    "amplified by the factor below each image to make them visible."
)
# Convolutions, pools and what follows them: operators whose outputs are feature maps.
MAPS = ("Conv", "MaxPool", "AveragePool", "Relu", "LeakyRelu", "Concat", "Add", "Clip")
PLAIN = Input(Size(224, 224), policy="crop", short_side=256)  # without a model


@dataclass(frozen=True, eq=False)
class NoiseExample:
    """One pre-processing option on one image: before, after, and the difference."""

    option: NoiseOption
    original: Image
    noised: Image
    difference: Image  # |noised − original| · factor, clipped
    largest: tuple[int, ...]  # of R, G, B
    mean: float
    factor: float = 1.0  # by which the difference is amplified

    @property
    def same(self) -> bool:
        """Whether the option changes no pixel."""
        return not any(self.largest)


Failure: TypeAlias = tuple[NoiseOption, str]  # an option that cannot be shown, and why
Example: TypeAlias = NoiseExample | Failure


def noise_examples(data: bytes, model: Model | None, selection: NoiseSelection) -> Iterator[Example]:
    """Each pre-processing option on the image, at its own size (resizes: at the network's), or why not."""
    card = model.card if model else None
    clean = Pipeline(decode=card.decode, resize=card.resize) if card else Pipeline()
    fed = card.input if card else PLAIN
    original = stages_of(clean, fed, data)
    preprocessing = [family for family in families() if family.where == "pre-processing"]
    for option in (o for family in preprocessing for o in options(family) if selection.takes(o)):
        pipeline = option.noise(clean)
        if pipeline == clean:
            continue
        if useless := option.missing or fit_no_effect(pipeline, clean, fed):
            yield option, useless
            continue
        try:
            noised = stages_of(pipeline, fed, data)
        except HoldfastError as problem:
            yield option, str(problem)
            continue
        at = "resize" if option.family == "resize" else "colour"
        yield compare_images(option, original[at], noised[at])


def stages_of(pipeline: Pipeline, fed: Input, data: bytes) -> dict[str, Image]:
    """The image after the colour stage, at its own size, and after the resize stage."""
    pixels: Image = lookup("colour", pipeline.colour)(lookup("decode", pipeline.decode)(data))
    small, _ = place(pixels, lookup("fit", pipeline.fit)(fed), lookup("resize", pipeline.resize))
    return {"colour": pixels, "resize": small}


def compare_images(option: NoiseOption, original: Image, noised: Image) -> NoiseExample:
    """Both images and their difference, amplified so that all but its largest 0.5% are at most 255."""
    if original.shape != noised.shape:
        raise InputError(f"{option.label}: expected an image of {original.shape}, got {noised.shape}")
    difference = np.abs(noised.astype(np.int16) - original.astype(np.int16))
    largest = tuple(map(int, difference.max(axis=(0, 1))))
    factor = 255.0 / (float(np.percentile(difference, 99.5)) or max(1, *largest))
    amplified = (difference * factor).round().clip(0, 255).astype(np.uint8)
    return NoiseExample(option, original, noised, amplified, largest, float(difference.mean()), factor)


@dataclass(frozen=True, eq=False)
class Feature:
    """A feature map of the network before and after a rewrite of its graph: mean |value| over channels."""

    label: str
    tensor: str
    original: NDArray[np.float32]  # (h, w)
    noised: NDArray[np.float32]  # (h', w'): another size if pools round differently
    difference: NDArray[np.float32]  # (h, w) of the common part
    relative: float  # mean |difference| / mean |value|

    @property
    def change(self) -> str:
        """How much it changes, in words."""
        return f"mean difference {100 * self.relative:.1f}% of the mean value"


def feature(before: bytes, after: bytes, label: str, tensor: Any) -> Feature | None:
    """The deepest feature map of both graphs that differs, or else the deepest; None if they share none."""
    import onnx

    nodes = [onnx.load_from_string(graph).graph.node for graph in (before, after)]
    maps = [[node.output[0] for node in each if node.op_type in MAPS] for each in nodes]
    same = None
    for name in reversed([name for name in maps[0] if name in maps[1]]):
        first, second = _run(before, name, tensor), _run(after, name, tensor)
        if first.ndim == second.ndim == 4 and min(first.shape[2:]) >= 6 and min(second.shape[2:]) >= 6:
            map_pair = _feature(label, name, first[0], second[0])
            if map_pair.relative or first.shape != second.shape:
                return map_pair
            same = same or map_pair  # an output of a branch that the rewrite does not reach
    return same


def _feature(label: str, name: str, first: Any, second: Any) -> Feature:
    high, wide = min(first.shape[1], second.shape[1]), min(first.shape[2], second.shape[2])
    difference = np.abs(first[:, :high, :wide] - second[:, :high, :wide]).mean(axis=0)
    relative = float(difference.mean()) / (float(np.abs(first).mean()) or 1.0)
    before, after = (np.abs(side).mean(axis=0).astype(np.float32) for side in (first, second))
    return Feature(label, name, before, after, difference.astype(np.float32), relative)


def _run(graph: bytes, name: str, tensor: Any) -> Any:
    """The value of one tensor inside the graph."""
    import onnx

    from holdfast.graph.session import open_session

    model = onnx.load_from_string(graph)
    del model.graph.output[:]
    model.graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
    session = open_session(model.SerializeToString())
    return np.asarray(session.run([name], {session.get_inputs()[0].name: tensor})[0], np.float32)


@dataclass(frozen=True)
class SingleImage:
    """The image itself as the only entry of a dataset, to calibrate on when there is no other."""

    name: str
    data: bytes

    def key(self) -> str:
        """The hash of its bytes."""
        return fingerprint.of_bytes(self.data)

    def load(self) -> Sample:
        """Its bytes, with a placeholder label."""
        return Sample(self.name, self.data, Label(0))


def features(
    model: Model, data: bytes, selection: NoiseSelection, images: Sequence[Entry], folder: Path | None = None
) -> Iterator[Feature | Failure]:
    """The deepest feature map before and after each rewrite, or why not; `folder` has a suite's graphs."""
    clean = pipeline_of(model.card)
    tensor = open_preparation(clean, model)(data).tensor
    calibration = Calibration(tuple(images) or (SingleImage("picture", data),), clean)
    rewriting = [family for family in families() if "rewrite" in family.kinds]
    for option in (o for family in rewriting for o in options(family) if selection.takes(o)):
        if option.missing or model.card.task not in option.tasks:
            continue
        infer = option.noise(clean).infer
        names = infer.rewrites if isinstance(infer, DeployedInference) else ()
        try:
            graph, changed, how = _graph(model, DeployedInference(names, "onnxruntime", calibration, folder))
            example = feature(model.read(), graph, option.label, tensor) if changed else None
        except HoldfastError as problem:
            yield option, one_line(problem)
            continue
        if example is not None:
            yield example
        elif changed:
            yield option, "the two graphs have no feature map of the same name"
        else:
            yield option, how or unchanged(model.read(), option.family)


def _graph(model: Model, infer: DeployedInference) -> tuple[bytes, bool, str]:
    """The rewritten graph, whether anything changed in it, and how."""
    if infer.folder is not None and infer.rewrites:
        built = infer.built(model)
        return built.path.read_bytes(), bool(built.changed), "; ".join(built.how)
    rewrite = rewritten(model, infer.rewrites, infer.calibration)
    return rewrite.model.SerializeToString(), bool(rewrite.changed), rewrite.how


def image_section(
    examples: Sequence[Example], features: Sequence[Feature] = (), name: str = "", limit: int = 60
) -> Section:
    """A row of three images for every option that changes a pixel; a note for the others."""
    shown = [example for example in examples if isinstance(example, NoiseExample)]
    same = [example.option.label for example in shown if example.same]
    failed = [f"{failure[0].label}: {failure[1]}" for failure in examples if isinstance(failure, tuple)]
    rows = [*map(_row, [example for example in shown if not example.same][:limit]), *map(_row, features)]
    note = "; ".join([f"Identical image: {', '.join(same)}"] * bool(same) + failed)
    body = fragment("noise_pictures.html", rows=rows)
    title = f"{name}: effect of each option" if name else "Effect of each option"
    return Section("pictures", "Noise on an image", (Figure(title, body, note, wide=True),), _LEAD)


def examples_table(examples: Sequence[NoiseExample | Feature | Failure]) -> Table:
    """How much every option changes the image, in numbers."""
    rows: list[list[Cell]] = []
    for one in examples:
        if isinstance(one, NoiseExample):
            rows.append([one.option.label, *one.largest, one.mean, "identical image" if one.same else ""])
        elif isinstance(one, Feature):
            text = f"feature map {one.tensor}: {one.change}"
            rows.append([one.label, None, None, None, None, text])
        else:
            rows.append([one[0].label, None, None, None, None, one[1]])
    columns: list[Column | str] = ["noise option", "largest R", "largest G", "largest B"]
    return Table([*columns, Column("mean", 2), "notes"], rows, "Difference of the image in levels (0 to 255)")


def write(
    examples: Sequence[Example], maps: Sequence[Feature | Failure], name: str, out: Path, command: str
) -> Path:
    """Write the page, whole or not at all, and return its path."""
    shown = [example for example in examples if isinstance(example, NoiseExample)]
    differ = sum(not example.same for example in shown)
    verdict = f"{differ} of {len(shown)} options change this image."
    if differ:
        worst = max(shown, key=lambda example: example.mean)
        verdict += f" Largest mean difference: {worst.option.label}, {worst.mean:.2f} of 255 levels."
        verdict += " Next: measure the points lost with holdfast noise MODEL DATA."
    table = examples_table([*examples, *maps])
    body = scroll(to_html(Table(table.columns, table.rows)), "In numbers")
    numbers = Section("numbers", "In numbers", (Figure("", body, wide=True),), f"{table.caption}.")
    page = Document(
        title=f"Noise on {name}",
        subject=("System noise", name),
        facts=(("options", str(len(shown))), ("options that change a pixel", str(differ))),
        verdict=verdict,
        command=command,
        sections=(image_section(examples, [m for m in maps if isinstance(m, Feature)]), numbers),
        kind="system noise",
    )
    return write_page(document(page), out, "noise.html")


def _row(example: NoiseExample | Feature) -> dict[str, object]:
    """Label, note and images of a row; feature maps are drawn in grey."""
    images: dict[str, Any] = {"before": example.original, "after": example.noised}
    if isinstance(example, NoiseExample):
        label, (r, g, b) = example.option.label, example.largest
        note = f"largest difference R {r}, G {g}, B {b} of 255; mean {example.mean:.2f}"
        images[f"difference × {example.factor:.3g}"] = example.difference
        pictures = [(name, *image_uri(image)) for name, image in images.items()]
    else:
        label, shapes = example.label, (example.original.shape, example.noised.shape)
        sizes = ", then ".join(dict.fromkeys(f"{w}×{h}" for h, w in shapes))
        note = f"feature map {example.tensor} ({sizes}); {example.change}"
        top = [float(values.max()) or 1.0 for values in (example.original, example.difference)]
        images[f"difference × {top[0] / top[1]:.3g}"] = example.difference
        pictures = [(name, *image_uri(_grey_image(values), lossless=True)) for name, values in images.items()]
    return {"label": label, "note": note, "pictures": pictures}


def _grey_image(values: NDArray[np.float32]) -> Image:
    """A map (h, w) as an image, its largest value white, each value a block of several pixels."""
    top = float(values.max()) or 1.0
    grey = (values * (255.0 / top)).clip(0, 255).astype(np.uint8)
    times = max(1, 208 // max(grey.shape))
    return np.repeat(np.repeat(grey, times, axis=0), times, axis=1)[:, :, np.newaxis].repeat(3, axis=2)


def image_uri(image: Image, lossless: bool = False) -> tuple[str, int, int]:
    """The image as a data URI, at most `WIDEST` pixels wide, with its width and height."""
    from PIL import Image as Pillow

    picture = Pillow.fromarray(image)
    if picture.width > WIDEST:
        height = max(1, round(picture.height * WIDEST / picture.width))
        picture = picture.resize((WIDEST, height), Pillow.Resampling.BOX)
    if lossless:
        return picture_uri(picture, "PNG", optimize=True), *picture.size
    return picture_uri(picture, "JPEG", quality=80, subsampling=0), *picture.size


def save_images(examples: Sequence[Example], folder: Path) -> None:
    """Write the images of every option as PNG files."""
    from PIL import Image as Pillow

    for example in (example for example in examples if isinstance(example, NoiseExample)):
        name = example.option.label.replace("=", "-")
        for what in ("original", "noised", "difference"):
            out = io.BytesIO()
            Pillow.fromarray(getattr(example, what)).save(out, "PNG")
            write_atomic(folder / f"{name}-{what}.png", out.getvalue(), durable=False)

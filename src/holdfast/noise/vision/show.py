"""What a noise does to one picture: before, after, and the difference stretched to 0 … 255, as a page."""

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
from holdfast.core.frame import place
from holdfast.core.model import Input, Model
from holdfast.core.pipeline import Pipeline, open_preparation, pipeline_of
from holdfast.core.registry import lookup
from holdfast.core.types import Image, Label, Sample, Size
from holdfast.engine.store import write_atomic
from holdfast.graph.rewrite.follow.walk import unchanged
from holdfast.noise.suite import NoiseSelection
from holdfast.noise.vision.choose import no_fit
from holdfast.report.html import document, picture_uri, write_page
from holdfast.report.parts import Document, Figure, Section, fragment, scroll
from holdfast.report.tables import Cell, Column, Table, to_html
from holdfast.stages.deployed import Calibration, DeployedInference, rewritten
from holdfast.stages.families import NoiseOption, families, options

WIDEST = 420  # pixels of one picture on the page
_LEAD = (
    "The same picture before and after, and |after − before| with each channel stretched to 0 … 255, so that "
    "one level of difference shows as well as fifty."
)
# Convolutions, pools and what follows them: operators whose outputs are feature maps.
MAPS = ("Conv", "MaxPool", "AveragePool", "Relu", "LeakyRelu", "Concat", "Add", "Clip")
PLAIN = Input(Size(224, 224), policy="crop", short_side=256)  # when no model says otherwise


@dataclass(frozen=True, eq=False)
class Shown:
    """One pre-processing option on one picture: both pictures, and how far they are apart."""

    option: NoiseOption
    original: Image
    noised: Image
    difference: Image  # |noised − original| of each channel, stretched so that its largest value is 255
    largest: tuple[int, ...]  # of R, G, B
    mean: float

    @property
    def same(self) -> bool:
        """Whether the option changes no pixel."""
        return not any(self.largest)


Failure: TypeAlias = tuple[NoiseOption, str]  # an option that cannot be shown, and why


def shown(data: bytes, model: Model | None, selection: NoiseSelection) -> Iterator[Shown | Failure]:
    """Each pre-processing option on the picture, or the option with the reason why it cannot be shown.

    Decoders and colours are compared at the picture's own size, resizes at the network's.
    """
    card = model.card if model else None
    clean = Pipeline(decode=card.decode, resize=card.resize) if card else Pipeline()
    fed = card.input if card else PLAIN
    original = stages_of(clean, fed, data)
    before = [family for family in families() if family.where == "pre-processing"]
    for option in (o for family in before for o in options(family) if selection.takes(o)):
        pipeline = option.noise(clean)
        if pipeline == clean:
            continue
        if useless := option.missing or no_fit(pipeline, clean, fed):
            yield option, useless
            continue
        try:
            noised = stages_of(pipeline, fed, data)
        except HoldfastError as problem:
            yield option, str(problem)
            continue
        at = "resize" if option.family == "resize" else "colour"
        yield compared(option, original[at], noised[at])


def stages_of(pipeline: Pipeline, fed: Input, data: bytes) -> dict[str, Image]:
    """The picture after colour, at its own size, and after resize, as the network gets it."""
    pixels: Image = lookup("colour", pipeline.colour)(lookup("decode", pipeline.decode)(data))
    small, _ = place(pixels, lookup("fit", pipeline.fit)(fed), lookup("resize", pipeline.resize))
    return {"colour": pixels, "resize": small}


def compared(option: NoiseOption, original: Image, noised: Image) -> Shown:
    """Both pictures and their difference, each channel stretched to 0 … 255."""
    if original.shape != noised.shape:
        raise InputError(f"{option.label}: expected a picture of {original.shape}, got {noised.shape}")
    gap = np.abs(noised.astype(np.int16) - original.astype(np.int16))
    most = gap.max(axis=(0, 1))
    stretched = (gap * (255.0 / np.maximum(most, 1))).round().astype(np.uint8)
    return Shown(
        option, original, noised, difference=stretched, largest=tuple(map(int, most)), mean=float(gap.mean())
    )


@dataclass(frozen=True, eq=False)
class Feature:
    """A feature map of the network before and after a rewrite of its graph: mean |value| over channels."""

    label: str
    tensor: str
    original: NDArray[np.float32]  # (h, w)
    noised: NDArray[np.float32]  # (h', w'): another size if pools round otherwise
    difference: NDArray[np.float32]  # (h, w) of what both have
    relative: float  # mean |difference| in parts of the mean |value|


def feature(before: bytes, after: bytes, label: str, tensor: Any) -> Feature | None:
    """The deepest feature map of both graphs that differs, or else the deepest; None if they share none."""
    import onnx

    nodes = [onnx.load_from_string(graph).graph.node for graph in (before, after)]
    maps = [[node.output[0] for node in each if node.op_type in MAPS] for each in nodes]
    same = None
    for name in reversed([name for name in maps[0] if name in maps[1]]):
        first, second = _run(before, name, tensor), _run(after, name, tensor)
        if first.ndim == second.ndim == 4 and min(first.shape[2:]) >= 6 and min(second.shape[2:]) >= 6:
            found = _feature(label, name, first[0], second[0])
            if found.relative or first.shape != second.shape:
                return found
            same = same or found  # an output of a branch that the rewrite does not reach
    return same


def _feature(label: str, name: str, first: Any, second: Any) -> Feature:
    high, wide = min(first.shape[1], second.shape[1]), min(first.shape[2], second.shape[2])
    gap = np.abs(first[:, :high, :wide] - second[:, :high, :wide]).mean(axis=0)
    scale = float(np.abs(first).mean()) or 1.0
    before, after = (np.abs(side).mean(axis=0).astype(np.float32) for side in (first, second))
    return Feature(
        label, name, before, after, difference=gap.astype(np.float32), relative=float(gap.mean()) / scale
    )


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
class OnePicture:
    """The picture itself as the only entry of a data set: to calibrate on when nothing else is at hand."""

    name: str
    data: bytes

    def key(self) -> str:
        """The hash of its bytes."""
        return fingerprint.of_bytes(self.data)

    def load(self) -> Sample:
        """Its bytes; nothing is known of what it shows."""
        return Sample(self.name, self.data, Label(0))


def features(
    model: Model,
    data: bytes,
    selection: NoiseSelection,
    images: tuple[Entry, ...],
    folder: Path | None = None,
) -> Iterator[Feature | Failure]:
    """The deepest feature map before and after every rewrite of the graph that changes it, or why not.

    Rewritten graphs that a suite has built in `folder` are not built again.
    """
    clean = pipeline_of(model.card)
    tensor = open_preparation(clean, model)(data).tensor
    calibration = Calibration(images or (OnePicture("picture", data),), clean)
    rewriting = [family for family in families() if "rewrite" in family.kinds]
    for option in (o for family in rewriting for o in options(family) if selection.takes(o)):
        if option.missing or model.card.task not in option.tasks:
            continue
        infer = option.noise(clean).infer
        names = infer.rewrites if isinstance(infer, DeployedInference) else ()
        try:
            graph, changed, how = _graph(model, DeployedInference(names, "onnxruntime", calibration, folder))
            found = feature(model.read(), graph, option.label, tensor) if changed else None
        except HoldfastError as problem:
            yield option, one_line(problem)
            continue
        if found is not None:
            yield found
        elif changed:
            yield option, "no feature map has the same name before and after"
        else:
            yield option, how or unchanged(model.read(), option.family)


def _graph(model: Model, infer: DeployedInference) -> tuple[bytes, bool, str]:
    """The rewritten graph, whether anything changed in it, and how."""
    if infer.folder is not None and infer.rewrites:
        built = infer.built(model)
        return built.path.read_bytes(), bool(built.changed), "; ".join(built.how)
    made = rewritten(model, infer.rewrites, infer.calibration)
    return made.model.SerializeToString(), bool(made.changed), made.how


def picture_section(
    made: Sequence[Shown | Failure], features: Sequence[Feature] = (), name: str = "", limit: int = 60
) -> Section:
    """A row of three pictures for every option that changes a pixel; the others in words."""
    drawn = [one for one in made if isinstance(one, Shown) and not one.same][:limit]
    same = [one.option.label for one in made if isinstance(one, Shown) and one.same]
    failed = [f"{one[0].label}: {one[1]}" for one in made if isinstance(one, tuple)]
    rows = [*map(_row, drawn), *map(_row, features)]
    note = "; ".join([f"No pixel differs: {', '.join(same)}"] * bool(same) + failed)
    body = fragment("noise_pictures.html", rows=rows)
    title = f"{name}: what each noise changes" if name else "What each noise changes"
    return Section("pictures", "See it", (Figure(title, body, note, wide=True),), _LEAD)


def shown_table(found: Sequence[Shown | Feature | Failure]) -> Table:
    """How far every option moves the picture, in numbers."""
    rows: list[list[Cell]] = []
    for one in found:
        if isinstance(one, Shown):
            rows.append([one.option.label, *one.largest, one.mean, "no pixel differs" if one.same else ""])
        elif isinstance(one, Feature):
            said = f"feature map {one.tensor}: mean difference {100 * one.relative:.1f} % of the mean value"
            rows.append([one.label, None, None, None, None, said])
        else:
            rows.append([one[0].label, None, None, None, None, one[1]])
    columns: list[Column | str] = ["noise", "largest R", "G", "B", Column("mean", 2), "what is to be said"]
    return Table(columns, rows, "Levels (of 255) by which the picture differs")


def write(
    made: Sequence[Shown | Failure], maps: Sequence[Feature | Failure], name: str, out: Path, command: str
) -> Path:
    """Write the page, whole or not at all, and return its path."""
    seen = [one for one in made if isinstance(one, Shown)]
    differ = sum(not one.same for one in seen)
    verdict = f"{differ} of {len(seen)} options change this picture."
    if differ:
        worst = max(seen, key=lambda one: one.mean)
        verdict += f" The largest on average: {worst.option.label}, {worst.mean:.2f} levels."
    table = scroll(to_html(shown_table([*made, *maps])), "In numbers")
    numbers = Section("numbers", "In numbers", (Figure("", table, wide=True),))
    features = [one for one in maps if isinstance(one, Feature)]
    page = Document(
        title=f"Noise on {name}",
        subject=("System noise", name),
        facts=(("options", str(len(seen))), ("that change a pixel", str(differ))),
        verdict=verdict,
        command=command,
        sections=(picture_section(made, features), numbers),
        kind="system noise",
    )
    return write_page(document(page), out, "noise.html")


def _row(one: Shown | Feature) -> dict[str, object]:
    """Label, note and pictures of a row; feature maps are drawn in grey."""
    images: dict[str, Any] = {"before": one.original, "after": one.noised, "difference": one.difference}
    if isinstance(one, Shown):
        label, (r, g, b) = one.option.label, one.largest
        note = f"largest difference R {r}, G {g}, B {b} of 255; mean {one.mean:.2f}"
        pictures = [(name, *embedded(image)) for name, image in images.items()]
    else:
        label, shapes = one.label, (one.original.shape, one.noised.shape)
        sizes = ", then ".join(dict.fromkeys(f"{w}×{h}" for h, w in shapes))
        difference = f"mean difference {100 * one.relative:.1f} % of the mean value"
        note = f"feature map {one.tensor} ({sizes}); {difference}"
        pictures = [(name, *embedded(_grey(values), lossless=True)) for name, values in images.items()]
    return {"label": label, "note": note, "pictures": pictures}


def _grey(values: NDArray[np.float32]) -> Image:
    """A map (h, w) as a picture, its largest value white, each value a block of several pixels."""
    top = float(values.max()) or 1.0
    grey = (values * (255.0 / top)).clip(0, 255).astype(np.uint8)
    times = max(1, 208 // max(grey.shape))
    return np.repeat(np.repeat(grey, times, axis=0), times, axis=1)[:, :, np.newaxis].repeat(3, axis=2)


def embedded(image: Image, lossless: bool = False) -> tuple[str, int, int]:
    """The picture as a data URI, at most `WIDEST` pixels wide, with its width and height."""
    from PIL import Image as Pillow

    picture = Pillow.fromarray(image)
    if picture.width > WIDEST:
        height = max(1, round(picture.height * WIDEST / picture.width))
        picture = picture.resize((WIDEST, height), Pillow.Resampling.BOX)
    if lossless:
        return picture_uri(picture, "PNG", optimize=True), *picture.size
    return picture_uri(picture, "JPEG", quality=80, subsampling=0), *picture.size


def save_pictures(made: Sequence[Shown | Failure], folder: Path) -> None:
    """Write the pictures of every option as PNG files."""
    from PIL import Image as Pillow

    for one in [one for one in made if isinstance(one, Shown)]:
        name = one.option.label.replace("=", "-")
        for what in ("original", "noised", "difference"):
            out = io.BytesIO()
            Pillow.fromarray(getattr(one, what)).save(out, "PNG")
            write_atomic(folder / f"{name}-{what}.png", out.getvalue(), durable=False)

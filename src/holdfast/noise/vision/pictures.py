"""Pictures of noise for the page: before, after, and the difference, side by side."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import OutputError
from holdfast.core.types import Image
from holdfast.engine.store import write_atomic
from holdfast.noise.vision.show import Feature, Shown
from holdfast.report.html import document
from holdfast.report.parts import Document, Figure, Section, fragment, scroll
from holdfast.report.tables import Cell, Column, Table, to_html
from holdfast.stages.families import Option

WIDEST = 420  # pixels of one picture on the page
_LEAD = (
    "The same picture before and after, and |after − before| with each channel stretched to 0 … 255, so that "
    "one level of difference shows as well as fifty."
)


def picture_section(
    made: Sequence[Shown | tuple[Option, str]], features: Sequence[Feature] = (), name: str = "",
    limit: int = 60,
) -> Section:  # fmt: skip
    """A row of three pictures for every option that changes a pixel; the others in words."""
    drawn = [one for one in made if isinstance(one, Shown) and not one.same][:limit]
    same = [one.option.label for one in made if isinstance(one, Shown) and one.same]
    failed = [f"{one[0].label}: {one[1]}" for one in made if isinstance(one, tuple)]
    rows = [_row(one) for one in drawn] + [_feature(one) for one in features]
    note = "; ".join([f"No pixel differs: {', '.join(same)}"] * bool(same) + failed)
    body = fragment("noise_pictures.html", rows=rows)
    title = f"{name}: what each noise changes" if name else "What each noise changes"
    return Section("pictures", "See it", (Figure(title, body, note, wide=True),), _LEAD)


def shown_table(
    made: Sequence[Shown | tuple[Option, str]], maps: Sequence[Feature | tuple[Option, str]] = ()
) -> Table:
    """How far every option moves the picture, in numbers."""
    rows: list[list[Cell]] = []
    for one in (*made, *maps):
        if isinstance(one, tuple):
            rows.append([one[0].label, None, None, None, None, one[1]])
        elif isinstance(one, Feature):
            said = f"feature map {one.tensor}: mean difference {100 * one.relative:.1f} % of the mean value"
            rows.append([one.label, None, None, None, None, said])
        else:
            rows.append([one.option.label, *one.largest, one.mean, "no pixel differs" if one.same else ""])
    columns: list[Column | str] = ["noise", "largest R", "G", "B", Column("mean", 2), "what is to be said"]
    return Table(columns, rows, "Levels (of 255) by which the picture differs")


def write(
    made: Sequence[Shown | tuple[Option, str]], maps: Sequence[Feature | tuple[Option, str]], name: str,
    out: Path, command: str,
) -> Path:  # fmt: skip
    """The path of the written page, there whole or not at all; OutputError if it cannot be written there."""
    if out.is_dir():
        raise OutputError(f"{out}: is a folder; give the name of the page, such as {out / 'noise.html'}")
    seen = [one for one in made if isinstance(one, Shown)]
    differ = sum(not one.same for one in seen)
    worst = max(seen, key=lambda one: one.mean, default=None)
    told = (
        f" The largest on average: {worst.option.label}, {worst.mean:.2f} levels." if differ and worst else ""
    )
    table = to_html(shown_table(made, maps))
    numbers = Section("numbers", "In numbers", (Figure("", scroll(table, "In numbers"), wide=True),))
    features = [one for one in maps if isinstance(one, Feature)]
    page = Document(
        title=f"Noise on {name}",
        subject=("System noise", name),
        facts=(("options", str(len(seen))), ("that change a pixel", str(differ))),
        verdict=f"{differ} of {len(seen)} options change this picture.{told}",
        cards=(),
        minor=(),
        rule="",
        command=command,
        alerts=(),
        sections=(picture_section(made, features), numbers),
        kind="system noise",
    )
    write_atomic(out, document(page).encode())
    return out


def _row(one: Shown) -> dict[str, object]:
    r, g, b = one.largest
    return {
        "label": one.option.label,
        "note": f"largest difference R {r}, G {g}, B {b} of 255; mean {one.mean:.2f}",
        "pictures": [
            ("before", *embedded(one.original)),
            ("after", *embedded(one.noised)),
            ("difference", *embedded(one.difference)),
        ],
    }


def _feature(one: Feature) -> dict[str, object]:
    size = f"{one.original.shape[1]}×{one.original.shape[0]}"
    other = f"{one.noised.shape[1]}×{one.noised.shape[0]}"
    sizes = size if size == other else f"{size}, then {other}"
    return {
        "label": one.label,
        "note": f"feature map {one.tensor} ({sizes}); mean difference {100 * one.relative:.1f} % of the "
        "mean value",
        "pictures": [
            (what, *embedded(_grey(values), lossless=True))
            for what, values in (
                ("before", one.original),
                ("after", one.noised),
                ("difference", one.difference),
            )
        ],
    }


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
    out = io.BytesIO()
    if lossless:
        picture.save(out, "PNG", optimize=True)
    else:
        picture.save(out, "JPEG", quality=80, subsampling=0)
    kind = "png" if lossless else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(out.getvalue()).decode()}", *picture.size

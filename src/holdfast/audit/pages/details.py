"""The details of an audit: the sections of every engine on the same page, from what its parts made."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.report.gallery import gallery
from holdfast.report.parts import Section

if TYPE_CHECKING:
    from holdfast.audit.made import Made
    from holdfast.core.types import Image

SHOWN = "decode=fast-idct decode=ffmpeg resize=opencv-nearest resize=opencv-bilinear colour=nv12"
ORDER = ("staircase", "pictures of noise", "patched images", "maps of the square", "evaluation")
WORST = 900_000  # bytes for the pictures of the worst images


def sections(made: Made, until: float = math.inf) -> list[Section]:
    """The staircase, what noise looks like, patched images, maps of the square, then the evaluation's own.

    After `until` (of time.monotonic) no further ones are made; the last section names those that are missing.
    """
    makers = {
        "staircase": _stairs, "patched images": _attack, "maps of the square": _squares,
        "evaluation": _evaluated, "pictures of noise": _seen,
    }  # fmt: skip
    found: dict[str, list[Section]] = {}
    for name, make in makers.items():
        if time.monotonic() < until:
            found[name] = make(made)
    shown = [one for name in ORDER for one in found.get(name, ())]
    missing = ", ".join(name for name in makers if name not in found)
    lead = f"Skipped on this page: {missing} (time budget reached). `holdfast report` adds them."
    return [*shown, Section("skipped", "Skipped", (), lead)] if missing else shown


def _stairs(made: Made) -> list[Section]:
    from holdfast.noise.vision.sections import staircase_section

    return [staircase_section(made.stairs, made.noise.images)] if made.stairs and made.noise else []


def _seen(made: Made) -> list[Section]:
    """What noise does to a picture and to the features, on the first image that can be read."""
    from holdfast.core.errors import HoldfastError
    from holdfast.noise.vision.choose import Wanted
    from holdfast.noise.vision.pictures import picture_section
    from holdfast.noise.vision.show import Feature, features, shown

    model, prepared = made.plan.plan.model, made.prepared
    if prepared is None:
        return []
    entry = made.plan.plan.dataset.entries[0]
    built = {one.option.label for one in prepared.asked}  # what was too slow to calibrate is not shown
    labels = tuple(label for label in ("ceil=ceil", "precision=int8-minmax") if label in built)
    try:
        picture = entry.load().data
        kept = prepared.calibrated_on, prepared.ground.folder
        maps = list(features(model, picture, Wanted(only=labels), *kept)) if labels else []
        few = list(shown(picture, model, Wanted(only=tuple(SHOWN.split()))))
    except (
        HoldfastError
    ):  # an image that cannot be read, a graph that cannot be rewritten: told in the tables
        return []
    return [picture_section(few, [one for one in maps if isinstance(one, Feature)], entry.name)]


def _attack(made: Made) -> list[Section]:
    from holdfast.attack.page import sections as attack_sections

    return list(attack_sections(made.outcome, _clean(made), 4)) if made.outcome else []


def _squares(made: Made) -> list[Section]:
    from holdfast.audit.squares.page import sections as square_sections

    def picture(name: str) -> bytes | None:
        return entries[name].load().data if name in entries else None

    entries = {entry.name: entry for entry in made.plan.plan.dataset.entries}
    return list(square_sections(made.maps, picture)) if made.maps else []


def _clean(made: Made) -> Callable[[str], Image | None]:
    from holdfast.attack.run import decoded

    return decoded(made.plan.plan)


def _evaluated(made: Made) -> list[Section]:
    from holdfast.evaluate.page import pictures, task_sections, trouble_section

    if made.evaluation is None:
        return []
    parts, worst = task_sections(made.evaluation)
    images = [gallery(worst, pictures(made.evaluation), WORST)] if worst.shots else []
    trouble = trouble_section(made.evaluation)
    return [*parts, *images, *([trouble] if trouble else [])]

"""Survival of a patch: in how many random views of the scene it still hides the targets.

A view changes the clean and the attacked image in the same way. It counts only if the model detects a target
in the clean view, because a target that is lost without the patch was not hidden by it.
"""

from collections.abc import Callable, Sequence

import numpy as np

from holdfast.attack.judge import Judge, found_boxes
from holdfast.attack.shapes import STICKER, outline
from holdfast.attack.types import PatchShape, Sticker
from holdfast.core.patch import Survival
from holdfast.core.registry import lookup
from holdfast.core.types import Boxes, Floats, Image

VIEWS = 8  # random views of each kind
MISPLACED = 0.1  # of the side of a patch, either way along both sides
PLACEMENT, TOGETHER = "placement", "all together"

View = Callable[[np.random.Generator], tuple[Image, Image, Floats]]  # clean, attacked, boxes


def survival(
    judge: Judge, clean: Image, attacked: Image, targets: Boxes, placed: Sequence[Sticker], shape: PatchShape,
    rng: np.random.Generator,
) -> tuple[Survival, ...]:  # fmt: skip
    """The survival under each transform of a sticker, under another placement, and under all together.

    `targets` are the boxes that the model detects in the clean image and not in the attacked one.
    """

    def view(kind: str) -> tuple[Image, Image, Floats]:
        after = attacked
        if kind in (PLACEMENT, TOGETHER):
            after = misplaced(clean, attacked, placed, shape, rng)
        chain = STICKER if kind == TOGETHER else () if kind == PLACEMENT else (kind,)
        return _transformed(clean, after, targets.xyxy, chain, rng)

    rows = []
    for kind in (PLACEMENT, *STICKER, TOGETHER):
        hidden = views = 0
        for _ in range(VIEWS):
            before, after, xyxy = view(kind)
            boxes = Boxes(xyxy, targets.classes)
            seen = found_boxes(judge(before), boxes, judge.rule)
            if seen.any():
                views += 1
                hidden += not (seen & found_boxes(judge(after), boxes, judge.rule)).any()
        rows.append(Survival(kind, hidden, views, 1))
    return tuple(rows)


def misplaced(
    clean: Image, attacked: Image, placed: Sequence[Sticker], shape: PatchShape, rng: np.random.Generator
) -> Image:
    """The clean image with each patch up to MISPLACED of its side (at least one pixel) away, and inside."""
    image = clean.copy()
    for one in placed:
        reach, room = max(1, round(MISPLACED * one.side)), (clean.shape[1], clean.shape[0])
        x, y = (
            int(np.clip(start + rng.integers(-reach, reach, endpoint=True), 0, length - one.side))
            for start, length in zip((one.x, one.y), room, strict=True)
        )
        inside = outline(shape, one.side)
        patch = attacked[one.y : one.y + one.side, one.x : one.x + one.side]
        image[y : y + one.side, x : x + one.side][inside] = patch[inside]
    return image


def total_survival(images: Sequence[Sequence[Survival]]) -> tuple[Survival, ...]:
    """The survival over several images, by transform."""
    return tuple(
        Survival(
            rows[0].transform, *(sum(getattr(r, n) for r in rows) for n in ("hidden", "views", "images"))
        )
        for rows in zip(*filter(None, images), strict=True)
    )


def _transformed(
    clean: Image, attacked: Image, xyxy: Floats, chain: Sequence[str], rng: np.random.Generator
) -> tuple[Image, Image, Floats]:
    """Both images and the boxes through the same random transforms, in uint8."""
    import torch

    from holdfast.attack.gradient.transforms import moved

    pixels = torch.from_numpy(np.stack([clean, attacked]).astype(np.float32))
    for name in chain:
        pixels, matrix = lookup("transform", name)(pixels, rng)
        xyxy = moved(xyxy, matrix)
    before, after = pixels.round().clamp(0, 255).to(torch.uint8).numpy()
    return before, after, xyxy

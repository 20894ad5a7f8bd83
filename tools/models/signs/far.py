"""Pictures for the trials on `far`: its views as files, and signs drawn at the network's own scale."""

from pathlib import Path

from holdfast.core.errors import OutputError
from holdfast.core.types import Image
from holdfast.data.signs.canvas import CLASSES
from holdfast.data.signs.scene import REACH, crop_far, encode, render, stream


def crop_small(seed: int, index: int, side: int = 72) -> tuple[Image, int]:
    """A sign in a view drawn at `side` pixels, so that nothing has to be resized; RGB, and its class.

    At 72 pixels a sign has as many as that network sees of one in `crop_far`.
    """
    rng = stream("small", seed, index)
    size = side * rng.uniform(0.18, 0.36)
    x, y = (side / 2 + rng.uniform(-REACH, REACH, 2) * side).tolist()
    label = int(rng.integers(len(CLASSES)))
    return render(side, size, x, y, label, rng)[0], label


def write_far(folder: Path, seed: int, indices: range) -> int:
    """How many pictures were written into `folder`, one sub folder a class; those that are there stay."""
    try:
        for name in CLASSES:
            (folder / name).mkdir(parents=True, exist_ok=True)
        there = {file.name for file in folder.glob("*/*.jpg")}
        missing = [index for index in indices if f"far-{seed}-{index:06d}.jpg" not in there]
        for index in missing:
            image, label, quality = crop_far(seed, index)
            part = folder / CLASSES[label] / f"far-{seed}-{index:06d}.part"
            part.write_bytes(encode(image, quality))
            part.replace(part.with_suffix(".jpg"))  # a kill leaves no half picture
    except OSError as problem:
        raise OutputError(f"cannot write to {folder}: {problem.strerror}") from problem
    return len(missing)

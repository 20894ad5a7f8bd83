"""The embedded datasets, drawn when they are loaded: `signs`, in the view a task needs, and `far`."""

import difflib
from dataclasses import dataclass
from io import BytesIO

import numpy as np

from holdfast.core.dataset import Dataset
from holdfast.core.errors import DataError, InputError
from holdfast.core.extras import check
from holdfast.core.fingerprint import of
from holdfast.core.limits import limit, too_large
from holdfast.core.model import TASK_NAMES, Task
from holdfast.core.sources import code_of
from holdfast.core.types import Boxes, Label, MaskFile, Sample

DEFAULTS = (0, 1000)  # seed and count
NAMES = ("signs", "far")


def is_embedded(name: str) -> bool:
    """Whether a name, with or without seed and count, is that of an embedded dataset."""
    return name.split(":")[0] in NAMES


def similar_name(name: str) -> str:
    """The name of an embedded dataset that is probably meant: signs:0:2 for sign:0:2; empty if none is."""
    head, sign, numbers = name.partition(":")
    near = difflib.get_close_matches(head, NAMES, n=1, cutoff=0.75)
    return f"{near[0]}{sign}{numbers}" if near else ""


@dataclass(frozen=True)
class EmbeddedEntry:
    """One picture, identified by its parameters: a scene or crop of `signs`, or a small sign of `far`."""

    data: str
    seed: int
    index: int
    task: Task

    @property
    def name(self) -> str:
        """A file name, as if the picture had been written."""
        return f"{self.data}-{self.seed}-{self.index:06d}.jpg"

    def key(self) -> str:
        """The hash of the generator's source and the parameters of the picture, available without drawing."""
        return of([code_of("signs"), self.data, self.seed, self.index, self.task])

    def load(self) -> Sample:
        """The picture as JPEG, with its truth."""
        from PIL import Image as Pillow

        from holdfast.data.signs.scene import crop_classify, crop_far, crop_single, encode, scene

        truth: Boxes | Label | MaskFile
        at = (self.seed, self.index)
        if self.data == "far":
            image, label, quality = crop_far(*at)
            return Sample(self.name, encode(image, quality), Label(label))
        if self.task == "classify":
            image, label = crop_classify(*at)
            truth = Label(label)
        elif self.task == "single":
            image, box, group = crop_single(*at)
            truth = Boxes(box[None] * len(image), np.array([group]))  # the picture is a square
        else:
            rendered, stream = scene(*at), BytesIO()
            image, truth = rendered.image, Boxes(rendered.boxes, rendered.classes)
            if self.task != "detect":
                Pillow.fromarray(rendered.mask).save(stream, "PNG")
                truth = MaskFile(stream.getvalue())
        return Sample(self.name, encode(image), truth)


def embedded_dataset(name: str, task: Task | None, images: int | None = None) -> Dataset:
    """The dataset of `signs` (for any task) or `far`, optionally with `:SEED` or `:SEED:COUNT` appended."""
    check("drawing the embedded scenes", "cv2")
    from holdfast.data.signs.canvas import CLASSES, GROUPS, SEGMENTS

    data, *parts = name.split(":")
    if len(parts) > 2 or any(not part.isdecimal() for part in parts):
        expected = f"{data}, {data}:SEED or {data}:SEED:COUNT with whole numbers"
        raise InputError(f"expected {expected}, got {name!r}")
    seed, count = (*map(int, parts), *DEFAULTS[len(parts) :])
    if count < 1:
        raise InputError(f"{name}: expected a count of 1 or more, got {count}")
    if count > limit("scenes"):
        raise InputError(f"{name}: {too_large('scenes', f'{count:,} scenes')}")
    if data == "far" and task and task != "classify":
        expected = TASK_NAMES[task]
        raise DataError(f"{name}: expected a dataset for {expected}, got one for classification; use `signs`")
    task = task or ("detect" if data == "signs" else "classify")
    classes = {"single": GROUPS, "segment": SEGMENTS}.get(task, CLASSES)
    indices = range(count if images is None else images)
    return Dataset(name, data, task, classes, tuple(EmbeddedEntry(data, seed, i, task) for i in indices))

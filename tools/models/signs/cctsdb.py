"""`signs-single` trained on a CCTSDB folder by the recipe of the shipped model, with the document's split.

The CCTSDB-YOLO document divides 26,838 instances "in a 9:1 ratio" into 23,856 for training and 2,982 for the
test, which is 8:1. The default here is 9:1; `test` is the number of test instances,
2982 to match its numbers.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from holdfast.core.dataset import Dataset
from holdfast.core.errors import DataError
from holdfast.core.fingerprint import generator, of
from holdfast.core.model import Model
from holdfast.core.pipeline import load_pipeline, pipeline_of
from holdfast.core.types import Boxes, Detections
from holdfast.data.crop import MARK, CropSettings, crop
from holdfast.data.open import open_dataset
from holdfast.metrics.boxes import single_values
from holdfast.stages.decode.libjpeg import pillow
from holdfast.train.loop import Say, fit
from models.signs import INPUTS
from models.signs.make import write
from models.signs.pool import Pool
from models.signs.recipes import shortened, single_recipe

SHARE = 10  # one of so many instances is a test instance by default


@dataclass(frozen=True)
class SplitCounts:
    """How many instances are trained on and tested on."""

    train: int
    test: int

    def __str__(self) -> str:
        total, ratio = self.train + self.test, self.train / max(self.test, 1)
        return f"{total:,} instances: {self.train:,} to train, {self.test:,} to test ({ratio:.2f}:1)"


def split(count: int, test: int | None = None, seed: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The places of training and test instances, drawn by the seed, each in order."""
    tested = round(count / SHARE) if test is None else test
    if not 0 < tested < count:
        raise DataError(f"--test-instances: expected 1 to {count - 1} of {count} instances, got {tested}")
    drawn = generator(seed, "cctsdb", "split").permutation(count)
    return np.sort(drawn[tested:]), np.sort(drawn[:tested])


def instances(folder: Path, work: Path) -> Dataset:
    """Square pictures of one sign each: the folder's own, or cut out of its images into `work`."""
    data = open_dataset(str(folder))
    if data.task == "single":
        return data
    crops = work / f"crops-{of([data.name, [entry.key() for entry in data.entries]])[:12]}"
    if not (crops / MARK).is_file():
        crop(data, crops, CropSettings(size=INPUTS["signs-single"].size.width))
    return open_dataset(str(crops), task="single")


def pool_of(data: Dataset, places: NDArray[np.int64]) -> Pool:
    """Images (n, 64, 64, 3), boxes (n, 4) as parts of the picture and labels (n,) of these instances."""
    size = INPUTS["signs-single"].size
    images = np.empty((len(places), size.height, size.width, 3), np.uint8)
    boxes, labels = np.empty((len(places), 4), np.float32), np.empty(len(places), np.int64)
    for row, place in enumerate(places.tolist()):
        sample = data.entries[place].load()
        pixels, truth = pillow(sample.data), sample.truth
        if not isinstance(truth, Boxes) or len(truth) != 1 or pixels.shape != images.shape[1:]:
            expected = f"expected one box in {size.width}×{size.height} pixels"
            raise DataError(f"{sample.name}: {expected}, got {pixels.shape[1]}×{pixels.shape[0]}")
        images[row] = pixels
        boxes[row] = truth.xyxy[0] / [size.width, size.height, size.width, size.height]
        labels[row] = truth.classes[0]
    name = of([[data.entries[place].key() for place in places.tolist()], labels])[:16]
    return Pool({"images": images, "boxes": boxes, "labels": labels}, f"cctsdb-{name}")


@dataclass(frozen=True)
class CctsdbOrder:
    """What to train on and where; `test` is the number of test instances, None for 9:1."""

    folder: Path
    out: Path
    work: Path
    seed: int = 0
    fraction: float = 1.0
    test: int | None = None


def make_single(order: CctsdbOrder, say: Say) -> tuple[Model, SplitCounts, float]:
    """Train, write and score the model; print the counts of the split and the score on the test instances."""
    data = instances(order.folder, order.work)
    train, test = split(len(data), order.test, order.seed)
    counts = SplitCounts(len(train), len(test))
    say(f"signs-single: {data.name}: {counts}")
    recipe = single_recipe(pool_of(data, train), data.classes, order.seed)
    job = shortened(recipe.job, order.fraction)
    order.out.mkdir(parents=True, exist_ok=True)
    model = write(recipe, fit(job, order.work / f"signs-single-{job.key()}.pt", say), order.out)
    value = score(model, data, test)
    say(f"signs-single: mean IoU x class right {value:.4f} on {len(test):,} test instances")
    return model, counts, value


def score(model: Model, data: Dataset, places: NDArray[np.int64]) -> float:
    """Mean over the instances of IoU × [class equal], through the model's pipeline."""
    loaded = load_pipeline(pipeline_of(model.card), model)
    boxes, classes, truths, labels = [], [], [], []
    for place in places.tolist():
        sample = data.entries[place].load()
        found, truth = loaded.predict(loaded.prepare(sample.data)), sample.truth
        if not isinstance(found, Detections) or not isinstance(truth, Boxes):
            raise DataError(f"{sample.name}: expected boxes")
        boxes.append(found.boxes[0] if len(found) else np.zeros(4))
        classes.append(int(found.classes[0]) if len(found) else -1)
        truths.append(truth.xyxy[0])
        labels.append(int(truth.classes[0]))
    return float(np.mean(single_values(boxes, classes, truths, labels)))

"""The rows of the paper's tables, one training each, and the training and test images."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from holdfast.core import registry
from holdfast.core.dataset import Dataset
from holdfast.core.errors import DataError, InputError, UnknownName
from holdfast.core.model import Model
from holdfast.core.registry import lookup
from holdfast.noise.suite import spread
from holdfast.train.pictures import Preprocessing

Over: TypeAlias = Literal["resize", "decode"]
MIX: Final = "mix"
# Table 7's, three decoders of distinct classes (libjpeg-turbo exact, FFmpeg, libjpeg-turbo IFAST), Table 8's.
RESIZES: Final = (
    "pillow-bilinear", "pillow-nearest", "pillow-bicubic", "opencv-nearest", "opencv-bilinear",
    "opencv-bicubic",
)  # fmt: skip
DECODERS: Final = ("pillow", "ffmpeg", "fast-idct")
PAPER_DECODERS: Final = ("pillow", "opencv", "ffmpeg")
LEARNED: Final = "learned"
EVERY: Final = tuple(Preprocessing(decode, resize) for decode in DECODERS for resize in RESIZES)
STANDARD: Final = "standard"
EPSILON: Final = 4.0  # of 255: the L-infinity ball of adversarial training
PGD_STEPS: Final = 3


@dataclass(frozen=True)
class TrainingRecipe:
    """A training recipe: the preprocessings to draw from, augmentations in order, epsilon of PGD."""

    name: str
    choices: tuple[Preprocessing, ...]
    augment: tuple[str, ...] = ()
    adversarial: float = 0.0

    @property
    def how(self) -> str:
        """A short description, independent of the name of the row, for file names."""
        count, first = len(set(self.choices)), self.choices[0]
        preprocessing = f"{first.decode}-{first.resize}" if count == 1 else f"mix-of-{count}"
        attack = [f"pgd-{self.adversarial:g}"] if self.adversarial else []
        return "-".join([preprocessing, *self.augment, *attack])


def choice_of(model: Model, over: Over, name: str) -> Preprocessing:
    """Decoder and resize of the model's card with one of them replaced."""
    return dataclasses.replace(Preprocessing(model.card.decode, model.card.resize), **{over: name})


def matrix_rows(
    model: Model, over: Over, names: Sequence[str], mix: Sequence[str]
) -> tuple[TrainingRecipe, ...]:
    """One row per decoder or resize, and one that draws from those of `mix` for every image.

    The only augmentation is a shift by whole pixels, so that no interpolation hides the effect of a decoder
    or resize.
    """
    for name in (*names, *mix):
        lookup(over, name)
    if len(set(names)) < 2 or len(set(names)) < len(names):
        got, known = ", ".join(names), ", ".join(registry.names(over))
        raise InputError(f"--with: expected two or more different {over} names of {known}, got {got}")
    single = [TrainingRecipe(name, (choice_of(model, over, name),)) for name in names]
    return (*single, TrainingRecipe(MIX, tuple(choice_of(model, over, name) for name in mix)))


def mitigations(model: Model, names: Sequence[str] = ()) -> tuple[TrainingRecipe, ...]:
    """The rows of Fig. 4 by name (default: all); the first is the baseline."""
    default = (Preprocessing(model.card.decode, model.card.resize),)
    rows = (
        TrainingRecipe(STANDARD, default, (STANDARD,)),
        TrainingRecipe("augmix", default, (STANDARD, "augmix")),
        TrainingRecipe("apr-sp", default, (STANDARD, "apr-sp")),
        TrainingRecipe("deep", default, (STANDARD, "deep")),
        TrainingRecipe("deep+apr-sp", default, (STANDARD, "deep", "apr-sp")),
        TrainingRecipe("deep+augmix", default, (STANDARD, "deep", "augmix")),
        TrainingRecipe("adversarial", default, (STANDARD,), EPSILON),
        TrainingRecipe(MIX, EVERY, (STANDARD,)),
    )
    known = [row.name for row in rows]
    for name in names:
        if name not in known:
            raise UnknownName("mitigation", name, known)
    return tuple(row for row in rows if not names or row.name in names)


def held_out(data: Dataset, every: int) -> tuple[Dataset, Dataset]:
    """The dataset without every `every`-th image, and those images: evenly spread, as lists are sorted."""
    test_entries = data.entries[every - 1 :: every]
    train_entries = tuple(entry for index, entry in enumerate(data.entries) if index % every != every - 1)
    if not test_entries:
        expected = f"expected at least {every} images for training and test"
        raise DataError(f"{data.name}: {expected}, got {len(data)}")
    return (
        dataclasses.replace(data, entries=train_entries, name=f"{data.name} (train)"),
        dataclasses.replace(data, entries=test_entries, name=f"{data.name} (test)"),
    )


def subset(data: Dataset, count: int | None) -> Dataset:
    """At most this many of the images, evenly spread: a folder is sorted by class."""
    if count is None or count >= len(data):
        return data
    return dataclasses.replace(data, entries=spread(data.entries, count))


def check_apart(data: Dataset, tested: Dataset) -> None:
    """Raise DataError if an image is in both."""
    if shared := shared_images(data, tested):
        raise DataError(
            f"{len(shared)} test images of {tested.name} are also in the training data {data.name}, first "
            f"{shared[0]}; use test images that are not trained on"
        )


def shared_images(data: Dataset, tested: Dataset) -> list[str]:
    """The names of test images that are also in the training data."""
    known = {entry.key() for entry in data.entries}
    return [entry.name for entry in tested.entries if entry.key() in known]

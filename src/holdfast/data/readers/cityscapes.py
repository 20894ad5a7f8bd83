"""Cityscapes: leftImg8bit/SPLIT/CITY/*_leftImg8bit.png with gtFine/SPLIT/CITY/*_gtFine_*.png."""

from dataclasses import replace
from pathlib import Path

from holdfast.core.dataset import Dataset
from holdfast.core.errors import DataError
from holdfast.core.registry import stage
from holdfast.data import files
from holdfast.data.problems import Problems
from holdfast.data.readers.masks import IGNORE, MaskFolders, mask_entries

IMAGES, MASKS = "leftImg8bit", "gtFine"
TRAIN_IDS, LABEL_IDS = "_gtFine_labelTrainIds.png", "_gtFine_labelIds.png"
# The 19 evaluated classes by their label ids, in the order of their train ids.
CLASSES = {
    7: "road", 8: "sidewalk", 11: "building", 12: "wall", 13: "fence", 17: "pole", 19: "traffic light",
    20: "traffic sign", 21: "vegetation", 22: "terrain", 23: "sky", 24: "person", 25: "rider", 26: "car",
    27: "truck", 28: "bus", 31: "train", 32: "motorcycle", 33: "bicycle",
}  # fmt: skip
_TO_TRAIN_IDS = bytes(list(CLASSES).index(value) if value in CLASSES else IGNORE for value in range(256))


def recognise(path: Path) -> str:
    """Why a path is Cityscapes, empty if it is not."""
    return f"has {IMAGES}/ and {MASKS}/" if _splits(path) else ""


@stage("reader", recognise=recognise, task="segment", rank=12)
def cityscapes(path: Path, *, split: str | None = None) -> Dataset:
    """The dataset of leftImg8bit/ and gtFine/: the 19 classes by train ids, all others are ignored.

    Masks of label ids are converted if there are none of train ids.
    """
    problems = Problems()
    splits = _splits(path)
    if not splits:
        raise DataError(
            f"{path}: expected {IMAGES}/SPLIT/CITY/ and {MASKS}/SPLIT/CITY/, found no split in both"
        )
    folders = files.choose_split(splits, split, path, problems)
    if not any(name.endswith(TRAIN_IDS) for name in files.image_names(folders.masks)):
        folders = folders._replace(mask_suffix=LABEL_IDS, table=_TO_TRAIN_IDS)
    entries = mask_entries(folders, problems)
    found = files.dataset_of(path, "cityscapes", "segment", CLASSES.values(), entries, problems)
    return replace(found, ignore_index=IGNORE)


def _splits(path: Path) -> dict[str, MaskFolders]:
    """The splits that have images and masks, by name."""
    places = files.subfolders(path / IMAGES) if (path / IMAGES).is_dir() else []
    pairs = {place.name: (place, path / MASKS / place.name) for place in places}
    suffixes = f"_{IMAGES}.png", TRAIN_IDS
    return {name: MaskFolders(*pair, *suffixes) for name, pair in pairs.items() if pair[1].is_dir()}

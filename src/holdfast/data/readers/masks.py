"""Images and masks: a folder of images and one of single-channel pictures whose values are class ids."""

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.core.dataset import Dataset
from holdfast.core.errors import DataError
from holdfast.core.registry import stage
from holdfast.data import files
from holdfast.data import problems as kinds
from holdfast.data.entries import FileEntry, StoredMask
from holdfast.data.problems import Problems

IGNORE = 255  # the usual value of ignored pixels
_IGNORED_NAMES = ("unlabeled", "unlabelled", "void", "ignore", "ignored")
_IMAGE_FOLDERS = ("images", "JPEGImages", "image", "img")
_MASK_FOLDERS = ("masks", "mask", "SegmentationClass", "annotations", "labels")


class MaskFolders(NamedTuple):
    """A folder of images and one of masks; the suffixes say which files count and which belong together."""

    images: Path
    masks: Path
    image_suffix: str = ""  # the same for all files that count, such as _leftImg8bit.png; empty: any
    mask_suffix: str = ""
    table: bytes = b""  # class id of each of the 256 values in the masks; empty: as they are


def recognise(path: Path) -> str:
    """Why a path is a dataset of images and masks, empty if it is not."""
    if (config := files.find_yaml(path, _stated)) is not None:
        return f"{files.yaml_words(config, path)} with images and masks"
    first = next(iter(_plain(path).values()), None)
    return f"has {first.masks.relative_to(path)}/ with masks of {first.images.name}/" if first else ""


@stage("reader", recognise=recognise, task="segment", rank=50)
def masks(path: Path, *, split: str | None = None) -> Dataset:
    """The dataset of a folder of images and one of masks, or of a yaml file that names both.

    Mask values are class ids and index `classes`; ids without a name are called `unused-ID`.
    """
    problems = Problems()
    config = files.find_yaml(path, _stated) if path.is_dir() else path
    if config is not None:
        content = files.read_yaml(config)
        listed = content.get("classes", content.get("names"))
        names = files.numbered(listed, content.get("nc"), config) if listed is not None else {}
        stated, pairs = content.get("ignore_index"), _configured(content, config)
    else:
        stated, pairs, names = None, _plain(path), files.classes_in(path)
    if not pairs:
        raise DataError(
            f"{path}: no images with masks found; looked for a .yaml file with `images` and `masks`, "
            f"and for {'/, '.join(_IMAGE_FOLDERS)}/ next to {'/, '.join(_MASK_FOLDERS)}/ with .png files"
        )
    pair = files.choose_split(pairs, split, config or path, problems)
    ignore = _ignore_index(stated, names, config or path, problems)
    entries = mask_entries(pair, problems)
    classes = (names.get(key, f"unused-{key}") for key in range(max(names, default=-1) + 1))
    dataset = files.dataset_of(path, "masks", "segment", classes, entries, problems)
    return replace(dataset, ignore_index=ignore)


def _stated(content: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The mappings of a yaml with `images` and `masks` by split; the name is empty without splits."""
    both = {"": content, **{key: value for key, value in content.items() if isinstance(value, dict)}}
    return {key: value for key, value in both.items() if value.get("images") and value.get("masks")}


def _configured(content: dict[str, Any], config: Path) -> dict[str, MaskFolders]:
    stated = _stated(content)
    base = files.yaml_base(content, config)
    pairs = {}
    for split, value in stated.items():
        folders = [_resolve(str(value[key]), base) for key in ("images", "masks")]
        if folders[0] and folders[1]:
            first, second = (str(value.get(k, content.get(k, ""))) for k in ("image_suffix", "mask_suffix"))
            pairs[split] = MaskFolders(folders[0], folders[1], first, second)
    if stated and not pairs:
        images = ", ".join(str(value["images"]) for value in stated.values())
        raise DataError(f"{config}: none of the folders it names exists: {images} in {base}")
    return pairs


def _resolve(item: str, base: Path) -> Path | None:
    # Some files state the images relative to the folder of the masks.
    tries = [base / item, base / "masks" / item, base / item.lstrip("./")]
    return next((place.resolve() for place in tries if place.is_dir()), None)


def _plain(folder: Path) -> dict[str, MaskFolders]:
    """Folders of images and masks without a yaml: images/ and masks/, with splits inside or outside."""
    if not folder.is_dir():
        return {}
    splits = [place for place in files.subfolders(folder) if place.name in files.SPLITS]
    roots = {"": folder} | {place.name: place for place in splits}
    by_split: dict[str, MaskFolders] = {}
    for (name, root), part, other in product(roots.items(), _IMAGE_FOLDERS, _MASK_FOLDERS):
        images, masked = root / part, root / other
        if images.is_dir() and masked.is_dir():
            for split, place in {"": images, **{p.name: p for p in files.subfolders(images)}}.items():
                stems = {_stem(name) for name in files.image_names(place, deep=False)}
                masks = [file for file in files.file_names(masked / split) if file.lower().endswith(".png")]
                if any(_stem(file) in stems for file in masks):
                    by_split.setdefault(split or name, MaskFolders(place, masked / split))
    return by_split


def _stem(name: str, suffix: str = "") -> str:
    return name.removesuffix(suffix) if suffix else name.rpartition(".")[0].removesuffix("_mask")


def _ignore_index(stated: Any, names: dict[int, str], where: Path, problems: Problems) -> int | None:
    """The ignored mask value: the one stated, a class with a name for void, or 255 if it is no class."""
    if stated is not None:
        if isinstance(stated, bool) or not isinstance(stated, int):
            raise DataError(f"{where}: expected an integer ignore_index, got {stated!r}")
        return stated
    for key, name in names.items():
        if name.lower() in _IGNORED_NAMES:
            ignored = f"pixels of class {key} ({name}) are ignored"
            problems.add(kinds.CHOICE, where, f"{ignored}; to count them, set another ignore_index")
            return key
    return None if IGNORE in names else IGNORE


def mask_entries(pair: MaskFolders, problems: Problems) -> list[FileEntry]:
    """The images with their masks; images without a mask and masks without an image are problems."""
    masks = [name for name in files.image_names(pair.masks) if not name.lower().endswith(".jpg")]
    by_stem = {_stem(name, pair.mask_suffix): name for name in masks if name.endswith(pair.mask_suffix)}
    entries, used = [], set()
    for name in files.image_names(pair.images):
        if not name.endswith(pair.image_suffix):
            continue
        mask = by_stem.get(_stem(name, pair.image_suffix))
        if mask is None:
            message = f"no mask in {pair.masks}; the image is skipped"
            problems.add(kinds.IMAGE_WITHOUT_LABEL, pair.images / name, message)
        elif mask in used:
            message = f"the mask {mask} belongs to another image of the same name; skipped"
            problems.add(kinds.DUPLICATE_FILE, pair.images / name, message)
        else:
            used.add(mask)
            truth = StoredMask(str(pair.masks / mask), pair.table)
            entries.append(FileEntry(name, str(pair.images / name), truth))
    for mask in (mask for mask in by_stem.values() if mask not in used):
        message = "no image of this name; the mask is skipped"
        problems.add(kinds.LABEL_WITHOUT_IMAGE, pair.masks / mask, message)
    return entries

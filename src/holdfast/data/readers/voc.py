"""PASCAL VOC: one XML file per image, in Annotations/ or next to the images."""

from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from holdfast.core.dataset import Dataset
from holdfast.core.errors import DataError
from holdfast.core.registry import stage
from holdfast.core.types import Size
from holdfast.data import files
from holdfast.data import problems as kinds
from holdfast.data.entries import BoxRow, FileEntry, PixelBoxes, pack
from holdfast.data.problems import Problems, check_box

_XML_FOLDERS = ("Annotations", "annotations", "xml", "")  # xml/: CCTSDB 2021
_IMAGE_FOLDERS = ("JPEGImages", "images", "Images", "")


class _Object(NamedTuple):
    number: int
    name: str
    corners: list[float]
    difficult: bool


class _Annotation(NamedTuple):
    """The content of one XML file."""

    file: Path
    image: str  # the image's file name, as stated
    size: Size | None
    objects: list[_Object]


def recognise(path: Path) -> str:
    """Why a path is a VOC dataset, empty if it is not."""
    places = _xml_folders(path) if path.is_dir() else {}
    return f"has .xml files in {', '.join(sorted(p.name for p in places.values()))}" if places else ""


@stage("reader", recognise=recognise, task="detect", rank=30)
def voc(path: Path, *, split: str | None = None, one_based: bool = False) -> Dataset:
    """The dataset of a folder of PASCAL VOC xml files, classes sorted by name.

    Corners are used as written. `one_based` reads them as the original VOC defines them, pixels counted
    from 1 with both ends inside: (x1 - 1, y1 - 1, x2, y2).
    """
    problems = Problems()
    places = _xml_folders(path) if path.is_dir() else {}
    if not places:
        looked = "Annotations/, annotations/, xml/, the folder itself and folders of splits"
        raise DataError(f"{path}: no VOC xml files found; looked in {looked}")
    chosen = split if len(places) > 1 or split in places else None
    folder = files.choose_split(places, chosen, path, problems)
    pages = [page for place in places.values() for page in _pages(place, problems, place == folder)]
    classes = tuple(sorted({item.name for page in pages for item in page.objects}))
    selected = [page for page in pages if page.file.parent == folder]
    if split is not None and chosen is None:
        selected = _listed(selected, path, split)
    entries = _entries(selected, folder, classes, one_based, problems)
    return files.dataset_of(path, "voc", "detect", classes, entries, problems)


@stage("reader", task="detect")  # only on request: the files do not state their convention
def voc_one_based(path: Path, *, split: str | None = None) -> Dataset:
    """The same with corners counted from 1, both ends inside, as the original VOC defines them."""
    return voc(path, split=split, one_based=True)


def _xml_folders(path: Path) -> dict[str, Path]:
    """The folders of xml files by split; the name is empty if there are no splits."""
    for name in _XML_FOLDERS:
        if _has_xml(path / name):
            return {"": path / name}
    by_split = {}
    for place in files.subfolders(path):
        xml = next((place / name for name in _XML_FOLDERS if _has_xml(place / name)), None)
        if xml is not None and place.name in files.SPLITS:
            by_split[place.name] = xml
    return by_split


def _has_xml(folder: Path) -> bool:
    return any(name.endswith(".xml") for name in files.file_names(folder))


def _pages(folder: Path, problems: Problems, report: bool) -> list[_Annotation]:
    pages = []
    for name in files.file_names(folder):
        if name.endswith(".xml"):
            page_problems = Problems()
            try:
                pages.append(_page(folder / name, page_problems))
            except DataError as problem:
                page_problems.add(kinds.UNREADABLE_LABEL, folder / name, f"{problem}; skipped")
            problems += page_problems if report else []
    return pages


def _page(file: Path, problems: Problems) -> _Annotation:
    data = files.read_label_bytes(file, "text-mb")
    if b"<!DOCTYPE" in data or b"<!ENTITY" in data:
        raise DataError("XML with its own entities is not supported")
    try:
        root = ElementTree.fromstring(data)  # noqa: S314 (entities were refused above)
    except ElementTree.ParseError as problem:
        raise DataError(f"not valid xml: {problem}") from None
    if root.tag != "annotation":
        raise DataError(f"expected an <annotation>, got <{root.tag}>")
    items = enumerate(root.findall("object"), 1)
    objects = [_object(item, number, f"{file}: object {number}", problems) for number, item in items]
    image = (root.findtext("filename") or "").strip().replace("\\", "/").rsplit("/", 1)[-1]
    return _Annotation(file, image, _size(root), [item for item in objects if item])


def _object(item: ElementTree.Element, number: int, where: str, problems: Problems) -> _Object | None:
    name = (item.findtext("name") or "").strip()
    if not name:
        problems.add(kinds.UNKNOWN_CLASS, where, "has no <name>; the box is skipped")
        return None
    texts = [item.findtext(f"bndbox/{key}") for key in ("xmin", "ymin", "xmax", "ymax")]
    try:
        corners = [float(text or "") for text in texts]
    except ValueError:
        message = f"expected numbers for xmin, ymin, xmax, ymax, got {texts}; the box is skipped"
        problems.add(kinds.NOT_A_NUMBER, where, message)
        return None
    return _Object(number, name, corners, (item.findtext("difficult") or "0").strip() not in ("0", ""))


def _size(root: ElementTree.Element) -> Size | None:
    try:
        size = Size(*(int(float(root.findtext(f"size/{key}") or "")) for key in ("width", "height")))
    except (ValueError, OverflowError):
        return None
    return size if size.width > 0 and size.height > 0 else None


def _listed(pages: list[_Annotation], path: Path, split: str) -> list[_Annotation]:
    """The pages named by ImageSets/Main/<split>.txt."""
    places = [path / "ImageSets" / "Main", path / "ImageSets", path]
    file = next((p / f"{split}.txt" for p in places if (p / f"{split}.txt").is_file()), None)
    if file is None:
        raise DataError(f"{path}: no split {split!r}: no {split}.txt in ImageSets/Main")
    stems = {line.split()[0] for _, line in files.lines_of(file)}
    return [page for page in pages if page.file.stem in stems]


def _entries(
    pages: list[_Annotation], folder: Path, classes: tuple[str, ...], one_based: bool, problems: Problems
) -> list[FileEntry]:
    disk, index = files.FolderIndex(), {name: number for number, name in enumerate(classes)}
    root = folder if folder.name not in _XML_FOLDERS else folder.parent
    places = [root / name for name in _IMAGE_FOLDERS]
    images = files.best_folder([page.image for page in pages], places, disk)
    by_stem = {Path(name).stem: name for name in files.image_names(images, deep=False)}
    used, entries = set[str](), []
    for page in pages:
        # Fall back to the XML file's own name if the stated image is missing: tools rename files only.
        name = page.image if disk.has(str(images / page.image)) and files.is_image(page.image) else ""
        name = name or by_stem.get(page.file.stem, "")
        if not name:
            message = f"no image {page.image or page.file.stem!r} in {images}; skipped"
            problems.add(kinds.MISSING_FILE, page.file, message)
        elif name in used:
            message = f"{name} has another xml file already; this one is skipped"
            problems.add(kinds.DUPLICATE_FILE, page.file, message)
        else:
            used.add(name)
            rows = _rows(page, index, one_based, problems)
            entries.append(FileEntry(name, str(images / name), PixelBoxes(pack(rows)), page.size))
    # including those of other splits and of invalid files
    labelled = {name.removesuffix(".xml") for name in files.file_names(folder)}
    for name in (name for stem, name in by_stem.items() if name not in used and stem not in labelled):
        message = f"no xml file in {folder}; the image is skipped"
        problems.add(kinds.IMAGE_WITHOUT_LABEL, images / name, message)
    return entries


def _rows(page: _Annotation, index: dict[str, int], one_based: bool, problems: Problems) -> list[BoxRow]:
    rows = []
    for number, name, (x1, y1, x2, y2), difficult in page.objects:
        row = BoxRow(x1 - one_based, y1 - one_based, x2, y2, index[name], difficult=difficult)
        if check_box(row, page.size, f"{page.file}: object {number} ({name})", problems):
            rows.append(row)
    return rows

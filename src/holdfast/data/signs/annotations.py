"""COCO annotations of drawn scenes and of crops; apart from the drawing, which needs OpenCV."""

from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.core.types import Floats, Size


def coco_content(
    pictures: Iterable[tuple[str, Size, Floats, Iterable[int]]], classes: Sequence[str]
) -> dict[str, Any]:
    """The content of a COCO file of pictures: file name, size, boxes (n, 4) xyxy, labels; ids begin at 1."""
    images, annotations = list[dict[str, Any]](), list[dict[str, Any]]()
    for image, (name, size, boxes, labels) in enumerate(pictures, 1):
        images.append({"id": image, "file_name": name, "width": size.width, "height": size.height})
        for label, (x0, y0, x1, y1) in zip(labels, boxes.tolist(), strict=True):
            row = {"id": len(annotations) + 1, "image_id": image, "category_id": label + 1}
            box = [x0, y0, x1 - x0, y1 - y0]
            annotations.append({**row, "bbox": box, "area": box[2] * box[3], "iscrowd": 0})
    categories = [{"id": number, "name": name} for number, name in enumerate(classes, 1)]
    return {"images": images, "annotations": annotations, "categories": categories}

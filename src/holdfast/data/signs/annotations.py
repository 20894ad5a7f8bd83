"""COCO annotations of drawn scenes and of crops; apart from the drawing, which needs OpenCV."""

from collections.abc import Iterable
from typing import Any

from holdfast.core.types import Floats


def coco_annotations(boxes: Floats, labels: Iterable[int], image_id: int, first: int) -> list[dict[str, Any]]:
    """The COCO annotations of one image's boxes (n, 4) xyxy, numbered from `first`; category ids from 1."""
    rows = []
    for number, (label, (x0, y0, x1, y1)) in enumerate(zip(labels, boxes.tolist(), strict=True), first):
        width, height = x1 - x0, y1 - y0
        row = {"id": number, "image_id": image_id, "category_id": label + 1}
        rows.append({**row, "bbox": [x0, y0, width, height], "area": width * height, "iscrowd": 0})
    return rows

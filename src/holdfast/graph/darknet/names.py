"""Class names: of a darknet .names file, COCO's 80, or numbers."""

from __future__ import annotations

from pathlib import Path

from holdfast.core.errors import CardError

_COCO = (
    "person, bicycle, car, motorcycle, airplane, bus, train, truck, boat, traffic light, "
    "fire hydrant, stop sign, parking meter, bench, bird, cat, dog, horse, sheep, cow, elephant, "
    "bear, zebra, giraffe, backpack, umbrella, handbag, tie, suitcase, frisbee, skis, snowboard, "
    "sports ball, kite, baseball bat, baseball glove, skateboard, surfboard, tennis racket, bottle, "
    "wine glass, cup, fork, knife, spoon, bowl, banana, apple, sandwich, orange, broccoli, carrot, "
    "hot dog, pizza, donut, cake, chair, couch, potted plant, bed, dining table, toilet, tv, laptop, "
    "mouse, remote, keyboard, cell phone, microwave, oven, toaster, sink, refrigerator, book, clock, "
    "vase, scissors, teddy bear, hair drier, toothbrush"
)
COCO = tuple(_COCO.split(", "))


def read_names(path: Path, wanted: int) -> tuple[str, ...]:
    """The class names of a .names file, which must be `wanted` many."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise CardError(f"{path}: no such file; give a .names file with one class a line") from None
    except (OSError, UnicodeDecodeError) as problem:
        raise CardError(f"{path}: expected a .names file with one class a line, got: {problem}") from problem
    classes = tuple(line.strip() for line in text.strip().splitlines())
    if len(classes) != wanted:
        raise CardError(f"{path}: expected {wanted} names, as classes= in [yolo] says, got {len(classes)}")
    return classes


def default_names(count: int) -> tuple[str, ...]:
    """COCO's names for 80 classes, else numbered ones."""
    return COCO if count == len(COCO) else tuple(f"class {index}" for index in range(count))

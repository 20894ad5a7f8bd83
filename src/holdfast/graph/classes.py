"""Lists of class names a card may give by name, e.g. classes = "coco80"."""

from __future__ import annotations

_COCO = (
    "person|bicycle|car|motorcycle|airplane|bus|train|truck|boat|traffic light|fire hydrant|stop sign|"
    "parking meter|bench|bird|cat|dog|horse|sheep|cow|elephant|bear|zebra|giraffe|backpack|umbrella|handbag|"
    "tie|suitcase|frisbee|skis|snowboard|sports ball|kite|baseball bat|baseball glove|skateboard|surfboard|"
    "tennis racket|bottle|wine glass|cup|fork|knife|spoon|bowl|banana|apple|sandwich|orange|broccoli|carrot|"
    "hot dog|pizza|donut|cake|chair|couch|potted plant|bed|dining table|toilet|tv|laptop|mouse|remote|"
    "keyboard|cell phone|microwave|oven|toaster|sink|refrigerator|book|clock|vase|scissors|teddy bear|"
    "hair drier|toothbrush"
)
_COCO_UNUSED = (0, 12, 26, 29, 30, 45, 66, 68, 69, 71, 83)  # category ids from 0 to 90 that no class has
_VOC = (
    "aeroplane|bicycle|bird|boat|bottle|bus|car|cat|chair|cow|diningtable|dog|horse|motorbike|person|"
    "pottedplant|sheep|sofa|train|tvmonitor"
)


def _coco91() -> tuple[str, ...]:
    """The names at their COCO category ids, as networks with 91 outputs count them."""
    names = iter(_COCO.split("|"))
    return tuple(f"unused {i}" if i in _COCO_UNUSED else next(names) for i in range(91))


BUILT_IN: dict[str, tuple[str, ...]] = {
    "coco80": tuple(_COCO.split("|")),
    "coco91": _coco91(),
    "voc20": tuple(_VOC.split("|")),
    "voc21": ("background", *_VOC.split("|")),
    "cctsdb3": ("mandatory", "prohibitory", "warning"),
}


def numbered(count: int) -> tuple[str, ...]:
    """The names "0", "1", ... of classes nobody named."""
    return tuple(str(i) for i in range(count))

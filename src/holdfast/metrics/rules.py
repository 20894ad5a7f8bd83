"""Rules: every choice that affects an average precision, as printable data."""

from dataclasses import dataclass
from typing import Literal

from holdfast.core.errors import InputError, UnknownName

Interpolation = Literal["11-point", "all-point", "101-point"]
Taken = Literal["false positive", "next free box"]
_WHEN_TAKEN = {"false positive": "is a false positive", "next free box": "takes the next free box"}
Difficult = Literal["ordinary", "ignored"]
Crowd = Literal["ordinary", "ignored", "region"]


@dataclass(frozen=True)
class APRule:
    """The choices behind one average precision."""

    name: str
    interpolation: Interpolation  # precision is read at recall 0, .1 … 1; at every one reached; at 0, .01 … 1
    iou_strict: bool = False  # a match needs IoU > threshold (True) or IoU ≥ threshold (False)
    plus_one: bool = False  # a box from pixel 3 to pixel 5 is 3 wide (True) or 2 wide (False)
    taken: Taken = "false positive"  # a detection whose best box is matched already
    difficult: Difficult = "ignored"  # ignored: such boxes are neither hit nor miss
    # region: overlap is measured on the detection alone, and any number may fall into an ignored box
    crowd: Crowd = "ignored"
    max_dets: int | None = None  # at most this many detections per image and class, best first; None: all
    score_strict: bool = False  # a detection counts at a threshold if score > it (True) or score ≥ it (False)
    end_points: bool = False  # the curve also holds (recall 0, precision 1) and (recall 1, precision 0)

    def __post_init__(self) -> None:
        if (most := self.max_dets) is not None and most < 1:
            raise InputError(f"rule {self.name}: max_dets must be 1 or more, or None for all; got {most}")

    def __str__(self) -> str:
        crowd = {"region": "an ignored region"}.get(self.crowd, self.crowd)
        words = [
            f"{self.name}: {self.interpolation} AP",
            f"IoU {'>' if self.iou_strict else '≥'} threshold",
            "box sides +1 pixel" if self.plus_one else "box sides as given",
            f"a detection whose best box is matched already {_WHEN_TAKEN[self.taken]}",
            f"difficult {self.difficult}",
            f"crowd {crowd}",
            f"≤ {self.max_dets} detections per image and class" if self.max_dets else "all detections",
            f"score {'>' if self.score_strict else '≥'} threshold",
            "curve ends at (recall 0, precision 1) and (1, 0)" if self.end_points else "no end points",
        ]
        return ", ".join(words)


_RULES = (
    APRule(
        "lecture",
        "11-point",
        True,
        difficult="ordinary",
        crowd="ordinary",
        score_strict=True,
        end_points=True,
    ),
    APRule("voc2007", "11-point", plus_one=True),
    APRule("voc", "all-point", plus_one=True),
    APRule("coco", "101-point", taken="next free box", difficult="ordinary", crowd="region", max_dets=100),
)
RULES = {rule.name: rule for rule in _RULES}


def rule_named(name: str) -> APRule:
    """The rule of that name, or an error that names the nearest one."""
    if name not in RULES:
        raise UnknownName("rule", name, RULES)
    return RULES[name]

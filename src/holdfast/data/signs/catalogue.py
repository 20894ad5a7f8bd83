"""The names of what the scenes contain: sign classes, their groups, and the segments of the mask."""

from __future__ import annotations

from typing import Final

WIDTH: Final = 640
HEIGHT: Final = 480

GROUPS: Final[tuple[str, ...]] = ("mandatory", "prohibitory", "warning")

CLASSES: Final[tuple[str, ...]] = (
    "go-straight",
    "turn-left",
    "turn-right",
    "roundabout",
    "footpath",
    "cycle-path",
    "stop",
    "no-entry",
    "no-parking",
    "no-trucks",
    "no-overtaking",
    "speed-limit-30",
    "speed-limit-50",
    "speed-limit-80",
    "curve-left",
    "curve-right",
    "crossroads",
    "children",
    "traffic-signals",
    "danger",
)

GROUP_OF: Final[tuple[int, ...]] = (0,) * 6 + (1,) * 8 + (2,) * 6

SEGMENTS: Final[tuple[str, ...]] = ("background", "road", *GROUPS, "sky")
"""Names of the values of a scene's mask; a sign has the value 2 + its group."""

BACKGROUND: Final = 0
ROAD: Final = 1
FIRST_SIGN: Final = 2
SKY: Final = 5

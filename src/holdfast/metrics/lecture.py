"""The worked example of the lecture on 2D object detection, as data.

One road scene, one class. Four cars are labelled; five boxes are detected, one of them the front of a truck,
with quite a high score. The lecture gives the counts at two score thresholds and says AP 0.75; boxes and
scores here are our own, placed so that every count comes out, and in the one order of hits and misses in
which the area under the curve is exactly 0.75 (see docs/evaluate.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.metrics.tables import DetectionTable, TruthTable, detection_table, truth_table


@dataclass(frozen=True)
class Example:
    """A small data set with names, thresholds and what it is."""

    title: str
    truth: TruthTable
    detections: DetectionTable
    truth_names: tuple[str, ...]
    detection_names: tuple[str, ...]
    class_names: tuple[str, ...]
    images: int
    iou: float
    scores: tuple[float, ...]


LECTURE_EXAMPLE = Example(
    title="the lecture's example: four cars, five detections, one of them the front of a truck",
    truth=truth_table(
        [0, 0, 0, 0],
        [0, 0, 0, 0],
        xyxy=[[80, 300, 280, 420], [330, 310, 450, 390], [520, 320, 600, 380], [960, 330, 1040, 380]],
    ),
    detections=detection_table(
        [0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0],
        [0.98, 0.94, 0.88, 0.86, 0.74],
        xyxy=[
            [84, 302, 282, 422],
            [334, 312, 452, 392],
            [523, 322, 605, 382],
            [680, 180, 880, 400],
            [975, 335, 1065, 385],
        ],
    ),
    truth_names=("car A", "car B", "car C", "car D"),
    detection_names=("on car A", "on car B", "on car C", "on the truck's front", "beside car D"),
    class_names=("car",),
    images=1,
    iou=0.7,
    scores=(0.9, 0.7),
)

"""Questions to one model about one image: counted and timed, the best answer kept. No torch here."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from holdfast.attack.canvas import Canvas, Paint, painted
from holdfast.attack.goals import shortfall
from holdfast.attack.types import Limits, Method, Target
from holdfast.core.patch import amplitude, changed_pixels
from holdfast.core.types import Detections, Image

Judge: TypeAlias = Callable[[Image], Detections]


@dataclass
class Inquiry:
    """The questions asked of one model about one image: counted, timed, the best answer kept."""

    judge: Judge
    target: Target
    method: Method
    limits: Limits
    canvas: Canvas
    began: float = field(default_factory=time.perf_counter)
    queries: int = 0
    first: int = 0  # the query that succeeded first
    best: tuple[float, int, int] = (np.inf, 0, 0)  # shortfall, then pixels, then amplitude
    image: Image = field(default_factory=lambda: np.zeros((0, 0, 3), np.uint8))
    after: Detections | None = None
    trail: dict[tuple[int, bool], None] = field(default_factory=dict)

    def ask(self, paint: Paint) -> float:
        """What the goal lacks with this paint; 0: reached."""
        return self.ask_image(painted(self.canvas, paint))

    def ask_image(self, image: Image) -> float:
        """What the goal lacks in this image."""
        after = self.judge(image)
        self.queries += 1
        lacks = shortfall(self.method.goal, self.target, after, self.method.rule)
        pixels = changed_pixels(self.target.image, image)
        if lacks == 0 and not self.first:
            self.first = self.queries
        if lacks == 0 or not self.trail:
            self.trail[pixels, lacks == 0] = None
        rank = lacks, pixels, amplitude(self.target.image, image)
        if rank < self.best or self.after is None:
            self.best, self.image, self.after = rank, image, after
        return lacks

    def spent(self, queries: int) -> bool:
        """Whether so many queries were asked, or the time is over."""
        late = self.limits.seconds and time.perf_counter() - self.began >= self.limits.seconds
        return bool(late) or self.queries >= queries

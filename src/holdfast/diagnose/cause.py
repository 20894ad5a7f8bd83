"""A cause of a difference, and what it is read from: a fitted dump next to what the model wants."""

from dataclasses import dataclass

import numpy as np

from holdfast.core.model import Input
from holdfast.diagnose.fit import Fit
from holdfast.diagnose.preparation import Preparation
from holdfast.report.parts import joined


@dataclass(frozen=True)
class Cause:
    """One difference between a target and the training pipeline."""

    kind: str
    sentence: str
    repair: str = ""
    definite: bool = True  # False: a number was fitted, or one of many options chosen
    equivalent: tuple[str, ...] = ()  # other options that give the same values

    @property
    def text(self) -> str:
        """The sentence, the equivalent options, and the repair."""
        also = f" (equivalent: {joined(self.equivalent)})" if self.equivalent else ""
        return f"{self.sentence[:-1]}{also}. {self.repair}".strip()


@dataclass(frozen=True)
class Comparison:
    """A fitted dump next to what the model wants."""

    spec: Input
    dtype: str  # of the dump
    fit: Fit
    expected: Preparation  # the training pipeline for the image as it was turned and resized before
    exif: int  # orientation in the image file
    train_exif: bool = False  # the training pipeline applies it

    @property
    def tolerance(self) -> float:
        """Levels by which fitted values may be off."""
        rounding = self.fit.target.rounding / max(float(np.abs(self.fit.preparation.gain).min()), 1e-30)
        return min(1.5, 0.1 + 2.0 * self.fit.score) + rounding

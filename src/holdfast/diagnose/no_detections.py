"""A target that detects nothing: the mistakes that leave the model without detections too."""

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.diagnose.cause import Cause
from holdfast.report.tables import many

USUAL = 0.25  # score below which many products drop detections
NOISE = 0.02  # a mistake that leaves no higher score leaves no detection at any usual threshold
LISTED = 4  # causes named in a sentence


@dataclass(frozen=True)
class ScoreLeft:
    """A mistake and the highest score that the model still has on any image if it is made."""

    cause: Cause
    score: float


@dataclass(frozen=True)
class NoDetections:
    """The mistakes that leave no score of USUAL on the images where the model itself has one."""

    images: int
    lowest: float  # of the model's best scores on these images
    highest: float
    tried: int
    left: tuple[ScoreLeft, ...]  # the lowest score first

    @property
    def lines(self) -> list[str]:
        """The sentences of the verdict."""
        if not self.images:
            weak = f"and the model itself has no score of {USUAL} on these images"
            return [f"The target detects nothing, {weak}. They do not show why; use images with objects."]
        best = f"{self.lowest:.2f} to {self.highest:.2f}"
        lines = [
            f"The target detects nothing on {many(self.images, 'image')}; the model's best scores are {best}."
        ]
        sure = [one for one in self.left if one.score <= NOISE]
        rest = self.left[len(sure) :]
        if sure:
            lines.append(f"{self._count(sure)} no score above {NOISE}: {_sentences(sure)}")
        if rest:
            lines.append(
                f"{self._count(rest)} no score above {USUAL}, and explain it if the target drops detections "
                f"below that score: {_sentences(rest)}"
            )
        return [*lines, self._sureness()]

    def _count(self, some: Sequence[ScoreLeft]) -> str:
        verb = "leaves" if len(some) == 1 else "leave"
        return f"{len(some)} of {self.tried} mistakes tried {verb}"

    def _sureness(self) -> str:
        if not self.left:
            sure = (
                "None of the mistakes tried explains it: check that the network runs and its output is read."
            )
        elif len(self.left) == 1:
            sure = "No other mistake tried explains it; this is likely, but not certain."
        else:
            sure = f"Predictions cannot tell these {len(self.left)} apart: which one it is, is not decided."
        return (
            f"{sure} A score threshold above {self.highest:.2f} has the same effect. A dump of the target's "
            "input (--input) decides."
        )


def _sentences(some: Sequence[ScoreLeft]) -> str:
    shown = " / ".join(one.cause.sentence for one in some[:LISTED])
    return f"{shown} And {len(some) - LISTED} more." if len(some) > LISTED else shown

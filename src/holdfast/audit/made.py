"""What the parts of an audit hand to one another, and to the page."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.attack.result import Outcome
from holdfast.audit.plan import AuditPlan
from holdfast.audit.result import Audit, Matrix, Part, Proof, Recheck
from holdfast.audit.specs import Decided
from holdfast.audit.squares.map import SquareMap
from holdfast.audit.strike import Struck
from holdfast.core.pipeline import Pipeline, pipeline_of
from holdfast.engine.pipelines import SHARD
from holdfast.evaluate.result import Evaluation
from holdfast.noise.vision.combine import Staircase
from holdfast.noise.vision.result import ModelNoise, Suite
from holdfast.noise.vision.run import Prepared


@dataclass(frozen=True)
class Ran:
    """How a part went: on how many images, what it left out in words, whether it is for this model at all."""

    images: int
    left_out: str = ""
    applies: bool = True


@dataclass
class Made:
    """What the parts have made so far; a page is written from it."""

    plan: AuditPlan
    evaluation: Evaluation | None = None
    suite: Suite | None = None
    prepared: Prepared | None = None
    stairs: Staircase | None = None
    outcome: Outcome | None = None
    struck: tuple[Struck, ...] = ()
    maps: tuple[SquareMap, ...] = ()
    decided: tuple[Decided, ...] = ()  # specifications
    proofs: tuple[Proof, ...] = ()
    rechecks: tuple[Recheck, ...] = ()
    matrix: Matrix = field(default_factory=Matrix)
    parts: list[Part] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    runs: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)  # images of noise, attack and square, as planned
    places: int = 0  # of the square, as planned; 0: not planned yet
    shard: int = SHARD  # images per cell: few where a model is slow, so that a part can stop soon
    seconds_an_image: float = 0.05
    audit: Audit | None = None

    @property
    def found(self) -> Audit:
        """The audit as data; only one that ended has it."""
        if self.audit is None:
            raise RuntimeError("the audit has not ended")
        return self.audit

    @property
    def noise(self) -> ModelNoise | None:
        """The noise of the model; None if it was not measured."""
        return self.suite.models[0] if self.suite else None

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline as trained."""
        return self.plan.plan.pipeline or pipeline_of(self.plan.plan.model.card)

    def again(self, part: str, first: int | None = None) -> str:
        """The line that gives the numbers of a part again, on the images it was planned for.

        `first`: threats on so many images alone, as fewer met all deployments.
        """
        few = {n: c if n == "noise" else min(c, first or c) for n, c in self.counts.items()}
        counts = {f"{name}_images": count for name, count in few.items()}
        places = self.places or self.plan.options.places
        return self.plan.audit_line(only=(part,), budget="none", places=places, **counts)

    def whole(self, part: str) -> str:
        """The line that runs a part without a limit of time, on all images."""
        none = {"noise_images": None, "attack_images": None, "square_images": None}
        places = self.places or self.plan.options.places
        return self.plan.audit_line(only=(part,), budget="none", places=places, **none)

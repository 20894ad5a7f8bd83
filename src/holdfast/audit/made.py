"""What the parts of an audit hand to one another, and to the page."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.attack.result import Outcome
from holdfast.audit.plan import AuditPlan, Wish
from holdfast.audit.result import Audit, Matrix, Part, Proof, Recheck
from holdfast.audit.specs import Decided
from holdfast.audit.squares.map import SquareMap
from holdfast.audit.strike import Struck
from holdfast.core.pipeline import Pipeline, pipeline_of
from holdfast.engine.pipelines import SHARD
from holdfast.evaluate.result import Evaluation
from holdfast.evaluate.run import Plan
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
        counts = [word for name, count in few.items() for word in (f"--{name}-images", count)]
        return self.plan.command("audit", "--only", part, "--budget", "none", *counts, *self._asked)

    def whole(self, part: str) -> str:
        """The line that runs a part without a limit of time, on all images."""
        return self.plan.command("audit", "--only", part, "--budget", "none", *self._asked)

    @property
    def _asked(self) -> list[str | int | float]:
        """The options that change a number; of parts that did not run only those that are not the default."""
        plan, asked = self.plan, Wish()
        wish = plan.wish
        words: list[str | int | float] = [*rule_words(plan.plan), *plan.calibrated]
        if plan.limit is not None:
            words += ["--images", plan.limit]
        if "square" in self.counts or (wish.places, wish.share) != (asked.places, asked.share):
            words += ["--places", self.places or wish.places, "--square", wish.share]
        attacks = [(one.pixels, one.steps, one.seed) for one in (wish, asked)]
        if "attack" in self.counts or attacks[0] != attacks[1]:
            words += [word for p in wish.pixels for word in ("--pixels", p)]
            words += ["--steps", wish.steps, "--seed", wish.seed]
        return [*words, *(word for path in wish.specs for word in ("--spec", str(path)))]


def rule_words(plan: Plan) -> tuple[str, ...]:
    """The option that names the rule, for detectors."""
    return ("--rule", plan.settings.rule.name) if plan.model.card.task == "detect" else ()

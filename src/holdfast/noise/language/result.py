"""What a language suite found: a row a precision, for each rule of scoring, set and model. Saved as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from holdfast.engine.manifest import Manifest, folder_of

Outcome: TypeAlias = Literal["measured", "no effect", "impossible"]


@dataclass(frozen=True)
class Row:
    """One precision. Δ = fp32 − noised in points of accuracy (1 point = 0.01): positive is a loss."""

    precision: str
    outcome: Outcome
    note: str = ""  # how it was done, or why not
    value: float | None = None  # the accuracy, 0 to 1
    drop: float | None = None
    low: float | None = None  # paired 95 % interval of the drop
    high: float | None = None
    changed: int | None = None  # questions with another pick
    lost: int | None = None  # right before and wrong after
    gained: int | None = None
    questions: int = 0
    failed: int = 0  # questions without a likelihood, counted as wrong

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out 0: more than the choice of questions."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


@dataclass(frozen=True)
class RuleNoise:
    """A set scored by one rule: the accuracy of the file as it is, and every precision."""

    rule: str
    clean: float
    rows: tuple[Row, ...]

    def row(self, precision: str) -> Row | None:
        """The row of a precision."""
        return next((r for r in self.rows if r.precision == precision), None)


@dataclass(frozen=True)
class SetNoise:
    """One set of questions for one model, by every rule that means something for it, the default first."""

    data: str
    kind: str
    sha256: str
    questions: int
    chance: float  # accuracy of picking blindly
    rules: tuple[RuleNoise, ...]
    calibration: str = ""
    notes: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()  # questions without a likelihood in the file as it is

    @property
    def default(self) -> RuleNoise:
        """The rule of the table."""
        return self.rules[0]


@dataclass(frozen=True)
class LanguageNoise:
    """One model on all sets."""

    model: str
    sha256: str
    sets: tuple[SetNoise, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class LanguageSuite:
    """One run: models, sets and precisions."""

    models: tuple[LanguageNoise, ...]
    precisions: tuple[str, ...]
    command: str = ""
    created: str = ""
    seconds: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def sets(self) -> tuple[str, ...]:
        """The names of the sets, in order."""
        return tuple(s.data for s in self.models[0].sets)


MANIFEST = "language.json"
_manifest = Manifest(MANIFEST, "noise-language", LanguageSuite, "a language run")
as_plain, save, open_suite = _manifest.to_plain, _manifest.save, _manifest.open


def suite_folder(suite: LanguageSuite, runs: Path) -> Path:
    """Where a suite is saved: by its models, its sets and the selected precisions."""
    name = f"language-{'-'.join(m.model for m in suite.models)}-on-{'-'.join(suite.sets)}"
    same = [[m.sha256, [[s.sha256, s.questions, s.calibration] for s in m.sets]] for m in suite.models]
    return folder_of(runs, name, [same, suite.precisions])

"""What an audit found, as data: every number with the engine behind it and a command that reproduces it."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

from holdfast.core.result import Result, look_up
from holdfast.engine.manifest import Manifest

NO_THREAT, TRAINED = "none", "as trained"  # the clean row and the clean column of the matrix
Answer: TypeAlias = Literal["holds", "violated", "unknown"]


@dataclass(frozen=True)
class Clean:
    """The model as it was trained: its main metric (0 to 1) with a 95 % interval, and all others."""

    metric: str  # the name gates use: map50, map, top1, miou, iou_equal
    title: str  # the name people use: mAP@.5
    value: float
    low: float | None
    high: float | None
    images: int
    rule: str
    others: dict[str, float] = field(default_factory=dict)
    command: str = ""


@dataclass(frozen=True)
class Cause:
    """One system noise. `drop` = clean − noised, 0 to 1: positive is a loss; with a paired 95 % interval."""

    label: str  # family=option; for the combined one all of them with " + " between
    family: str
    outcome: str  # measured, identical, no effect, impossible, not installed
    drop: float | None = None
    low: float | None = None
    high: float | None = None
    changed: int | None = None  # images whose prediction is another
    images: int = 0
    note: str = ""
    command: str = ""


@dataclass(frozen=True)
class AttackLevel:
    """The attack at one pixel budget: the metric before and after on the attacked images.

    `aimed` images had something true to lose, `broken` of them lost all of it. S_e = 1 − after / before.
    """

    threat: str  # its name in matrix and sandwich: "300px"
    pixels: int
    before: float
    after: float
    aimed: int
    broken: int
    images: int
    mean_pixels: float | None  # over the aimed images
    engine: str
    command: str = ""

    @property
    def effect(self) -> float | None:
        """S_e of the contest; None if nothing was found before."""
        return 1.0 - self.after / self.before if self.before > 0 else None


@dataclass(frozen=True)
class Proof:
    """The answer to one question about one image (or specification), and the witness's place if it broke.

    `holds` only if every member of the set was covered: `tried` of `members`.
    """

    threat: str  # "square", or the name of a specification
    image: str
    answer: Answer
    engine: str
    seconds: float
    members: int = 0  # inputs in the set, if it is finite
    tried: int = 0
    unsafe: int = 0
    margin: float | None = None  # how far the worst member is from breaking (score − threshold)
    where: tuple[int, int] | None = None  # column and row of the worst square's top left corner
    note: str = ""
    command: str = ""


@dataclass(frozen=True)
class RecheckAnswer:
    """The answer under one deployment, how many members of the set were run, and a remark."""

    now: Answer
    tried: int
    note: str = ""


@dataclass(frozen=True)
class Recheck:
    """A proof or a witness put to the same question under one runtime or precision."""

    threat: str
    image: str
    deployment: str  # family=option
    was: Answer  # as trained
    now: Answer
    tried: int  # members of the set that were run
    note: str = ""

    @property
    def finding(self) -> bool:
        """Whether the answer is another one: proven here, broken there, or the other way round."""
        return "unknown" not in (self.was, self.now) and self.was != self.now


@dataclass(frozen=True)
class ImageRobustness:
    """One image under one threat: certified, broken, or neither."""

    image: str
    certified: bool
    broken: bool


@dataclass(frozen=True)
class RobustnessBounds:
    """Certified ≤ true ≤ not broken by any attack: the bounds under one threat, in images."""

    threat: str
    words: str  # the threat in a few words: "300 pixels of any colour"
    prover: str  # engine behind the lower number; empty: none proves this
    attacker: str
    standings: tuple[ImageRobustness, ...]

    @property
    def images(self) -> int:
        """How many images were asked about."""
        return len(self.standings)

    @property
    def certified(self) -> int:
        """Images proven to hold."""
        return sum(s.certified for s in self.standings)

    @property
    def attacked(self) -> int:
        """Images in which no way to break was found."""
        return sum(not s.broken for s in self.standings)


@dataclass(frozen=True)
class MatrixCell:
    """One cell of the matrix: a threat made for the training pipeline, under one deployment.

    `value` is the metric of the threatened images there. Of the images it broke as trained (`struck`),
    `survived` are still broken. `extra` = what both cost together − what each costs alone, with its paired
    95 % interval: clearly above 0 they magnify each other, clearly below they overlap.
    """

    threat: str
    deployment: str
    value: float | None  # None: it could not be run; `note` says why
    images: int
    struck: int = 0
    survived: int = 0
    extra: float | None = None
    low: float | None = None
    high: float | None = None
    note: str = ""
    command: str = ""

    @property
    def effect(self) -> Literal["", "magnified", "overlaps", "adds up"]:
        """How threat and deployment meet; empty where there is nothing to meet."""
        if self.extra is None or self.low is None or self.high is None:
            return ""
        return "magnified" if self.low > 0 else "overlaps" if self.high < 0 else "adds up"


@dataclass(frozen=True)
class Matrix:
    """Threats × deployments; the first threat is none, the first deployment is as trained."""

    threats: tuple[str, ...] = ()
    deployments: tuple[str, ...] = ()
    meetings: tuple[MatrixCell, ...] = ()
    notes: tuple[str, ...] = ()  # which images, by what rule, and what a name stands for

    def at(self, threat: str, deployment: str) -> MatrixCell | None:
        """The cell of a threat under a deployment; None if there is none."""
        return next((s for s in self.meetings if (s.threat, s.deployment) == (threat, deployment)), None)


@dataclass(frozen=True)
class Part:
    """A part of the plan: on how many images it ran, or why it did not."""

    name: str  # evaluate, noise, combine, attack, squares, specs, matrix, recheck
    images: int
    of: int  # images there are
    seconds: float
    planned: float
    left_out: str = ""  # in words what was left out and why; empty: nothing
    command: str = ""


@dataclass(frozen=True, repr=False)
class Audit(Result):
    """One audit of one model on one dataset."""

    model: dict[str, Any]  # name, path, sha256, task, classes
    data: dict[str, Any]  # name, images, source
    clean: Clean
    causes: tuple[Cause, ...] = ()
    combined: Cause | None = None
    strikes: tuple[AttackLevel, ...] = ()
    proofs: tuple[Proof, ...] = ()
    rechecks: tuple[Recheck, ...] = ()
    sandwich: tuple[RobustnessBounds, ...] = ()
    matrix: Matrix = field(default_factory=Matrix)
    parts: tuple[Part, ...] = ()
    notes: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    runs: dict[str, str] = field(default_factory=dict)  # part -> folder of its own run, next to the audit's
    command: str = ""
    created: str = ""  # ISO 8601, UTC
    seconds: float = 0.0
    budget: float = 0.0  # seconds; 0: none
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def worst(self) -> Cause | None:
        """Of the system noises that change the metric or a prediction, the one that costs most; else None."""
        measured = [c for c in self.causes if c.outcome == "measured" and c.drop is not None]
        moving = [c for c in measured if c.drop or c.changed != 0]
        return max(moving, key=lambda c: (c.drop or 0.0, c.changed or 0), default=None)

    @property
    def findings(self) -> tuple[Recheck, ...]:
        """Answers that are others under some runtime or precision."""
        return tuple(r for r in self.rechecks if r.finding)

    @property
    def gates(self) -> tuple[Any, ...]:
        """The gates of the audit and how each was decided; empty if it was opened from a folder."""
        judged: tuple[Any, ...] = self.__dict__.get("_gates", ())
        return judged

    def to_dict(self) -> dict[str, Any]:
        """The audit as plain values, as `--json` writes them."""
        return as_plain(self)

    def _summary(self) -> str:
        clean, worst = self.clean, self.worst
        noise = f", worst noise {worst.label}" if worst else ""
        name = f"{self.model.get('name')} on {self.data.get('name')}"
        return f"{name}: {clean.title} {clean.value:.4f}, {clean.images} images{noise}"

    def _rows(self) -> list[dict[str, Any]]:
        return [{k: v for k, v in asdict(cause).items() if k != "command"} for cause in self.causes]

    def _repr_html_(self) -> str:
        there = self.folder is not None and (self.folder / PAGE).is_file()
        return str(look_up("audit.page:show")(self.folder if there else self)._repr_html_())

    def _page(self) -> str:
        """The page that the audit wrote, which has all images; else one from the numbers."""
        if self.folder is not None and (self.folder / PAGE).is_file():
            return (self.folder / PAGE).read_text(encoding="utf-8")
        return str(look_up("audit.page:page")(self))


MANIFEST, PAGE, PROGRESS = "audit.json", "report.html", "progress.json"  # in the folder of an audit
_manifest = Manifest(MANIFEST, "audit", Audit, "an audit")
as_plain, save, open_audit = _manifest.to_plain, _manifest.save, _manifest.open

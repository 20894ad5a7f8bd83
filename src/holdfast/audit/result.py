"""The result of an audit: every number with its engine and a command that reproduces it."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

from holdfast.core.patch import Survival
from holdfast.core.result import Result, look_up
from holdfast.engine.manifest import Manifest

NO_THREAT, TRAINED = "none", "training pipeline"  # the first row and the first column of the matrix
TOGETHER = "combined"  # the deployment with the worst option of each family
SHAPES = {"square": "square patch", "circle": "round patch", "sign": "sign-shaped patch"}
Answer: TypeAlias = Literal["holds", "violated", "unknown"]


@dataclass(frozen=True)
class Clean:
    """The clean result: the main metric (0 to 1) with its 95% interval, and all other metrics."""

    metric: str  # name in gates: map50, map, top1, miou, iou_equal
    title: str  # name in tables: mAP@.5
    value: float
    low: float | None
    high: float | None
    images: int
    rule: str
    others: dict[str, float] = field(default_factory=dict)
    command: str = ""


@dataclass(frozen=True)
class NoiseResult:
    """One system noise. `points_lost` = clean − noisy in percentage points, with a paired 95% interval."""

    label: str  # family=option; combined options are joined by " + "
    family: str
    outcome: str  # measured, identical, no effect, impossible, not installed
    points_lost: float | None = None
    low: float | None = None
    high: float | None = None
    changed: int | None = None  # images with a changed prediction
    images: int = 0
    note: str = ""
    command: str = ""
    hypothetical: bool = False  # no product does it: never the headline
    value: float | None = None  # the metric under the noise

    @property
    def before(self) -> float | None:
        """The clean metric on the same images."""
        if self.value is None or self.points_lost is None:
            return None
        return self.value + self.points_lost / 100.0


@dataclass(frozen=True)
class NoiseTarget:
    """The product that the model is deployed on, and the noise options that this product makes."""

    title: str  # TensorRT
    options: tuple[str, ...]  # family=option
    stages: str = ""  # what it reads and resizes images with


@dataclass(frozen=True)
class AttackLevel:
    """The attack at one pixel budget, or with a patch: the metric before and after on the attacked images.

    `aimed` images have a detected object; in `broken` of them all are hidden. S_e = 1 − after / before.
    """

    threat: str  # name in matrix and bounds: "300px", "patch"
    pixels: int  # the budget; of a patch the most pixels in one image
    before: float
    after: float
    aimed: int
    broken: int
    images: int
    mean_pixels: float | None  # over the aimed images
    engine: str
    command: str = ""
    shape: str = "pixels"  # square, circle or sign: one printable patch per object, its size below
    size: str = ""
    sides: tuple[int, ...] = ()  # of all patches in pixels, in ascending order
    survival: tuple[Survival, ...] = ()  # of the patches that break their image, in random views
    deployments: tuple[str, ...] = ()  # that the patch was also optimised for

    @property
    def words(self) -> str:
        """The threat in a few words."""
        if self.shape == "pixels":
            return f"{self.pixels:,} scattered pixels"
        shape = SHAPES[self.shape]
        if not self.sides:
            return f"a {shape} of {self.size} on each object"
        low, high = self.sides[0], self.sides[-1]
        if low == high:
            return f"a {low} × {low} px {shape} on each object"
        middle = self.sides[len(self.sides) // 2]
        return f"a {shape} of {low} to {high} px a side (median {middle}) on each object"

    @property
    def views(self) -> Survival | None:
        """The survival in random views, all transforms together; None if no patch breaks an image."""
        return self.survival[-1] if self.survival else None

    @property
    def effect(self) -> float | None:
        """S_e of the contest; None if nothing was detected before."""
        return 1.0 - self.after / self.before if self.before > 0 else None


@dataclass(frozen=True)
class Proof:
    """The answer to one property of an image or a specification, and the position of the counterexample.

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
    margin: float | None = None  # score of the worst member − threshold
    where: tuple[int, int] | None = None  # column and row of the worst square's top left corner
    note: str = ""
    command: str = ""


@dataclass(frozen=True)
class RecheckAnswer:
    """The answer under one deployment, how many members of the set were run, and a note."""

    now: Answer
    tried: int
    note: str = ""


@dataclass(frozen=True)
class Recheck:
    """A proof or counterexample rechecked under one runtime or precision."""

    threat: str
    image: str
    deployment: str  # family=option
    was: Answer  # for the training pipeline
    now: Answer
    tried: int  # members of the set that were run
    note: str = ""

    @property
    def finding(self) -> bool:
        """Whether the answer changed."""
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
    words: str  # the threat in a few words
    prover: str  # engine of the lower bound; empty: none
    attacker: str
    per_image: tuple[ImageRobustness, ...]

    @property
    def images(self) -> int:
        """The number of images."""
        return len(self.per_image)

    @property
    def certified(self) -> int:
        """The number of certified images."""
        return sum(s.certified for s in self.per_image)

    @property
    def attacked(self) -> int:
        """The number of images that no attack broke."""
        return sum(not s.broken for s in self.per_image)


@dataclass(frozen=True)
class MatrixCell:
    """One cell of the matrix: a threat computed for the training pipeline, under one deployment.

    `value` is the metric of the images with the threat. Of the images broken under the training pipeline
    (`broken_in_training`), `still_broken` are broken here too. `extra_points_lost` = points lost together −
    the sum of the points each loses alone, with its paired 95% interval: significantly above 0 they
    magnify each other, below 0 they overlap.
    """

    threat: str
    deployment: str
    value: float | None  # None: not run; `note` says why
    images: int
    broken_in_training: int = 0
    still_broken: int = 0
    extra_points_lost: float | None = None
    low: float | None = None
    high: float | None = None
    note: str = ""
    command: str = ""

    @property
    def effect(self) -> Literal["", "magnified", "overlaps", "adds up"]:
        """The interaction of threat and deployment; empty if it was not measured."""
        if self.extra_points_lost is None or self.low is None or self.high is None:
            return ""
        return "magnified" if self.low > 0 else "overlaps" if self.high < 0 else "adds up"


@dataclass(frozen=True)
class Matrix:
    """Threats × deployments; the first threat is none, the first deployment the training pipeline."""

    threats: tuple[str, ...] = ()
    deployments: tuple[str, ...] = ()
    cells: tuple[MatrixCell, ...] = ()
    notes: tuple[str, ...] = ()  # images, rule, and the meaning of names

    def at(self, threat: str, deployment: str) -> MatrixCell | None:
        """The cell of a threat under a deployment; None if there is none."""
        return next((s for s in self.cells if (s.threat, s.deployment) == (threat, deployment)), None)


@dataclass(frozen=True)
class Part:
    """A part of the audit: its number of images, and what it skipped."""

    name: str  # evaluate, noise, combine, attack, squares, specs, matrix, recheck
    images: int
    of: int  # images of the dataset
    seconds: float
    planned: float
    skipped: str = ""  # what was skipped and why
    command: str = ""


def _worst(noises: Iterable[NoiseResult]) -> NoiseResult | None:
    measured = [n for n in noises if n.outcome == "measured" and n.points_lost is not None]
    moving = [n for n in measured if n.points_lost or n.changed != 0]
    return max(moving, key=lambda n: (n.points_lost or 0.0, n.changed or 0), default=None)


@dataclass(frozen=True, repr=False)
class Audit(Result):
    """An audit of one model on one dataset."""

    model: dict[str, Any]  # name, path, sha256, task, classes
    data: dict[str, Any]  # name, images, source
    clean: Clean
    noises: tuple[NoiseResult, ...] = ()
    combined: NoiseResult | None = None
    target: NoiseTarget | None = None  # None: the headline of the noise is the worst option of all
    attacks: tuple[AttackLevel, ...] = ()  # scattered pixels, by budget
    patch: AttackLevel | None = None  # one printable patch per object
    proofs: tuple[Proof, ...] = ()
    rechecks: tuple[Recheck, ...] = ()
    bounds: tuple[RobustnessBounds, ...] = ()
    matrix: Matrix = field(default_factory=Matrix)
    parts: tuple[Part, ...] = ()
    notes: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    runs: dict[str, str] = field(default_factory=dict)  # part -> folder of its run, next to the audit's
    command: str = ""
    created: str = ""  # ISO 8601, UTC
    seconds: float = 0.0
    budget: float = 0.0  # seconds; 0: none
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def all_noises(self) -> tuple[NoiseResult, ...]:
        """The noise options, each alone, then the worst combined."""
        return (*self.noises, *([self.combined] if self.combined else []))

    @property
    def all_attacks(self) -> tuple[AttackLevel, ...]:
        """The patch, then the scattered pixels by budget."""
        return (*([self.patch] if self.patch else []), *self.attacks)

    @property
    def worst(self) -> NoiseResult | None:
        """The noise option of some product with the most points lost; None if none changes a prediction."""
        return _worst(noise for noise in self.noises if not noise.hypothetical)

    @property
    def target_noises(self) -> tuple[NoiseResult, ...]:
        """The noise options that the target makes; those of any product without a target."""
        real = [noise for noise in self.noises if not noise.hypothetical]
        return tuple(n for n in real if self.target is None or n.label in self.target.options)

    @property
    def headline_noise(self) -> NoiseResult | None:
        """The worst of the target's noise options, as `worst`."""
        return _worst(self.target_noises)

    @property
    def hypothetical(self) -> frozenset[str]:
        """The noise options that no product has."""
        return frozenset(one.label for one in self.noises if one.hypothetical)

    @property
    def findings(self) -> tuple[Recheck, ...]:
        """The answers that change under a runtime or precision."""
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
        return [{k: v for k, v in asdict(noise).items() if k != "command"} for noise in self.noises]

    def _repr_html_(self) -> str:
        written = self.folder is not None and (self.folder / PAGE).is_file()
        return str(look_up("audit.page:show")(self.folder if written else self)._repr_html_())

    def _page(self) -> str:
        """The page that the audit wrote, which has all images; else one from the numbers."""
        if self.folder is not None and (self.folder / PAGE).is_file():
            return (self.folder / PAGE).read_text(encoding="utf-8")
        return str(look_up("audit.page:page")(self))


MANIFEST, PAGE, PROGRESS = "audit.json", "report.html", "progress.json"  # in the folder of an audit
_manifest = Manifest(MANIFEST, "audit", Audit, "an audit")
as_plain, save, open_audit = _manifest.to_plain, _manifest.save, _manifest.open

"""The options of `holdfast audit` and `holdfast demo`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from holdfast.config import completions
from holdfast.config.options import Option, Options
from holdfast.core.errors import InputError
from holdfast.core.targets import Target
from holdfast.evaluate.options import (
    OUTPUT,
    SCORING,
    ClassOptions,
    DefenceOptions,
    RecordOptions,
    RunOptions,
    SubjectOptions,
)
from holdfast.metrics.points import ENOUGH
from holdfast.noise.options import NOISE

# In the order they run, with the share of the time of each; unused time goes to the others.
SHARES: Mapping[str, float] = {
    "evaluate": 0.10, "noise": 0.27, "attack": 0.27, "squares": 0.11, "specs": 0.04, "matrix": 0.09,
    "recheck": 0.05, "combine": 0.07,
}  # fmt: skip
NEEDS: Mapping[str, tuple[str, ...]] = {
    "combine": ("noise",), "matrix": ("noise", "attack", "squares"), "recheck": ("noise", "squares", "specs"),
}  # fmt: skip
PIXELS = (100, 300, 1000, 3000)  # budgets of an attack
UNITS = (3600.0, 60.0, 1.0)  # seconds of an hour, a minute, a second
EFFORT, GATES, PATCH = "Effort", "Gates", "Printable patch"


def budget_seconds(text: str) -> float:
    """The seconds of '10m', '90s', '1h30m' or '600'; 0 for 'none'."""
    plain = text.strip().lower()
    if plain == "none":
        return 0.0
    match = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?", plain)
    numbers = match.groups() if match else ()
    seconds = sum(float(n or 0) * unit for n, unit in zip(numbers, UNITS, strict=False))
    if seconds <= 0 or seconds > 1e7:
        raise InputError(f"--budget: expected a time such as 10m, 90s or 1h30m, or none, got {text!r}")
    return seconds


def budget_problem(text: str) -> str:
    """The problem with a time budget; empty if there is none."""
    try:
        budget_seconds(text)
    except InputError as problem:
        return str(problem).removeprefix("--budget: ")
    return ""


@dataclass(frozen=True, kw_only=True)
class BudgetOptions(Options, group=EFFORT):
    """The time budget of an audit."""

    budget: Annotated[
        str,
        Option(
            "Time budget: 10m, 90s, 1h30m or none. The audit plans what fits.",
            metavar="TIME",
            problem=budget_problem,
            example="10m",
        ),
    ] = "10m"

    def __post_init__(self) -> None:
        super().__post_init__()
        budget_seconds(self.budget)

    @property
    def budget_seconds(self) -> float:
        """The time budget in seconds; 0: no limit."""
        return budget_seconds(self.budget)


@dataclass(frozen=True, kw_only=True)
class PartOptions(Options, group=EFFORT):
    """Which parts of an audit run."""

    only: Annotated[
        tuple[
            Literal["evaluate", "noise", "attack", "squares", "specs", "matrix", "recheck", "combine"], ...
        ],
        Option("Run only these parts (comma-separated or repeated).", commas=True),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class AuditSettings(PartOptions, BudgetOptions, DefenceOptions, group=EFFORT):
    """Settings of an audit of any model. Image counts that are not given are planned within the budget."""

    noise_images: Annotated[
        int | None, Option("Images tested with every noise option (default: planned).", least=1)
    ] = None
    attack_images: Annotated[int | None, Option("Images to attack (default: planned).", least=1)] = None
    square_images: Annotated[
        int | None, Option("Images tested with a black square at every position (default: planned).", least=1)
    ] = None
    places: Annotated[int, Option("Maximum number of positions of the square.", least=4)] = 400
    square: Annotated[
        float, Option("Side of the square as a fraction of the image's shorter side.", least=0.01, most=0.9)
    ] = 0.05
    pixels: Annotated[tuple[int, ...], Option("Pixel budget of the attack. May be repeated.", least=1)] = (
        PIXELS
    )
    shape: Annotated[
        Literal["square", "circle", "sign"],
        Option("Shape of the printable patch on every object; sign is an octagon.", group=PATCH),
    ] = "square"
    size: Annotated[
        str,
        Option(
            "Size of the patch: its side (38px, or 12cm with --sign-size), or its share of the object's box "
            "(10%).",
            metavar="SIZE",
            group=PATCH,
        ),
    ] = "10%"
    sign_size: Annotated[
        str | None, Option("Width of the objects in centimetres, e.g. 60cm.", metavar="CM", group=PATCH)
    ] = None
    steps: Annotated[int, Option("Gradient steps per attack.", least=1)] = 40
    spec: Annotated[
        tuple[Path, ...], Option("VNN-LIB specification to verify. May be repeated.", refers_to="file")
    ] = ()
    target: Annotated[
        Target | None,
        Option(
            "Product the model is deployed on. The headline of the noise is then the worst option that this "
            "product makes (default: the worst of all options).",
            group=NOISE,
        ),
    ] = None
    rule: Annotated[str, Option("AP rule.", group=SCORING, names=completions.rules)] = "voc"
    calibration: Annotated[
        str | None,
        Option(
            "Calibration images for integer precisions (default: other images of the dataset).",
            metavar="DATA",
            group=NOISE,
            refers_to="data",
            completions=completions.datasets,
        ),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "pixels", tuple(sorted(set(self.pixels))))

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts to run, including those they depend on, in order."""
        chosen = set(self.only or SHARES) | {"evaluate"}
        for name in list(chosen):
            chosen |= set(NEEDS.get(name, ()))
        if not self.spec and "specs" not in self.only:
            chosen.discard("specs")
        return tuple(name for name in SHARES if name in chosen)


@dataclass(frozen=True, kw_only=True)
class AuditedOptions(
    AuditSettings,
    SubjectOptions,
    ClassOptions,
    command="audit",
    examples=(
        "holdfast audit signs-yolo signs:0:24 --budget 1m",
        "holdfast audit signs-yolo signs:0:24 --only evaluate --fail-if 'clean.map50 < 0.5' -o gated.html",
    ),
    group=EFFORT,
):
    """The options that change a number of an audit."""

    seed: Annotated[int, Option("Random seed.", least=0)] = 0


@dataclass(frozen=True, kw_only=True)
class AuditOptions(AuditedOptions, RunOptions, RecordOptions, group=GATES):
    """The options of `holdfast audit`."""

    fail_if: Annotated[
        tuple[str, ...],
        Option(
            "Exit with code 1 if this is true, e.g. 'noise.map50.points_lost > 2'. May be repeated.",
            metavar="GATE",
            example="noise.map50.points_lost > 2",
        ),
    ] = ()
    gates: Annotated[Path | None, Option("TOML file with more gates under [gates].")] = None
    min_images: Annotated[
        int,
        Option(
            "Minimum number of images for a gate to be decided; with fewer it is not decided (exit code 5).",
            least=1,
        ),
    ] = ENOUGH
    json: Annotated[Path | None, Option("Write all results to this JSON file.", group=OUTPUT)] = None
    junit: Annotated[Path | None, Option("Write the gates as JUnit XML.")] = None
    sarif: Annotated[Path | None, Option("Write failed gates and findings as SARIF 2.1.0.")] = None
    out: Annotated[Path, Option("HTML page to write.", short="-o", metavar="PAGE", group=OUTPUT)] = Path(
        "report.html"
    )


@dataclass(frozen=True, kw_only=True)
class DemoOptions(
    BudgetOptions,
    RunOptions,
    command="demo",
    examples=("holdfast demo --budget 1m", "holdfast demo --images 24 --budget 30s -o demo.html"),
):
    """The options of `holdfast demo`."""

    out: Annotated[Path, Option("HTML page to write.", short="-o")] = Path("report.html")
    budget: Annotated[str, Option("Time budget: 4m, 90s or none.", metavar="TIME")] = "4m"
    images: Annotated[int, Option("Number of embedded scenes.", least=2)] = 120
    more: Annotated[bool, Option("Also run a small contest, language and speech models.")] = False
    questions: Annotated[int, Option("With --more: questions per language dataset.", least=2)] = 60
    clips: Annotated[int, Option("With --more: texts for the speech models.", least=2)] = 2
    contest_images: Annotated[int, Option("With --more: images of the contest.", least=2)] = 16

"""The options of `holdfast audit` and `holdfast demo`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from holdfast.config import completions
from holdfast.config.options import Option, Options
from holdfast.core.errors import InputError
from holdfast.evaluate.options import OUTPUT, SCORING, ClassOptions, RecordOptions, RunOptions, SubjectOptions
from holdfast.noise.options import NOISE

# In the order they run, with the share of the time of each; what one leaves over goes to the others.
SHARES: Mapping[str, float] = {
    "evaluate": 0.10, "noise": 0.27, "attack": 0.27, "squares": 0.11, "specs": 0.04, "matrix": 0.09,
    "recheck": 0.05, "combine": 0.07,
}  # fmt: skip
NEEDS: Mapping[str, tuple[str, ...]] = {
    "combine": ("noise",), "matrix": ("noise", "attack", "squares"), "recheck": ("noise", "squares", "specs"),
}  # fmt: skip
ENOUGH = 20  # images from which on a number is more than an indication
PIXELS = (100, 300, 1000, 3000)  # budgets of an attack
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
EFFORT, GATES = "Effort", "Gates"


def budget_seconds(text: str) -> float:
    """The seconds of '10m', '90s', '1h30m' or '600'; 0 for 'none'."""
    plain = text.strip().lower()
    if plain == "none":
        return 0.0
    found = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?", plain)
    seconds = 0.0
    if found is not None:
        seconds = sum(float(n or 0) * UNITS[unit] for n, unit in zip(found.groups(), "hms", strict=True))
    if seconds <= 0 or seconds > 1e7:
        raise InputError(f"--budget: expected a time such as 10m, 90s or 1h30m, or none, got {text!r}")
    return seconds


def budget_problem(text: str) -> str:
    """What is wrong with the time of an audit; empty if nothing is."""
    try:
        budget_seconds(text)
    except InputError as problem:
        return str(problem).removeprefix("--budget: ")
    return ""


@dataclass(frozen=True, kw_only=True)
class BudgetOptions(Options, group=EFFORT):
    """The time of an audit."""

    budget: Annotated[
        str,
        Option(
            "Time for all of it: 10m, 90s, 1h30m, none; what fits is planned.",
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
        """The time of the audit; 0: no limit."""
        return budget_seconds(self.budget)


@dataclass(frozen=True, kw_only=True)
class PartOptions(Options, group=EFFORT):
    """Which parts of an audit run."""

    only: Annotated[
        tuple[
            Literal["evaluate", "noise", "attack", "squares", "specs", "matrix", "recheck", "combine"], ...
        ],
        Option("Only these parts, separated by commas or repeated.", commas=True),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class AuditSettings(PartOptions, BudgetOptions, group=EFFORT):
    """An audit, whatever it audits. Numbers of images that are not given are planned within the budget."""

    noise_images: Annotated[int | None, Option("Images under every noise (default: planned).", least=2)] = (
        None
    )
    attack_images: Annotated[int | None, Option("Images that are attacked (default: planned).", least=1)] = (
        None
    )
    square_images: Annotated[
        int | None, Option("Images with a square at every position (default: planned).", least=1)
    ] = None
    places: Annotated[int, Option("Positions of the square, at most.", least=4)] = 400
    square: Annotated[
        float, Option("Side of the square, relative to the shorter side.", least=0.01, most=0.9)
    ] = 0.05
    pixels: Annotated[tuple[int, ...], Option("Pixel budget of an attack. May be repeated.", least=1)] = (
        PIXELS
    )
    steps: Annotated[int, Option("Gradient steps of an attack.", least=1)] = 40
    spec: Annotated[
        tuple[Path, ...], Option("A VNN-LIB file to verify. May be repeated.", refers_to="file")
    ] = ()
    rule: Annotated[str, Option("AP rule.", group=SCORING, names=completions.rules)] = "voc"
    calibration: Annotated[
        str | None,
        Option(
            "Images to calibrate integer precisions on (default: others of the data).",
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
        """The parts that run, with those they need, in order."""
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
    """Everything that changes a number of an audit."""

    seed: Annotated[int, Option("Random seed.", least=0)] = 0


@dataclass(frozen=True, kw_only=True)
class AuditOptions(AuditedOptions, RunOptions, RecordOptions, group=GATES):
    """The options of `holdfast audit`."""

    fail_if: Annotated[
        tuple[str, ...],
        Option(
            "Exit with code 1 if this holds, e.g. 'noise.map50.drop > 0.02'. May be repeated.",
            metavar="GATE",
            example="noise.map50.drop > 0.02",
        ),
    ] = ()
    gates: Annotated[Path | None, Option("A TOML file with more gates under [gates].")] = None
    min_images: Annotated[
        int, Option("Fewest images that decide a gate; below, it is reported, not failed.", least=1)
    ] = ENOUGH
    json: Annotated[Path | None, Option("Write everything to this JSON file.", group=OUTPUT)] = None
    junit: Annotated[Path | None, Option("Write the gates as JUnit XML.")] = None
    sarif: Annotated[Path | None, Option("Write failed gates and findings as SARIF 2.1.0.")] = None
    out: Annotated[Path, Option("Page to write.", short="-o", metavar="PAGE", group=OUTPUT)] = Path(
        "report.html"
    )


@dataclass(frozen=True, kw_only=True)
class DemoOptions(
    BudgetOptions,
    RunOptions,
    command="demo",
    examples=(
        "holdfast demo --budget 1m",
        "holdfast demo --images 24 --budget 30s -o demo.html",
    ),
):
    """The options of `holdfast demo`."""

    out: Annotated[Path, Option("Page to write.", short="-o")] = Path("report.html")
    budget: Annotated[str, Option("Time for all of it: 4m, 90s, none.", metavar="TIME")] = "4m"
    images: Annotated[int, Option("Number of embedded scenes.", least=2)] = 120
    more: Annotated[bool, Option("Also a small contest, language and speech.")] = False
    questions: Annotated[int, Option("With --more: questions of each set.", least=2)] = 60
    clips: Annotated[int, Option("With --more: texts the speech models speak.", least=2)] = 2
    contest_images: Annotated[int, Option("With --more: images of the contest.", least=2)] = 16

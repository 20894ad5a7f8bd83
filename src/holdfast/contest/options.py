"""The options of `holdfast contest`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from holdfast.config import completions
from holdfast.config.options import Argument, Option, Options
from holdfast.evaluate.options import ExecutionOptions, FormatOptions, JobsOptions

SOURCE, RULES = "Source", "Rules (all are in rules.toml)"
_PACK = "holdfast contest init contest --images 4 && holdfast contest pack contest/images --team us"
_SCORE = "holdfast contest score advimages_us.zip --contest contest"


@dataclass(frozen=True, kw_only=True)
class ContestOptions(Options):
    """The folder of a contest."""

    contest: Annotated[Path, Option("Folder of the contest.", metavar="DIR")]


@dataclass(frozen=True, kw_only=True)
class ArchiveOptions(Options):
    """An entry."""

    archive: Annotated[Path, Argument("Entry: advimages_TEAM.zip.", metavar="ZIP")]


@dataclass(frozen=True, kw_only=True)
class LanguageOptions(Options):
    """The language of problems."""

    lang: Annotated[Literal["en", "zh"], Option("Language of the messages: English or Chinese.")] = "en"


@dataclass(frozen=True, kw_only=True)
class ThreadsOptions(Options):
    """Images that are examined at once."""

    jobs: Annotated[int, Option("Images checked in parallel (0 = one per core).", least=0, most=256)] = 0


@dataclass(frozen=True, kw_only=True)
class InitOptions(
    FormatOptions,
    JobsOptions,
    command="contest init",
    examples=(
        "holdfast contest init contest --images 4",
        "holdfast contest init hard-contest --images 4 --pixels 500 --seed 7",
    ),
):
    """The options of `holdfast contest init`."""

    folder: Annotated[Path, Argument("New or empty folder.", metavar="DIR")]
    data: Annotated[
        str,
        Option("Dataset with true boxes.", metavar="DATA", group=SOURCE, completions=completions.datasets),
    ] = "signs"
    model: Annotated[
        str, Option("Single model, published to participants.", group=SOURCE, completions=completions.models)
    ] = "signs-yolo"
    members: Annotated[
        str | None, Option("Hidden members of the mimic model, comma-separated.", metavar="A,B", group=SOURCE)
    ] = None
    images: Annotated[int, Option("Number of images.", group=SOURCE, least=2, most=1_000_000)] = 1000
    seed: Annotated[int, Option("Random seed of the image order.", group=SOURCE, least=0)] = 0
    name: Annotated[
        str | None, Option("Name of the contest (default: the name of the dataset).", group=SOURCE)
    ] = None
    baselines: Annotated[
        bool, Option("Also score the baselines: identity, grey square, random noise, our attack.")
    ] = False
    pixels: Annotated[int, Option("Maximum number of changed pixels per image.", group=RULES, least=1)] = 3000
    rule: Annotated[str, Option("AP rule.", group=RULES, names=completions.rules)] = "voc"
    score: Annotated[float, Option("Score threshold of a detection.", group=RULES, least=0, most=1)] = 0.25
    nms_iou: Annotated[float, Option("IoU threshold of NMS.", group=RULES, least=0, most=1)] = 0.45
    vote: Annotated[
        int | None, Option("Members that must agree (default: more than half).", group=RULES, least=1)
    ] = None
    vote_iou: Annotated[
        float, Option("IoU threshold at which boxes agree.", group=RULES, least=0, most=1)
    ] = 0.5
    features: Annotated[
        str, Option("Feature network of the distance: signs or inception:FILE.", metavar="NET", group=RULES)
    ] = "signs"
    distance_min: Annotated[float, Option("Distance at which S_s is 1.", group=RULES, least=0)] = 0.0
    distance_max: Annotated[
        float | None,
        Option("Distance at which S_s is 0 (default: that of random noise).", group=RULES, least=0),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ContestScoreOptions(
    ArchiveOptions,
    ContestOptions,
    LanguageOptions,
    ExecutionOptions,
    command="contest score",
    examples=(
        f"{_PACK} && {_SCORE}",
        f"{_SCORE} --dry-run --json score.json",
    ),
):
    """The options of `holdfast contest score`."""

    json: Annotated[Path | None, Option("Write all results to this JSON file.")] = None
    csv: Annotated[Path | None, Option("Write the table of images to this CSV file.")] = None
    keep: Annotated[
        bool, Option("Copy the zip to the folder of the contest, so that it can be rescored.")
    ] = True
    dry_run: Annotated[bool, Option("Do not save the score in the contest.")] = False


@dataclass(frozen=True, kw_only=True)
class BoardOptions(
    ContestOptions,
    command="contest board",
    examples=(
        f"{_PACK} && {_SCORE} && holdfast contest board --contest contest",
        "holdfast contest board --contest contest --history --html board.html",
    ),
):
    """The options of `holdfast contest board`."""

    csv: Annotated[bool, Option("Print the leaderboard as CSV.")] = False
    json: Annotated[Path | None, Option("Write the leaderboard and the history to this JSON file.")] = None
    html: Annotated[Path | None, Option("Write the leaderboard as an HTML page.")] = None
    history: Annotated[bool, Option("Also print every submission in chronological order.")] = False


@dataclass(frozen=True, kw_only=True)
class RescoreOptions(
    ContestOptions,
    JobsOptions,
    command="contest rescore",
    examples=(
        f"{_PACK} && {_SCORE} && holdfast contest rescore --contest contest",
        "holdfast contest rescore --contest contest --jobs 1",
    ),
):
    """The options of `holdfast contest rescore`."""


@dataclass(frozen=True, kw_only=True)
class ContestShowOptions(
    ArchiveOptions,
    ContestOptions,
    JobsOptions,
    command="contest show",
    examples=(
        f"{_PACK} && holdfast contest show advimages_us.zip --contest contest",
        "holdfast contest show advimages_us.zip --contest contest --images 2 -o entry.html",
    ),
):
    """The options of `holdfast contest show`."""

    images: Annotated[int, Option("Number of images to show: half best, half worst.", least=0)] = 12
    out: Annotated[Path, Option("HTML page to write.", short="-o")] = Path("contest.html")


@dataclass(frozen=True, kw_only=True)
class ValidateOptions(
    ArchiveOptions,
    ContestOptions,
    LanguageOptions,
    ThreadsOptions,
    command="contest validate",
    examples=(
        f"{_PACK} && holdfast contest validate advimages_us.zip --contest contest",
        "holdfast contest validate advimages_us.zip --contest contest --lang zh",
    ),
):
    """The options of `holdfast contest validate`."""

    json: Annotated[Path | None, Option("Also write problems and changed pixels to this JSON file.")] = None


@dataclass(frozen=True, kw_only=True)
class PackOptions(
    LanguageOptions,
    ThreadsOptions,
    command="contest pack",
    examples=(_PACK, "holdfast contest pack contest/images --team us --contest contest"),
):
    """The options of `holdfast contest pack`."""

    folder: Annotated[Path, Argument("Folder with 1.png, 2.png, …, or with a subfolder advimages.")]
    team: Annotated[str, Option("Team name: letters (any script), digits, - and _.", metavar="TEAM")]
    out: Annotated[Path, Option("Folder for advimages_TEAM.zip.", metavar="DIR")] = Path()
    contest: Annotated[Path | None, Option("Also validate the zip for this contest.", metavar="DIR")] = None

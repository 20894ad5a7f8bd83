"""`holdfast attack`: few pixels on every image, searched by gradient or from predictions alone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from holdfast.config import offers
from holdfast.config.args import Argument, Option
from holdfast.config.output import say
from holdfast.evaluate.cli import Card, Classes, Format, Images, Jobs, Json, Renames, Split, Stages

if TYPE_CHECKING:
    from holdfast.attack.plan import AttackPlan
    from holdfast.attack.result import Outcome
    from holdfast.core.model import Model as Loaded

SEARCH, LIMIT, AGAINST, RULE, RUN = (
    "How it is searched", "What it may change", "What it must work against", "When a target is found",
    "How it is run",
)  # fmt: skip
Model = Annotated[str, Argument("A detector: an ONNX file or a shipped model.", values=offers.models)]
Data = Annotated[str, Argument("A data set, 'signs', or the folder of a contest.", values=offers.data_sets)]
Out = Annotated[Path, Option("Folder of attacked images, patches and numbers.", shown="DIR", short="-o")]
Pixels = Annotated[int, Option("Changed pixels an image, at most.", group=LIMIT, least=1)]
Amplitude = Annotated[int, Option("Largest change of a channel.", group=LIMIT, least=1, most=255)]
Regions = Annotated[int, Option("Connected regions an image; 0: any number.", group=LIMIT, least=0)]
Seconds = Annotated[float, Option("Time for an image; 0: no limit.", group=LIMIT, least=0)]
Steps = Annotated[
    int, Option("Gradient steps a restart, or queries of the black box.", group=SEARCH, least=1)
]
Restarts = Annotated[int, Option("Begin anew so often, until one succeeds.", group=SEARCH, least=1)]
Mask = Annotated[
    str,
    Option("Which pixels: square, cross, grid, half-neighbour, top-gradient.", shown="NAME", group=SEARCH,
           values=offers.masks),
]  # fmt: skip
Anywhere = Annotated[bool, Option("Also outside the boxes of the targets.", group=SEARCH)]
GoalName = Annotated[
    Literal["vanish", "mislabel", "fabricate"],
    Option("Targets vanish, get another class, or new ones appear.", group=SEARCH),
]
BlackBox = Annotated[bool, Option("From predictions alone: no gradient, any runtime.", group=SEARCH)]
Shrink = Annotated[bool, Option("Then fewest pixels, least amplitude that still do.", group=SEARCH)]
UniversalName = Annotated[
    Literal["none", "spot", "boxes"],
    Option("One patch for all images: at one spot, or on every target.", group=SEARCH),
]
Transforms = Annotated[
    tuple[str, ...],
    Option("Also under shift, scale, rotation, light, jpeg. May be repeated.", "--transform", shown="NAME",
           group=AGAINST, values=offers.transforms),
]  # fmt: skip
Deployments = Annotated[
    tuple[str, ...],
    Option("Also under this noise, e.g. resize=opencv-bilinear. May be repeated.", "--deployment",
           shown="NOISE", group=AGAINST),
]  # fmt: skip
Surrogates = Annotated[
    tuple[str, ...],
    Option("Attack this model too, to transfer better. May be repeated.", "--surrogate", shown="MODEL",
           group=AGAINST, values=offers.models),
]  # fmt: skip
Diverse = Annotated[bool, Option("Random size and place at every step, to transfer better.", group=AGAINST)]
Unseen = Annotated[
    tuple[str, ...],
    Option("Judge this model before and after, unattacked. May be repeated.", "--unseen", shown="MODEL",
           group=AGAINST, values=offers.models),
]  # fmt: skip
Score = Annotated[float, Option("Lowest score that counts.", group=RULE, least=0, most=1)]
Iou = Annotated[float, Option("Overlap of detection and truth, and of AP.", group=RULE, least=0, most=1)]
NmsIou = Annotated[float, Option("Overlap at which boxes are suppressed.", group=RULE, least=0, most=1)]
RuleName = Annotated[
    str, Option("AP rule of mAP before and after.", shown="NAME", group=RULE, values=offers.rules)
]
Features = Annotated[
    str, Option("Network of the Fréchet distance: signs, inception:FILE, onnx:FILE, none.", group=RUN)
]
Seed = Annotated[int, Option("Another seed, another search.", group=RUN, least=0)]
Page = Annotated[bool, Option("Write report.html into DIR.", group=RUN)]


def attack(
    model: Model,
    data: Data,
    out: Out,
    pixels: Pixels = 3000,
    amplitude: Amplitude = 255,
    regions: Regions = 0,
    seconds: Seconds = 0.0,
    mask: Mask = "top-gradient",
    anywhere: Anywhere = False,
    goal: GoalName = "vanish",
    steps: Steps = 100,
    restarts: Restarts = 1,
    shrink: Shrink = True,
    black_box: BlackBox = False,
    universal: UniversalName = "none",
    transforms: Transforms = (),
    deployments: Deployments = (),
    surrogates: Surrogates = (),
    diverse: Diverse = False,
    unseen: Unseen = (),
    score: Score = 0.25,
    iou: Iou = 0.5,
    nms_iou: NmsIou = 0.45,
    rule: RuleName = "voc",
    card: Card = None,
    data_format: Format = None,
    split: Split = None,
    images: Images = None,
    stage: Stages = (),
    classes: Classes = "all",
    rename: Renames = (),
    features: Features = "signs",
    seed: Seed = 0,
    jobs: Jobs = 0,
    page: Page = True,
    json: Json = None,
) -> int:
    """Attack a detector with few pixels on every image; the model itself is never changed.

    DIR gets images/ (attacked PNGs), patches/ (PNG + TOML), attack.json, images.csv and report.html.
    Killed at any point, the same command goes on. Exit code 4: some images could not be read.
    """
    from holdfast.attack.plan import AttackPlan
    from holdfast.attack.types import Limits, Method, Rule
    from holdfast.evaluate.cli import Choices, plan_of
    from holdfast.evaluate.score import Settings
    from holdfast.metrics.rules import rule_named

    _check_detector(model, card)
    choices = Choices(card, data_format, split, images, stage, rename, common=classes == "common", jobs=jobs)
    plan = plan_of(model, data, Settings(rule_named(rule), iou, score), choices)
    how = Method(mask, not anywhere, goal, black_box, shrink, transforms, diverse, Rule(score, iou, nms_iou))
    wanted = AttackPlan(
        plan, out, how, Limits(pixels, amplitude, regions, steps, restarts, seconds), seed,
        _models(surrogates), deployments, _models(unseen), features, universal,
    )  # fmt: skip
    return _show(run_attack(wanted), wanted, page, json)


def _check_detector(model: str, card: Path | None) -> None:
    from holdfast.core.errors import InputError
    from holdfast.graph.load import load_model

    task = load_model(model, card).card.task
    if task not in ("detect", "single"):  # before the data is looked at: that would be the wrong complaint
        raise InputError(f"{model}: expected a detector, got a model to {task}")


def _models(names: tuple[str, ...]) -> tuple[Loaded, ...]:
    from holdfast.graph.load import load_model

    return tuple(load_model(name) for name in names)


def run_attack(wanted: AttackPlan) -> Outcome:
    """The outcome, with progress on standard error; a universal patch is searched first."""
    from holdfast.attack.plan import check_attack
    from holdfast.attack.run import attack as run
    from holdfast.attack.universal import make_universal
    from holdfast.engine.progress import progress

    check_attack(wanted)
    for reason in wanted.plan.model.guessed:
        sys.stderr.write(f"guessed  {reason}\n")
    patch = None
    if wanted.universal != "none":
        with progress("universal patch", wanted.limits.steps * wanted.limits.restarts, "steps") as step:
            patch = make_universal(wanted, step)
    with progress("attack", len(wanted.plan.dataset)) as step:
        return run(wanted, step, patch)


def _show(found: Outcome, wanted: AttackPlan, page: bool, json: Path | None) -> int:
    from holdfast.attack.page import tables, write
    from holdfast.attack.run import as_plain, decoded
    from holdfast.config.output import write_json
    from holdfast.report.tables import to_text

    if json:
        write_json(json, as_plain(found))
    say("\n\n".join(to_text(table) for table in tables(found)))
    if page:
        say(f"report: {write(found, decoded(wanted.plan), wanted.out / 'report.html').resolve()}")
    for failure in found.failed[:20]:
        sys.stderr.write(f"failed   {failure}\n")
    sys.stderr.write(f"images   {wanted.out / 'images'}\n")
    return 4 if found.failed else 0

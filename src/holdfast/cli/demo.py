"""`holdfast demo`: every engine on the embedded model and scenes, and one page about it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from holdfast.cli.args import Option
from holdfast.cli.output import say

if TYPE_CHECKING:
    from holdfast.cli.evaluate import Choices
    from holdfast.report.parts import Section
    from holdfast.run.attack.plan import AttackPlan

MODEL = "signs-yolo"


def demo(
    out: Annotated[Path, Option("The page to write.", short="-o")] = Path("report.html"),
    images: Annotated[int, Option("How many embedded scenes are evaluated.", least=1)] = 400,
    noise_images: Annotated[int, Option("How many of them meet every noise.", least=2)] = 60,
    attack_images: Annotated[int, Option("How many of them are attacked.", least=2)] = 8,
    questions: Annotated[int, Option("How many questions of each set are asked.", least=2)] = 60,
    clips: Annotated[int, Option("How many texts the speech models speak.", least=2)] = 2,
    contest_images: Annotated[int, Option("How many images the small contest has.", least=2)] = 16,
    runs: Annotated[Path, Option("Where the run is kept.", shown="FOLDER")] = Path("holdfast-runs"),
    jobs: Annotated[int, Option("Processes; 0: one a core.", least=0)] = 0,
) -> int:
    """Evaluate the embedded detector, put every noise to it, attack it, run a contest, write the page."""
    from holdfast.core.errors import OutputError

    if out.is_dir():
        raise OutputError(f"{out}: is a folder; give the name of the page, such as {out / 'report.html'}")
    from holdfast.cli.demo_beyond import sections as beyond
    from holdfast.cli.evaluate import Choices, Shape, plan_of, run_plan
    from holdfast.cli.noise import demo_sections
    from holdfast.cli.patchbench_evaluate import demo_sections as positions
    from holdfast.metrics.rules import RULES
    from holdfast.report.html import write
    from holdfast.run.evaluate import run_folder
    from holdfast.run.evaluation import open_run
    from holdfast.run.pictures import pictures
    from holdfast.run.score import Settings

    how = Choices(runs=runs, jobs=jobs)
    plan = plan_of(MODEL, f"signs:0:{images}", Settings(RULES["coco"]), how)
    code = run_plan(plan, Shape())
    more = [
        *demo_sections(MODEL, f"signs:0:{noise_images}", how),
        *_attacked(f"signs:0:{attack_images}", how),
        *_contest(contest_images, how),
        *positions(how.jobs),
        *beyond(how, questions, clips),
    ]
    evaluation = open_run(run_folder(plan))
    say(f"report: {write(evaluation, out, pictures(evaluation), more).resolve()}")
    return code


def _attacked(data: str, how: Choices) -> list[Section]:
    """The attack on a few scenes: by gradient, or from predictions alone where torch is missing."""
    from holdfast.attack.types import Limits, Method
    from holdfast.cli.attack import run_attack
    from holdfast.cli.evaluate import plan_of
    from holdfast.metrics.rules import RULES
    from holdfast.noise.families import is_installed
    from holdfast.report.attack import sections, tables
    from holdfast.report.tables import to_text
    from holdfast.run.attack.measure import clean_pictures
    from holdfast.run.attack.plan import AttackPlan as Planned
    from holdfast.run.score import Settings

    black = not is_installed("torch")
    if black:
        sys.stderr.write("note     torch is not installed: the attack searches from predictions alone\n")
    limits = Limits(steps=400) if black else Limits(steps=40)
    plan = plan_of(MODEL, data, Settings(RULES["voc"], 0.5, 0.25), how)
    wanted = apart(Planned(plan, how.runs / "attack", Method(black_box=black), limits))
    found = run_attack(wanted)
    say("\n\n".join(to_text(table) for table in tables(found)) + "\n")
    return list(sections(found, clean_pictures(wanted), 4))


def apart(wanted: AttackPlan) -> AttackPlan:
    """The attack in a folder of its own name, so that what another version left there is not in the way."""
    from dataclasses import replace

    from holdfast.run.attack.plan import task_of
    from holdfast.run.evaluate import alignment_of

    setup = task_of(wanted, alignment_of(wanted.plan)).setup
    data = wanted.plan.dataset
    name = f"{wanted.out.name}-{data.name}-{len(data)}-{setup[:8]}".replace(":", "-")
    return replace(wanted, out=wanted.out.with_name(name))


def _contest(images: int, how: Choices) -> list[Section]:
    """A contest of a few images with its baselines."""
    from holdfast.cli.progress import progress
    from holdfast.data.contest.rules import RULES_FILE
    from holdfast.report.contest_board import board_section
    from holdfast.run.contest.baselines import enter_baselines
    from holdfast.run.contest.board import board
    from holdfast.run.contest.contest import open_contest
    from holdfast.run.contest.make import finish, make
    from holdfast.run.contest.setup import HIDDEN, MAKING, Setup, ready

    folder = how.runs / f"contest-{images}"
    if (folder / RULES_FILE).is_file() and not (folder / MAKING).exists():
        contest = open_contest(folder)
    else:
        setup = Setup(folder, "signs", MODEL, HIDDEN, images, 0, f"demo of {images} images")
        contest = make(ready(setup), progress, how.jobs)
        finish(folder)
    enter_baselines(contest, progress, how.jobs)
    return [board_section(board(folder))]

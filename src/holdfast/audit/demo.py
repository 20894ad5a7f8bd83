"""`holdfast demo`: the audit of the embedded model on the embedded scenes, and its page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from holdfast.config.args import Option
from holdfast.config.output import say

if TYPE_CHECKING:
    from holdfast.evaluate.cli import Choices
    from holdfast.report.parts import Section

MODEL = "signs-yolo"


def demo(
    out: Annotated[Path, Option("The page to write.", short="-o")] = Path("report.html"),
    budget: Annotated[str, Option("Time for all of it: 4m, 90s, none.", shown="TIME")] = "4m",
    images: Annotated[int, Option("How many embedded scenes there are.", least=2)] = 120,
    more: Annotated[bool, Option("Also a small contest, language and speech.")] = False,
    questions: Annotated[int, Option("With --more: questions of each set.", least=2)] = 60,
    clips: Annotated[int, Option("With --more: texts the speech models speak.", least=2)] = 2,
    contest_images: Annotated[int, Option("With --more: images of the contest.", least=2)] = 16,
    runs: Annotated[Path, Option("Where the run is kept.", shown="FOLDER")] = Path("holdfast-runs"),
    jobs: Annotated[int, Option("Processes; 0: one a core.", least=0)] = 0,
) -> int:
    """Audit the embedded detector: evaluation, noise, patches, proofs, and all of them across each other."""
    from holdfast.audit.cli import AuditChoices, run_audit, told, write_all
    from holdfast.core.errors import OutputError
    from holdfast.evaluate.cli import Choices

    if out.is_dir():
        raise OutputError(f"{out}: is a folder; give the name of the page, such as {out / 'report.html'}")
    how = AuditChoices(
        budget=budget, attack_images=8, square_images=8, pixels=(100, 1000), runs=runs, jobs=jobs
    )
    made = run_audit(MODEL, f"signs:0:{images}", how)
    others = _more(Choices(runs=runs, jobs=jobs), questions, clips, contest_images) if more else []
    write_all(made, (), out, more=others)
    return told(made, ())


def _more(how: Choices, questions: int, clips: int, contest_images: int) -> list[Section]:
    """Sections of what is not about one detector."""
    from holdfast.audit.demo_beyond import sections as beyond

    return [*_contest(contest_images, how), *beyond(how, questions, clips)]


def _contest(images: int, how: Choices) -> list[Section]:
    """A contest of a few images with its baselines."""
    from holdfast.contest.baselines import enter_baselines
    from holdfast.contest.board import board
    from holdfast.contest.contest import open_contest
    from holdfast.contest.make import finish, make
    from holdfast.contest.page import board_section
    from holdfast.contest.rules import RULES_FILE
    from holdfast.contest.setup import HIDDEN, MAKING, Setup, ready
    from holdfast.engine.progress import progress

    folder = how.runs / f"contest-{images}"
    if (folder / RULES_FILE).is_file() and not (folder / MAKING).exists():
        contest = open_contest(folder)
    else:
        setup = Setup(folder, "signs", MODEL, HIDDEN, images, 0, f"demo of {images} images")
        contest = make(ready(setup), progress, how.jobs)
        finish(folder)
    enter_baselines(contest, progress, how.jobs)
    say("")
    return [board_section(board(folder))]

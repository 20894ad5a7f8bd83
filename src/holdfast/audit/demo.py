"""`holdfast demo`: the audit of the embedded model on the embedded scenes, and its page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.audit.options import AuditOptions, DemoOptions
from holdfast.config.options import carry
from holdfast.config.output import check_outputs, say

if TYPE_CHECKING:
    from holdfast.report.parts import Section

MODEL = "signs-yolo"


def demo(options: DemoOptions) -> int:
    """Audit the embedded detector: evaluation, noise, patches, proofs, and all of them across each other."""
    from holdfast.audit.cli import audit_plan, print_verdict, run_plan, write_all

    check_outputs({"--out": options.out}, {})
    audited = carry(
        options,
        AuditOptions,
        model=MODEL,
        data=f"signs:0:{options.images}",
        images=None,
        attack_images=8,
        square_images=8,
        pixels=(100, 1000),
    )
    made = run_plan(audit_plan(audited))
    write_all(made, (), audited, more=_more(options) if options.more else [])
    return print_verdict(made, ())


def _more(options: DemoOptions) -> list[Section]:
    """Sections of what is not about one detector."""
    from holdfast.audit.demo_beyond import sections as beyond

    return [*_contest(options), *beyond(options)]


def _contest(options: DemoOptions) -> list[Section]:
    """A contest of a few images with its baselines."""
    from holdfast.contest.baselines import enter_baselines
    from holdfast.contest.board import board
    from holdfast.contest.contest import open_contest
    from holdfast.contest.make import HIDDEN, MAKING, Setup, finish, make, open_setup
    from holdfast.contest.page import board_section
    from holdfast.contest.rules import RULES_FILE
    from holdfast.engine.progress import progress

    images, jobs = options.contest_images, options.jobs
    folder = options.runs / f"contest-{images}"
    if (folder / RULES_FILE).is_file() and not (folder / MAKING).exists():
        contest = open_contest(folder)
    else:
        setup = Setup(folder, model=MODEL, members=HIDDEN, images=images, name=f"demo of {images} images")
        contest = make(open_setup(setup), progress, jobs)
        finish(folder)
    enter_baselines(contest, progress, jobs)
    say("")
    return [board_section(board(folder))]

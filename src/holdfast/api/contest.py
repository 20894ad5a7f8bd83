"""Patch contests from Python: make one, check, pack and score entries, and read the leaderboard."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from holdfast.api.keywords import build_options, keywords
from holdfast.api.progress import watch
from holdfast.config.output import write_json
from holdfast.contest.options import (
    BoardOptions,
    ContestScoreOptions,
    ContestShowOptions,
    InitOptions,
    PackOptions,
    RescoreOptions,
    ValidateOptions,
)
from holdfast.core.errors import InputError

if TYPE_CHECKING:
    from holdfast.api import option_types as types
    from holdfast.contest.board import Board, ScoreRecord
    from holdfast.contest.contest import Contest
    from holdfast.contest.entry import Examination
    from holdfast.contest.run import Score

__all__ = ["board", "init", "pack", "rescore", "score", "show", "validate"]


@keywords(InitOptions, "folder")
def init(
    folder: str | Path, *, progress: bool | None = None, **options: Unpack[types.ContestInitKeywords]
) -> Contest:
    """Make a contest in a new folder: numbered images that the model recognises, truth, models and rules."""
    from holdfast.contest.baselines import enter_baselines
    from holdfast.contest.make import finish, make, open_setup

    given, phase = build_options(InitOptions, options, "contest.init", folder=folder), watch(progress)
    contest = make(open_setup(given), phase, given.jobs)
    if given.baselines:
        enter_baselines(contest, phase, given.jobs)
    finish(given.folder)
    return contest


@keywords(ValidateOptions, "archive", "contest")
def validate(
    archive: str | Path,
    contest: str | Path,
    *,
    progress: bool | None = None,
    **options: Unpack[types.ContestValidateKeywords],
) -> Examination:
    """Check an entry; `problems` of the result is empty if it is valid."""
    from holdfast.contest.cli import examination_dict

    given = build_options(ValidateOptions, options, "contest.validate", archive=archive, contest=contest)
    examined = _examine(given.archive, given.contest, given.jobs, progress)
    if given.json:
        write_json(given.json, examination_dict(examined))
    return examined


def _examine(archive: Path, contest: Path, jobs: int, progress: bool | None) -> Examination:
    from holdfast.contest.entry import examine
    from holdfast.contest.rules import read_rules
    from holdfast.engine.executor import cores

    rules = read_rules(contest)
    with watch(progress)("validate", rules.images) as step:
        return examine(archive, contest, rules, "en", jobs or min(cores(), 8), lambda done: step(done, 0))


@keywords(PackOptions, "folder")
def pack(
    folder: str | Path, *, progress: bool | None = None, **options: Unpack[types.ContestPackKeywords]
) -> Path:
    """Write the zip to hand in from a folder of images; return its path."""
    from holdfast.contest.entry import pack as write

    given = build_options(PackOptions, options, "contest.pack", folder=folder)
    archive = write(given.folder, given.team, given.out)
    if given.contest is not None:
        _check_valid(_examine(archive, given.contest, given.jobs, progress))
    return archive


def _check_valid(examined: Examination) -> None:
    if examined.problems:
        more = f" (and {len(examined.problems) - 1} more problems)" if len(examined.problems) > 1 else ""
        raise InputError(f"{examined.archive}: {examined.problems[0]}{more}")


@keywords(ContestScoreOptions, "archive", "contest")
def score(
    archive: str | Path,
    contest: str | Path,
    *,
    progress: bool | None = None,
    **options: Unpack[types.ContestScoreKeywords],
) -> Score:
    """Score an entry and enter it into the contest, unless `dry_run` is true."""
    from holdfast.contest.board import enter, images_csv
    from holdfast.contest.contest import open_contest
    from holdfast.contest.run import score as score_archive
    from holdfast.engine.store import write_atomic

    given = build_options(ContestScoreOptions, options, "contest.score", archive=archive, contest=contest)
    opened = open_contest(given.contest)
    _check_valid(_examine(given.archive, given.contest, given.jobs, progress))
    with watch(progress)("score", len(opened.shots)) as step:
        result = score_archive(opened, given.archive, step, given.jobs)
    if given.json:
        write_json(given.json, result.to_plain())
    if given.csv:
        write_atomic(given.csv, images_csv(result.rows).encode(), durable=False)
    if not given.dry_run:
        enter(given.contest, given.archive, result, keep=given.keep)
    return result


@keywords(BoardOptions, "contest")
def board(contest: str | Path, **options: Unpack[types.ContestBoardKeywords]) -> Board:
    """The leaderboard: the best and the last entry of each team."""
    from holdfast.contest.board import board as read
    from holdfast.contest.page import board_page
    from holdfast.report.html import write_page

    given = build_options(BoardOptions, options, "contest.board", contest=contest)
    standings = read(given.contest)
    if given.json:
        write_json(given.json, standings.to_plain())
    if given.html:
        write_page(board_page(standings), given.html, "contest.html")
    return standings


@keywords(RescoreOptions, "contest")
def rescore(
    contest: str | Path, *, progress: bool | None = None, **options: Unpack[types.ContestRescoreKeywords]
) -> tuple[ScoreRecord | str, ...]:
    """Score again what was scored under other rules, models or code; a text says why one could not be."""
    from holdfast.contest.board import rescore as again

    given = build_options(RescoreOptions, options, "contest.rescore", contest=contest)
    return again(given.contest, watch(progress), given.jobs)


@keywords(ContestShowOptions, "archive", "contest")
def show(
    archive: str | Path,
    contest: str | Path,
    *,
    progress: bool | None = None,
    **options: Unpack[types.ContestShowKeywords],
) -> Path:
    """Write an entry as a page of images before and after; return its path."""
    from holdfast.contest.cli import write_entry_page

    given = build_options(ContestShowOptions, options, "contest.show", archive=archive, contest=contest)
    _check_valid(_examine(given.archive, given.contest, given.jobs, progress))
    return write_entry_page(given, watch(progress))[0]

"""`holdfast contest`: create a contest, check, pack and score entries, print the leaderboard."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.config.output import check_outputs, say, write_json
from holdfast.config.parser import command_line
from holdfast.contest import options as opts

if TYPE_CHECKING:
    from holdfast.contest.board import ScoreRecord
    from holdfast.contest.contest import Contest, Phase
    from holdfast.contest.entry import Entry, Examination
    from holdfast.contest.messages import Lang
    from holdfast.contest.rules import Rules
    from holdfast.contest.run import ImageScore, Judgement
    from holdfast.report.patched import AttackedImage


def init(options: opts.InitOptions) -> int:
    """Create a contest: numbered images with detected objects, ground truth, models, rules.toml, images.zip.

    Default: 1,000 embedded scenes. Run the same command again to resume.
    """
    from holdfast.contest.make import finish, make, open_setup, others_of
    from holdfast.engine.executor import progress

    if not others_of(options):
        sys.stderr.write("note     the mimic model has only the single model; add others with --members\n")
    contest = make(open_setup(options), progress, options.jobs)
    if options.baselines:
        from holdfast.contest.baselines import enter_baselines
        from holdfast.core.extras import install_hint

        if hint := install_hint("torch", "attack"):
            sys.stderr.write(f"note     skipped our attack: {hint}\n")
        _print_records(enter_baselines(contest, progress, options.jobs))
    finish(options.folder)
    folder, rules = contest.folder, contest.rules
    hidden = ", ".join(m.name for m in rules.mimic.members[1:]) or "none"
    scale = f"{rules.distance} {rules.distance_min:g} to {rules.distance_max:.6g}"
    say(
        f"{rules.images} images of {len(contest.classes)} classes in {folder}\n"
        f"publish  {folder / 'public'} (images.zip, rules.toml, truth.json, ENTRY.md, {rules.single.name})\n"
        f"entries  advimages_TEAM.zip with advimages/1.png … advimages/{rules.images}.png (public/ENTRY.md)\n"
        f"keep     everything else secret; hidden members of the mimic model: {hidden}\n"
        f"rules    {folder / 'rules.toml'} ({scale})"
    )
    return 0


def score(options: opts.ContestScoreOptions) -> int:
    """Score an entry: S_e, S_s and score of each scenario, and the final score.

    An invalid entry is not scored: all problems are printed, exit code 2.
    """
    from holdfast.contest.baselines import PREFIX
    from holdfast.contest.board import enter, images_csv
    from holdfast.contest.contest import open_contest
    from holdfast.contest.entry import team_of
    from holdfast.contest.page import score_table
    from holdfast.contest.run import score as score_archive
    from holdfast.core.errors import InputError
    from holdfast.engine.executor import progress
    from holdfast.engine.store import write_atomic
    from holdfast.report.tables import to_text

    check_outputs({"--json": options.json, "--csv": options.csv}, {})
    archive = options.archive
    contest = open_contest(options.contest)
    if (team_of(archive.name) or "").startswith(PREFIX):
        reserved = f"team names that begin with {PREFIX} are reserved"
        raise InputError(f"{archive.name}: {reserved}; choose another name")
    examination = _examine(archive, options.contest, contest.rules, options.lang, options.jobs, "check")
    if examination.problems:
        return _refuse(examination, options.lang)
    with progress("score", len(contest.shots)) as step:
        result = score_archive(contest, archive, step, options.jobs)
    if options.json:
        write_json(options.json, result.to_plain())
    if options.csv:
        write_atomic(options.csv, images_csv(result.rows).encode(), durable=False)
    changed = [row.changed_pixels for row in result.rows]
    say(
        f"{result.team} in {result.contest}\n{to_text(score_table(result))}\n\n"
        f"{result.distance_name} {result.distance:.6g}; changed pixels per image: mean "
        f"{sum(changed) / len(changed):.1f}, maximum {max(changed)} (n = {len(changed)})\n"
        f"hash {result.hashes.whole[:16]} (rules, models, data, feature network, code)"
    )
    if not options.dry_run:
        record = enter(options.contest, archive, result, keep=options.keep)
        shown = command_line(opts.BoardOptions(contest=options.contest))
        sys.stderr.write(f"saved    {record.path} ({shown})\n")
    return 0


def _examine(archive: Path, contest: Path, rules: Rules, lang: Lang, jobs: int, what: str) -> Examination:
    """Examine an entry, with progress on standard error."""
    from holdfast.contest.entry import examine
    from holdfast.engine.executor import cores, progress

    with progress(what, rules.images) as step:
        return examine(archive, contest, rules, lang, jobs or min(cores(), 8), lambda done: step(done, 0))


def _refuse(examination: Examination, lang: Lang) -> int:
    sys.stderr.write("".join(f"{line}\n" for line in examination.lines(lang)))
    return 2


def board(options: opts.BoardOptions) -> int:
    """Print the leaderboard: best and last entry of each team; ties share a rank."""
    from holdfast.contest.board import board as board_of
    from holdfast.contest.board import board_table, history_table
    from holdfast.report.tables import to_csv, to_text

    check_outputs({"--json": options.json, "--html": options.html}, {})
    leaderboard = board_of(options.contest)
    if options.json:
        write_json(options.json, leaderboard.to_plain())
    if options.html:
        from holdfast.contest.page import board_page
        from holdfast.report.html import write_page

        write_page(board_page(leaderboard, command_line(options)), options.html, "contest.html")
        sys.stderr.write(f"page     {options.html.resolve()}\n")
    shown = [history_table(leaderboard)] if options.history else []
    if options.csv:
        say("\n".join(to_csv(table) for table in (board_table(leaderboard), *shown)), end="")
    else:
        say("\n\n".join(to_text(table) for table in (board_table(leaderboard), *shown)))
    for stale in leaderboard.stale:
        record, other = stale.record, " and ".join(stale.changed)
        label = f"{record.team}, submission {record.submission}, final {record.final:.4f}"
        sys.stderr.write(f"stale    {label}: not ranked, because {other} changed after it was scored\n")
    if leaderboard.stale:
        sys.stderr.write(f"stale    holdfast contest rescore --contest {options.contest}\n")
    return 0


def rescore(options: opts.RescoreOptions) -> int:
    """Rescore submissions whose rules, models or code have changed; older scores stay in entries/.

    Exit code 4: some submissions could not be rescored.
    """
    from holdfast.contest.board import rescore as rescore_all
    from holdfast.contest.make import PUBLIC, publish_rules
    from holdfast.contest.rules import read_rules
    from holdfast.engine.executor import progress

    contest = options.contest
    outcomes = rescore_all(contest, progress, options.jobs)
    if (contest / PUBLIC).is_dir() and publish_rules(contest, read_rules(contest)):
        say(f"{contest / PUBLIC / 'rules.toml'}: updated; publish it again")
    if not outcomes:
        say("nothing to rescore: every submission has a current score")
        return 0
    problems = [outcome for outcome in outcomes if isinstance(outcome, str)]
    if len(problems) < len(outcomes):
        _print_records([outcome for outcome in outcomes if not isinstance(outcome, str)])
    for problem in problems:
        sys.stderr.write(f"problem  {problem}\n")
    return 4 if problems else 0


def show(options: opts.ContestShowOptions) -> int:
    """Write an entry as a page: original and attacked images, changed regions, amplified difference, boxes.

    The entry is judged as by `contest score`, but the score is not saved. An invalid entry is not shown: all
    problems are printed, exit code 2.
    """
    from holdfast.contest.contest import open_contest
    from holdfast.contest.entry import examine
    from holdfast.engine.executor import cores, progress

    check_outputs({"--out": options.out}, {})
    rules = open_contest(options.contest).rules
    examination = examine(options.archive, options.contest, rules, "en", options.jobs or cores())
    if examination.problems:
        return _refuse(examination, "en")
    page, final = write_entry_page(options, progress)
    say(f"final {final:.4f}\npage: {page} ({page.stat().st_size / 1e6:.1f} MB)")
    return 0


def write_entry_page(options: opts.ContestShowOptions, watch: Phase) -> tuple[Path, float]:
    """Write the page of a valid entry; return its path and the final score of the entry."""
    from holdfast.contest.contest import open_contest
    from holdfast.contest.entry import open_entry
    from holdfast.contest.page import select_rows, show_page
    from holdfast.contest.run import judge, score_of
    from holdfast.core.fingerprint import of_file
    from holdfast.report.html import write_page

    archive, contest = options.archive, open_contest(options.contest)
    entry = open_entry(archive, contest.rules)
    with watch("judge", len(contest.shots)) as step:
        judgement = judge(contest, entry, step, options.jobs)
    result = score_of(contest, judgement, entry.team, of_file(archive))
    rows = select_rows(result.rows, options.images)
    galleries = [attacked_images(contest, judgement, entry, part) for part in rows]
    page = show_page(result, contest.rules, galleries, contest.classes, command_line(options))
    return write_page(page, options.out, "contest.html").resolve(), result.final


def attacked_images(
    contest: Contest, judgement: Judgement, entry: Entry, rows: Sequence[ImageScore]
) -> list[AttackedImage]:
    """The attacked images of these rows with their boxes."""
    from holdfast.contest.page import describe_row
    from holdfast.contest.run import MIMIC, SINGLE
    from holdfast.report.patched import AttackedImage

    result = []
    for row in rows:
        index, shot = row.number - 1, contest.shots[row.number - 1]
        single, mimic = (
            (judgement.before[name][index].detections, judgement.after[name][index].detections)
            for name in (SINGLE, MIMIC)
        )
        truth, pictures = judgement.before[SINGLE][index].truth, (shot.before(), entry.image(row.number))
        result.append(
            AttackedImage(shot.name, describe_row(row), *pictures, truth, detections=single, also=mimic)
        )
    return result


def _print_records(records: Sequence[ScoreRecord]) -> None:
    from holdfast.contest.board import records_table
    from holdfast.report.tables import to_text

    say(to_text(records_table(records)))


def validate(options: opts.ValidateOptions) -> int:
    """Check an entry and print every problem on one line each; exit code 2 if there are any.

    Nothing from the zip is written to disk. A damaged or malicious zip is rejected with one line.
    """
    examination = _validate(options.archive, options.contest, options.lang, options.jobs)
    if options.json:
        write_json(options.json, examination_dict(examination))
    return 2 if examination.problems else 0


def examination_dict(examination: Examination) -> dict[str, Any]:
    """The examination of an entry as JSON values."""
    e, problems = examination, examination.problems
    changed = {str(number): count for number, count in e.changed.items()}
    return {
        "archive": e.archive,
        "team": e.team,
        "good": not problems,
        "files": len(changed),
        "changed_pixels": {"largest": e.largest, "mean": e.mean, "images": changed},
        "problems": [
            {"kind": p.kind, "where": p.where, "text": str(p), "facts": dict(p.facts)} for p in problems
        ],
    }


def pack(options: opts.PackOptions) -> int:
    """Write the zip to submit from a folder of images; the same images give the same bytes."""
    from holdfast.contest.entry import pack as write

    result = write(options.folder, options.team, options.out)
    say(f"written: {result} ({result.stat().st_size / 1e6:.1f} MB)")
    if options.contest is None:
        return 0
    return 2 if _validate(result, options.contest, options.lang, options.jobs).problems else 0


def _validate(archive: Path, contest: Path, lang: Lang, jobs: int) -> Examination:
    from holdfast.contest.rules import read_rules

    examination = _examine(archive, contest, read_rules(contest), lang, jobs, "validate")
    say("\n".join(examination.lines(lang)))
    return examination

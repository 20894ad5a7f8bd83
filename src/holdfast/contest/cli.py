"""`holdfast contest`: a contest made, entries scored, the leaderboard."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from holdfast.config import offers
from holdfast.config.args import Argument, Option
from holdfast.config.output import say

if TYPE_CHECKING:
    from holdfast.contest.contest import Contest
    from holdfast.contest.entry.archive import Entry
    from holdfast.contest.ledger import Record
    from holdfast.contest.run import Judged, Row, Score
    from holdfast.report.patched import Exhibit

FROM, RULES, RUN = "What it is made of", "Rules (all stand in rules.toml)", "How it is run"
Folder = Annotated[Path, Option("The folder of the contest.", "--contest", shown="DIR")]
Jobs = Annotated[int, Option("Processes; 0: one a core.", group=RUN, least=0)]
Data = Annotated[str, Option("Images with true boxes.", shown="DATA", group=FROM, values=offers.data_sets)]
Model = Annotated[str, Option("The single model, known to all.", group=FROM, values=offers.models)]
Members = Annotated[
    str | None, Option("The mimic model's other members, hidden; commas between.", shown="A,B", group=FROM)
]
Images = Annotated[int, Option("How many images.", group=FROM, least=2, most=1_000_000)]
Seed = Annotated[int, Option("Another seed, another order.", group=FROM, least=0)]
Format = Annotated[
    str | None, Option("The data's format.", "--format", shown="NAME", group=FROM, values=offers.formats)
]
Split = Annotated[str | None, Option("The data's split.", shown="NAME", group=FROM)]
Name = Annotated[str | None, Option("What the contest is called; default: as the data.", group=FROM)]
Baselines = Annotated[bool, Option("Also score identity, grey square, random noise, our attack.")]
Pixels = Annotated[int, Option("Changed pixels an image, at most.", group=RULES, least=1)]
Rule = Annotated[str, Option("How AP is computed.", shown="NAME", group=RULES, values=offers.rules)]
LeastScore = Annotated[float, Option("Least score of a detection.", group=RULES, least=0, most=1)]
Nms = Annotated[float, Option("NMS threshold.", group=RULES, least=0, most=1)]
Votes = Annotated[
    int | None, Option("Members that must agree; default: more than half.", group=RULES, least=1)
]
VoteIou = Annotated[float, Option("… on a box, from this IoU.", group=RULES, least=0, most=1)]
Features = Annotated[str, Option("Network of the distance: signs, inception:FILE.", shown="NET", group=RULES)]
Nearest = Annotated[float, Option("Distance at which S_s is 1.", group=RULES, least=0)]
Farthest = Annotated[
    float | None, Option("… at which it is 0; default: that of random noise.", group=RULES, least=0)
]


def init(
    folder: Annotated[Path, Argument("A new or empty folder.", shown="DIR")],
    data: Data = "signs",
    model: Model = "signs-yolo",
    members: Members = None,
    images: Images = 1000,
    seed: Seed = 0,
    data_format: Format = None,
    split: Split = None,
    name: Name = None,
    baselines: Baselines = False,
    pixels: Pixels = 3000,
    rule: Rule = "voc",
    score: LeastScore = 0.25,
    nms_iou: Nms = 0.45,
    vote: Votes = None,
    vote_iou: VoteIou = 0.5,
    features: Features = "signs",
    distance_min: Nearest = 0.0,
    distance_max: Farthest = None,
    jobs: Jobs = 0,
) -> int:
    """Make a contest: numbered images the model recognises, truth, models, rules.toml, images.zip.

    With no options: 1,000 scenes of the embedded signs. The same command goes on with a half-made one.
    """
    from holdfast.contest.make import finish, make
    from holdfast.contest.setup import HIDDEN, Setup, ready
    from holdfast.engine.progress import progress

    others = _others(members, model, HIDDEN)
    made = ready(
        Setup(
            folder, data, model, others, images, seed, name or "", distance_min=distance_min,
            distance_max=distance_max, features=features, pixels=pixels, ap=rule, score=score,
            nms_iou=nms_iou, least=vote, vote_iou=vote_iou, data_format=data_format, split=split,
        )
    )  # fmt: skip
    contest = make(made, progress, jobs)
    if baselines:
        from holdfast.contest.baselines import enter_baselines
        from holdfast.stages.families import is_installed

        if not is_installed("torch"):
            sys.stderr.write(
                "note     our attack is left out: it needs torch: pip install 'holdfast[torch]'\n"
            )
        say(_records_text(enter_baselines(contest, progress, jobs)))
    finish(folder)
    say(_made_text(contest))
    return 0


def _others(members: str | None, model: str, hidden: tuple[str, ...]) -> tuple[str, ...]:
    """The mimic model's members besides the single one; the shipped ones if nothing is said of models."""
    if members is None and model == "signs-yolo":
        return hidden
    others = tuple(m.strip() for m in (members or "").split(",") if m.strip())
    if not others:
        sys.stderr.write("note     the mimic model is the single model alone; --members adds others\n")
    return others


def _made_text(contest: Contest) -> str:
    folder, rules = contest.folder, contest.rules
    kept = ", ".join(m.name for m in rules.mimic.members[1:]) or "none"
    scale = f"{rules.distance} {rules.distance_min:g} to {rules.distance_max:.6g}"
    return (
        f"{rules.images} images of {len(contest.classes)} classes in {folder}\n"
        f"publish  {folder / 'public'} (images.zip, rules.toml, truth.json, {rules.single.name})\n"
        f"keep     all else; hidden members of the mimic model: {kept}\n"
        f"rules    {folder / 'rules.toml'} (every open point; {scale})"
    )


def score(
    archive: Annotated[Path, Argument("The entry: advimages_TEAM.zip.", shown="ZIP")],
    contest: Folder,
    json: Annotated[Path | None, Option("Write all numbers and the table of images to this file.")] = None,
    csv: Annotated[Path | None, Option("Write the table of images to this file.")] = None,
    keep: Annotated[bool, Option("Copy the zip into the contest's folder, to score it again later.")] = True,
    dry: Annotated[bool, Option("Do not enter the score into the contest.", "--dry-run")] = False,
    lang: Annotated[Literal["en", "zh"], Option("The language of problems.")] = "en",
    jobs: Jobs = 0,
) -> int:
    """Score an entry: S_e, S_s and score of each scenario, and the final score.

    An entry that is not valid is not scored: all problems are printed, the exit code is 2.
    """
    from holdfast.config.output import write_json
    from holdfast.contest.baselines import PREFIX
    from holdfast.contest.contest import open_contest
    from holdfast.contest.entry.names import team_of
    from holdfast.contest.entry.validate import examine
    from holdfast.contest.ledger import enter, images_csv
    from holdfast.contest.run import score as score_archive
    from holdfast.core.errors import InputError
    from holdfast.engine.executor import cores
    from holdfast.engine.progress import progress
    from holdfast.engine.store import write_atomic

    _check_files(json, csv)
    opened = open_contest(contest)
    if (team_of(archive.name) or "").startswith(PREFIX):
        raise InputError(f"{archive.name}: teams called {PREFIX}… are the contest's own; take another name")
    with progress("check", len(opened.shots)) as step:
        seen = examine(archive, contest, opened.rules, lang, jobs or cores(), lambda done: step(done, 0))
    if seen.problems:
        sys.stderr.write("".join(f"{line}\n" for line in seen.lines(lang)))
        return 2
    with progress("score", len(opened.shots)) as step:
        made = score_archive(opened, archive, step, jobs)
    if json:
        write_json(json, made.to_plain())
    if csv:
        write_atomic(csv, images_csv(made.rows).encode(), durable=False)
    say(_score_text(made))
    if not dry:
        record = enter(contest, archive, made, keep=keep)
        sys.stderr.write(f"entered  {record.path} (holdfast contest board --contest {contest})\n")
    return 0


def board(
    contest: Folder,
    csv: Annotated[bool, Option("Print the board as CSV.")] = False,
    json: Annotated[Path | None, Option("Write the board and the history to this file.")] = None,
    html: Annotated[Path | None, Option("Write the board as a page.")] = None,
    history: Annotated[bool, Option("Also every submission, in the order they came.")] = False,
) -> int:
    """Print the leaderboard: best and last entry of each team; ties share a rank."""
    from holdfast.config.output import write_json
    from holdfast.contest.board import board as board_of
    from holdfast.contest.board import board_table, history_table, stale_lines
    from holdfast.report.tables import to_csv, to_text

    _check_files(json, html)
    found = board_of(contest)
    if json:
        write_json(json, found.to_plain())
    if html:
        from holdfast.contest.page import board_page, write

        write(board_page(found, shlex.join(["holdfast", *sys.argv[1:]])), html)
        sys.stderr.write(f"page     {html.resolve()}\n")
    shown = [history_table(found)] if history else []
    if csv:
        say("\n".join(to_csv(table) for table in (board_table(found), *shown)), end="")
    else:
        say("\n\n".join(to_text(table) for table in (board_table(found), *shown)))
    for line in stale_lines(found, contest):
        sys.stderr.write(f"stale    {line}\n")
    return 0


def rescore(contest: Folder, jobs: Jobs = 0) -> int:
    """Score again what was scored under other rules, models or code; older scores stay as files in entries/.

    Exit code 4 means: done, but some submissions could not be scored again.
    """
    from holdfast.contest.make import PUBLIC, publish_rules
    from holdfast.contest.rescore import rescore as again
    from holdfast.contest.rules import read_rules
    from holdfast.engine.progress import progress

    outcomes = again(contest, progress, jobs)
    if (contest / PUBLIC).is_dir() and publish_rules(contest, read_rules(contest)):
        say(f"{contest / PUBLIC / 'rules.toml'}: written anew, to be published")
    if not outcomes:
        say("nothing to score again: every submission has a score under the contest as it is")
        return 0
    done = [o.after for o in outcomes if o.after is not None]
    if done:
        say(_records_text(tuple(done)))
    for outcome in outcomes:
        if outcome.problem:
            sys.stderr.write(f"problem  {outcome.problem}\n")
    return 4 if len(done) < len(outcomes) else 0


def show(
    archive: Annotated[Path, Argument("The entry: advimages_TEAM.zip.", shown="ZIP")],
    contest: Annotated[Path, Option("The folder of the contest.", shown="DIR")],
    out: Annotated[Path, Option("The page to write.", short="-o")] = Path("contest.html"),
    images: Annotated[int, Option("Images to show: half the best, half the worst.", least=0)] = 12,
    jobs: Annotated[int, Option("Processes; 0: one a core.", least=0)] = 0,
) -> int:
    """Write an entry as a page: original, adversarial, mask, difference ×10, boxes before and after.

    The entry is judged as `contest score` does it, but no score is entered. An entry that is not valid is not
    shown: all problems are printed, the exit code is 2.
    """
    from holdfast.contest.contest import open_contest
    from holdfast.contest.entry.archive import open_entry
    from holdfast.contest.entry.validate import examine
    from holdfast.contest.page import chosen, show_page, write
    from holdfast.contest.run import judge, score_of
    from holdfast.core.errors import OutputError
    from holdfast.core.fingerprint import of_file
    from holdfast.engine.executor import cores
    from holdfast.engine.progress import progress

    if out.is_dir():
        raise OutputError(f"{out}: is a folder; give the name of the page, such as {out / 'contest.html'}")
    opened = open_contest(contest)
    seen = examine(archive, contest, opened.rules, "en", jobs or cores())
    if seen.problems:
        sys.stderr.write("".join(f"{line}\n" for line in seen.lines("en")))
        return 2
    entry = open_entry(archive, opened.rules)
    with progress("judge", len(opened.shots)) as step:
        judged = judge(opened, entry, step, jobs)
    made = score_of(opened, judged, entry.team, of_file(archive))
    best, worst = (exhibits(opened, judged, entry, rows) for rows in chosen(made.rows, images))
    command = shlex.join(["holdfast", *sys.argv[1:]])
    page = show_page(made, opened.rules, best, worst, opened.classes, command)
    say(f"final {made.final:.4f}\npage: {write(page, out).resolve()} ({len(page.encode()) / 1e6:.1f} MB)")
    return 0


def exhibits(contest: Contest, judged: Judged, entry: Entry, rows: Sequence[Row]) -> list[Exhibit]:
    """The images of these rows with all that is drawn on them."""
    from holdfast.contest.page import told
    from holdfast.contest.run import MIMIC, SINGLE
    from holdfast.report.patched import Exhibit

    places = {shot.number: place for place, shot in enumerate(contest.shots)}
    made = []
    for row in rows:
        place = places[row.number]
        said = {
            name: (records[place].detections, judged.after[name][place].detections)
            for name, records in judged.before.items()
        }
        truth = judged.before[SINGLE][place].truth
        pictures = contest.shots[place].before(), entry.image(row.number)
        made.append(Exhibit(f"{row.number}.png", told(row), *pictures, truth, said[SINGLE], said[MIMIC]))
    return made


def _check_files(*paths: Path | None) -> None:
    """Nothing, or InputError before any work is done: a result cannot be written to a folder."""
    from holdfast.core.errors import InputError

    for path in paths:
        if path is not None and path.is_dir():
            raise InputError(f"{path}: is a folder; give the name of a file")


def _score_text(made: Score) -> str:
    from holdfast.contest.page import score_table
    from holdfast.report.tables import to_text

    changed = [row.changed_pixels for row in made.rows]
    pixels = f"{sum(changed) / len(changed):.1f} changed pixels on average, {max(changed)} at most"
    return (
        f"{made.team} in {made.contest}\n{to_text(score_table(made))}\n\n"
        f"{made.distance_name} {made.distance:.6g}, {pixels}\n"
        f"hash {made.hashes.whole[:16]} (rules, models, data, feature net, code)"
    )


def _records_text(records: tuple[Record, ...]) -> str:
    from holdfast.contest.board import records_table
    from holdfast.report.tables import to_text

    return to_text(records_table(records))

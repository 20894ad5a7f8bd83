"""`holdfast contest show`: what an entry did to the images, as a page."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from holdfast.config.args import Argument, Option
from holdfast.config.output import say

if TYPE_CHECKING:
    from holdfast.contest.contest import Contest
    from holdfast.contest.entry.archive import Entry
    from holdfast.contest.run import Judged, Row
    from holdfast.report.patched import Exhibit


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
    from holdfast.contest.page import show_page, write
    from holdfast.contest.pictures import chosen
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
    from holdfast.contest.pictures import told
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

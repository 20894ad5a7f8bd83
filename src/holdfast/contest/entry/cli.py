"""`holdfast contest validate` and `holdfast contest pack`: for those who take part."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from holdfast.config.args import Argument, Option
from holdfast.config.output import say

if TYPE_CHECKING:
    from holdfast.contest.entry.messages import Lang
    from holdfast.contest.entry.validate import Examined

Contest = Annotated[Path, Option("The contest's folder: rules.toml and images/.", shown="DIR")]
Language = Annotated[Literal["en", "zh"], Option("The language of the problems: English or Chinese.")]
Jobs = Annotated[int, Option("Images looked at side by side; 0: one a processor.", least=0, most=256)]


def validate(
    archive: Annotated[Path, Argument("The zip to hand in, advimages_TEAM.zip.", shown="ZIP")],
    contest: Contest,
    lang: Language = "en",
    json: Annotated[Path | None, Option("Also write problems and changed pixels to this JSON file.")] = None,
    jobs: Jobs = 0,
) -> int:
    """Check an entry: every problem in one run, one line each; exit code 2 if there are any.

    Nothing of the zip is written to the disk. A zip that is damaged or hostile is refused in one line and not
    looked into further.
    """
    examined = _examine(archive, contest, lang, jobs)
    if json:
        from holdfast.config.output import write_json

        write_json(json, as_dict(examined))
    return 2 if examined.problems else 0


def pack(
    folder: Annotated[
        Path, Argument("A folder of 1.png, 2.png, …, or one with such a folder advimages in it.")
    ],
    team: Annotated[str, Option("The team: letters (of any script), digits, - and _.", shown="TEAM")],
    out: Annotated[Path, Option("Where advimages_TEAM.zip is written.", shown="DIR")] = Path(),
    contest: Annotated[Path | None, Option("Validate the zip for this contest as well.", shown="DIR")] = None,
    lang: Language = "en",
    jobs: Jobs = 0,
) -> int:
    """Write the zip to hand in from a folder of images: the same bytes for the same images."""
    from holdfast.contest.entry.pack import pack as write

    made = write(folder, team, out)
    say(f"written: {made} ({made.stat().st_size / 1e6:.1f} MB)")
    if contest is None:
        return 0
    return 2 if _examine(made, contest, lang, jobs).problems else 0


def _examine(archive: Path, contest: Path, lang: Lang, jobs: int) -> Examined:
    """What was found, after it was printed."""
    import os

    from holdfast.contest.entry.validate import examine
    from holdfast.contest.rules import read_rules
    from holdfast.engine.progress import progress

    rules = read_rules(contest)
    with progress("validate", rules.images) as step:
        jobs = jobs or min(os.cpu_count() or 1, 8)
        examined = examine(archive, contest, rules, lang, jobs, lambda done: step(done, 0))
    say("\n".join(examined.lines(lang)))
    return examined


def as_dict(examined: Examined) -> dict[str, object]:
    """What --json writes."""
    return {
        "archive": examined.archive,
        "team": examined.team,
        "good": not examined.problems,
        "files": len(examined.changed),
        "changed_pixels": {
            "largest": examined.largest,
            "mean": examined.mean,
            "images": {str(number): count for number, count in examined.changed.items()},
        },
        "problems": [
            {"kind": p.kind, "where": p.where, "text": str(p), "facts": dict(p.facts)}
            for p in examined.problems
        ],
    }

"""`holdfast contest validate` and `holdfast contest pack`: for those who take part."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.config.output import say
from holdfast.contest.options import PackOptions, ValidateOptions

if TYPE_CHECKING:
    from holdfast.contest.entry.messages import Lang
    from holdfast.contest.entry.validate import Examined


def validate(options: ValidateOptions) -> int:
    """Check an entry: every problem in one run, one line each; exit code 2 if there are any.

    Nothing of the zip is written to the disk. A zip that is damaged or hostile is refused in one line and not
    looked into further.
    """
    examined = _examine(options.archive, options.contest, options.lang, options.jobs)
    if options.json:
        from holdfast.config.output import write_json

        write_json(options.json, as_dict(examined))
    return 2 if examined.problems else 0


def pack(options: PackOptions) -> int:
    """Write the zip to hand in from a folder of images: the same bytes for the same images."""
    from holdfast.contest.entry.pack import pack as write

    made = write(options.folder, options.team, options.out)
    say(f"written: {made} ({made.stat().st_size / 1e6:.1f} MB)")
    if options.contest is None:
        return 0
    return 2 if _examine(made, options.contest, options.lang, options.jobs).problems else 0


def _examine(archive: Path, contest: Path, lang: Lang, jobs: int) -> Examined:
    """Examine the archive and print the problems."""
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

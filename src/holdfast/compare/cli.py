"""`holdfast compare`: two runs side by side."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from holdfast.config.options import Argument, Option, Options
from holdfast.config.output import check_outputs, say
from holdfast.config.parser import command_line


@dataclass(frozen=True, kw_only=True)
class CompareOptions(
    Options,
    command="compare",
    examples=(
        (
            "holdfast evaluate signs-free signs:0:9 && "
            "holdfast evaluate signs-plain signs:0:9 && "
            "holdfast compare holdfast-runs/signs-free-on-signs-0-9 holdfast-runs/signs-plain-on-signs-0-9"
        ),
        (
            "holdfast compare holdfast-runs/signs-free-on-signs-0-9 holdfast-runs/signs-plain-on-signs-0-9 "
            "-o compare.html"
        ),
    ),
):
    """The options of `holdfast compare`."""

    run_a: Annotated[
        Path, Argument("Run before: evaluation, noise suite, attack or audit; its folder or manifest.")
    ]
    run_b: Annotated[Path, Argument("Run after, of the same kind, on the same data.")]
    json: Annotated[Path | None, Option("Write all rows to this JSON file.")] = None
    markdown: Annotated[bool, Option("Print the tables as Markdown.")] = False
    out: Annotated[Path | None, Option("Also write one HTML page.", short="-o")] = None


def compare(options: CompareOptions) -> None:
    """Compare two runs: what became better or worse, with paired intervals.

    Where the records of the same images are at hand, the interval is of the difference on those images. Where
    they are not, it says so. Exit code 0 whatever became worse: gates are for that.
    """
    from holdfast.compare.page import text, write
    from holdfast.compare.result import as_plain
    from holdfast.compare.run import compare_runs

    check_outputs({"--out": options.out, "--json": options.json}, {})
    found = compare_runs(options.run_a, options.run_b)
    if options.json:
        from holdfast.config.output import write_json

        write_json(options.json, as_plain(found))
    say(text(found, markdown=options.markdown))
    if options.out:
        page = write(found, options.out, command_line(options))
        say(f"report   {page.resolve()}", sys.stderr)

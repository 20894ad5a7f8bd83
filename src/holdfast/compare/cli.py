"""`holdfast compare`: compare two runs."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from holdfast.config.options import Argument, Option, Options
from holdfast.config.output import check_outputs, say
from holdfast.config.parser import command_line

_EXAMPLE = "holdfast compare holdfast-runs/signs-free-on-signs-0-9 holdfast-runs/signs-plain-on-signs-0-9"


@dataclass(frozen=True, kw_only=True)
class CompareOptions(
    Options,
    command="compare",
    examples=(
        "holdfast evaluate signs-free signs:0:9 && holdfast evaluate signs-plain signs:0:9 && " + _EXAMPLE,
        f"{_EXAMPLE} -o compare.html",
    ),
):
    """The options of `holdfast compare`."""

    run_a: Annotated[
        Path, Argument("Run A: evaluation, noise suite, attack or audit; its folder or manifest.")
    ]
    run_b: Annotated[Path, Argument("Run B, of the same kind, on the same data.")]
    json: Annotated[Path | None, Option("Write all numbers to this JSON file.")] = None
    markdown: Annotated[bool, Option("Print the tables as Markdown.")] = False
    out: Annotated[Path | None, Option("Write the page to this HTML file.", short="-o")] = None


def compare(options: CompareOptions) -> None:
    """Compare two runs: B − A of every number in percentage points, and whether B is better or worse.

    Differences have a paired 95% interval where both runs still have the records of the same images. The
    exit code is 0 even if B is worse; use the gates of `holdfast audit` to fail a build.
    """
    from holdfast.compare.page import text, write
    from holdfast.compare.result import as_plain
    from holdfast.compare.run import compare_runs

    check_outputs({"--out": options.out, "--json": options.json}, {})
    comparison = compare_runs(options.run_a, options.run_b)
    if options.json:
        from holdfast.config.output import write_json

        write_json(options.json, as_plain(comparison))
    say(text(comparison, markdown=options.markdown))
    if options.out:
        page = write(comparison, options.out, command_line(options))
        say(f"report   {page.resolve()}", sys.stderr)

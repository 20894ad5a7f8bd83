"""`holdfast compare`: two runs side by side."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

from holdfast.config.args import Argument, Option
from holdfast.config.output import say

Run = "evaluation, noise suite, attack or audit: its folder or manifest."


def compare(
    run_a: Annotated[Path, Argument(f"The run before: {Run}")],
    run_b: Annotated[Path, Argument("The run after, of the same kind, on the same data.")],
    out: Annotated[Path | None, Option("Also write one HTML page.", short="-o")] = None,
    json: Annotated[Path | None, Option("Write all rows to this JSON file.")] = None,
    markdown: Annotated[bool, Option("Print the tables as Markdown.")] = False,
) -> None:
    """Compare two runs: what became better or worse, with paired intervals.

    Where the records of the same images are at hand, the interval is of the difference on those images. Where
    they are not, it says so. Exit code 0 whatever became worse: gates are for that.
    """
    from holdfast.compare.page import text, write
    from holdfast.compare.result import as_plain
    from holdfast.compare.run import compare_runs
    from holdfast.core.errors import InputError

    for name, path in (("--out", out), ("--json", json)):
        if path is not None and path.is_dir():
            raise InputError(f"{name} {path}: is a folder; give the name of a file")
    found = compare_runs(run_a, run_b)
    if json:
        from holdfast.config.output import write_json

        write_json(json, as_plain(found))
    say(text(found, markdown=markdown))
    if out:
        page = write(found, out, shlex.join(["holdfast", *sys.argv[1:]]))
        say(f"report   {page.resolve()}", sys.stderr)

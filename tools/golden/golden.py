"""Record what about 60 `holdfast` commands print and write, and compare a later tree with the record.

    python tools/golden/golden.py record              # run all commands, write tools/golden/expected/
    python tools/golden/golden.py compare             # run all commands, print every difference; exit code 1
    python tools/golden/golden.py compare --only noise --only noise-list
    python tools/golden/golden.py diff OLD NEW        # two recorded folders, without running anything

`--only NAME` runs only these commands, in the folder `--work`, which keeps what earlier commands wrote.
A record holds exit codes, standard output, errors, JSON, tables and the structure of pages. Times, dates,
hashes, versions and paths are replaced by placeholders, and numbers are rounded to five significant digits.
"""

from __future__ import annotations

import argparse
import difflib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from commands import COMMANDS, HELP, Command, prepare
from normalise import normalise_file, normalise_text

HERE = Path(__file__).resolve().parent
EXPECTED = HERE / "expected"


def run(arguments: list[str], work: Path) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of one `holdfast` command in the work folder."""
    environment = {**os.environ, "COLUMNS": "110", "NO_COLOR": "1", "TERM": "dumb", "PYTHONHASHSEED": "0"}
    program = Path(sys.executable).parent / "holdfast"
    done = subprocess.run(
        [str(program), *arguments], cwd=work, env=environment, capture_output=True, text=True, timeout=900
    )
    return done.returncode, done.stdout, done.stderr


def record_help(work: Path) -> str:
    """The help texts of all commands, one after the other."""
    parts = []
    for name in HELP:
        code, text, _ = run([*name.split(), "--help"], work)
        parts.append(f"$ holdfast {name} --help\nexit code {code}\n{text}")
    return normalise_text("\n".join(parts), work)


def record_command(command: Command, work: Path) -> str:
    """Everything that is compared of one command, as one text."""
    code, out, errors = run(command.arguments, work)
    parts = [f"$ holdfast {command.line}", f"exit code {code}", "--- stdout", normalise_text(out, work)]
    parts += ["--- stderr", normalise_text(errors, work, progress=False)]
    for name in command.reads:
        path = work / name
        parts += [f"--- {name}", normalise_file(path, work) if path.is_file() else "(no such file)"]
    return "\n".join(parts) + "\n"


def record(target: Path, only: list[str], work: Path | None) -> None:
    """Run the commands and write one text file per command into the target folder."""
    folder = work or Path(tempfile.mkdtemp(prefix="holdfast-golden-"))
    folder.mkdir(parents=True, exist_ok=True)
    target.mkdir(parents=True, exist_ok=True)
    prepare(folder)
    if not only or "help" in only:
        (target / "help.txt").write_text(record_help(folder))
    run(["evaluate", "signs-free", "signs:0:24"], folder)  # the second run that `compare` names
    for command in COMMANDS:
        if not only or command.name in only:
            print(command.name, flush=True)
            (target / f"{command.name}.txt").write_text(record_command(command, folder))
    if work is None:
        shutil.rmtree(folder)


def differences(old: Path, new: Path) -> list[str]:
    """Unified differences of all texts of two recorded folders; a text that only one of them has counts."""
    lines: list[str] = []
    for path in sorted(new.glob("*.txt")):
        before = old / path.name
        a = before.read_text().splitlines() if before.is_file() else []
        b = path.read_text().splitlines()
        lines += difflib.unified_diff(a, b, f"old/{path.name}", f"new/{path.name}", lineterm="", n=2)
    return lines


def main() -> int:
    """Run the subcommand that the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=("record", "compare", "diff"))
    parser.add_argument("folders", nargs="*", type=Path, help="with diff: two recorded folders")
    parser.add_argument("--only", action="append", default=[], help="run only this command")
    parser.add_argument("--work", type=Path, help="run in this folder and keep it")
    parser.add_argument("--out", type=Path, help="with compare: keep the new record in this folder")
    options = parser.parse_args()
    if options.action == "record":
        record(options.out or EXPECTED, options.only, options.work)
        return 0
    if options.action == "diff":
        lines = differences(*options.folders)
    else:
        new = options.out or Path(tempfile.mkdtemp(prefix="holdfast-golden-new-"))
        record(new, options.only, options.work)
        lines = differences(EXPECTED, new)
    print("\n".join(lines) or "no difference")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())

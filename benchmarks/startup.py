"""CPU seconds of `import holdfast` and of small commands, each in a new process, best of ten."""

from __future__ import annotations

import compileall
import resource
import subprocess
import sys
from pathlib import Path

import holdfast

COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "import holdfast": ["-c", "import holdfast"],
    "holdfast --help": ["-m", "holdfast", "--help"],
    "holdfast --version": ["-m", "holdfast", "--version"],
    "holdfast evaluate --explain": ["-m", "holdfast", "evaluate", "--explain"],
}


def cpu_seconds(arguments: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    compileall.compile_dir(Path(holdfast.__file__).parent, quiet=1)  # as pip does
    for name, arguments in COMMANDS.items():
        print(f"{name:30} {min(cpu_seconds(arguments) for _ in range(10)):.3f} CPU s")


if __name__ == "__main__":
    main()

"""Evaluating one model on one dataset passes few source files, so that a reader can follow it."""

import os
import subprocess
import sys
from pathlib import Path

import holdfast

LIMIT = 60
# In a new process, because warm caches would hide calls. A comprehension in the body of a module or a class,
# which an import runs, is not a call.
TRACE = """
import sys, threading
called = set()

def note(frame, event, argument):
    code = frame.f_code
    is_body = code.co_name.endswith(("comp>", "expr>")) and "<locals>" not in code.co_qualname
    if event == "call" and code.co_flags & 1 and not is_body:
        called.add(code.co_filename)

threading.setprofile(note)
sys.setprofile(note)
from holdfast.cli import run
code = run(["evaluate", "signs-yolo", "signs:0:4", "--jobs", "1"])
sys.setprofile(None)
print(*called, sep="\\n", file=sys.stderr)
sys.exit(code)
"""


def test_evaluating_one_model_on_one_dataset_passes_at_most_sixty_files(tmp_path):
    home = Path(holdfast.__file__).resolve().parent
    environment = {**os.environ, "PYTHONPATH": str(home.parent)}
    command = [sys.executable, "-c", TRACE]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    files = {Path(line) for line in done.stderr.splitlines() if line.startswith(str(home))}
    names = sorted(file.relative_to(home).as_posix() for file in files)
    assert {"cli/app.py", "engine/cells.py", "evaluate/run.py", "metrics/matching.py"} <= set(names)
    assert len(names) <= LIMIT, names

"""A server in a process of its own, at any free port, with another command in place of the audit."""

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

SCRIPT = """
import json, sys
from pathlib import Path
from holdfast.web.serve import serve
root, runs, fake = sys.argv[1:4]
def command(wanted):
    mode = "wait" if wanted.budget == "1m" else "quick"
    return [sys.executable, fake, str(wanted.runs), wanted.model, wanted.data, mode]
def ready(address):
    print(json.dumps(address), flush=True)
serve(Path(root), Path(runs), 0, ready=ready, token="--token" in sys.argv, command=command)
"""


@contextmanager
def served(root, runs, script, *options):
    """The server's process and its address; ended at the end."""
    command = [sys.executable, "-W", "error", "-c", SCRIPT, str(root), str(runs), str(script), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        yield process, json.loads(line)
    finally:
        process.terminate()
        said = process.communicate(timeout=30)
    assert said[1] == ""


def until(true, seconds=120.0):
    """Nothing, as soon as it is true; fails if that takes too long."""
    limit = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < limit, "waited in vain"
        time.sleep(0.02)


def gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").exists() and Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"

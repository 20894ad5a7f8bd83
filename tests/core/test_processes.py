"""Children that import nothing from the working directory, and a Ctrl-C that is never lost."""

import multiprocessing
import os
import signal
import subprocess
import sys

import pytest

from helpers import models as making
from holdfast.core import processes

MAIN = """
import multiprocessing, os, signal, sys
{before}
from holdfast.core.processes import starting_workers

def work(pipe):
    import {module}
    import select, socket, json, random, tempfile, numpy
    pipe.send([{module}.__name__, signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())])

if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(theirs,))
    with starting_workers():
        process.start()
    print(ours.recv())
    process.join()
"""


def test_a_child_imports_nothing_from_the_working_directory_and_never_hears_ctrl_c(tmp_path):
    script = tmp_path / "elsewhere" / "script.py"
    script.parent.mkdir()
    script.write_text(MAIN.format(before="", module="helper"))
    (script.parent / "helper.py").write_text("")  # a module next to the script stays importable
    ran = making.planted(tmp_path / "here")
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path / "here", capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("['helper', True]\n", "")
    assert ran() == []


def test_a_module_of_the_working_directory_on_the_path_comes_after_all_others(tmp_path):
    # As in a notebook, whose path has "", and whose folder holds the user's modules.
    script = tmp_path / "script.py"
    before = f"import {', '.join(making.PLANTED)}; sys.path[0] = ''"
    script.write_text(MAIN.format(before=before, module="helper"))
    ran = making.planted(tmp_path / "here")
    (tmp_path / "here" / "helper.py").write_text("")
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path / "here", capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("['helper', True]\n", "")
    assert ran() == []


def test_starting_workers_leaves_path_environment_and_signals_as_they_were(monkeypatch):
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    before = list(sys.path), dict(os.environ), signal.getsignal(signal.SIGINT)
    with processes.starting_workers():
        assert (sys.path[-1], os.environ["PYTHONSAFEPATH"]) == ("", "1")
    assert (list(sys.path), dict(os.environ), signal.getsignal(signal.SIGINT)) == before
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_a_ctrl_c_while_workers_start_is_raised_afterwards():
    done = []
    with pytest.raises(KeyboardInterrupt), processes.starting_workers():  # noqa: PT012
        os.kill(os.getpid(), signal.SIGINT)
        done.append("went on")
    assert done == ["went on"]
    assert multiprocessing.active_children() == []

"""The same calls in a notebook, in a script without a main guard, and in a worker process."""

import subprocess
import sys
import types

import pytest

import holdfast as hf

SCRIPT = """
import holdfast as hf

result = hf.evaluate("signs-yolo", "signs:0:60", jobs=2)
print(result.images, result.failed)
"""
POOL = """
import multiprocessing

import holdfast as hf


def images(name):
    return hf.evaluate(name, "signs:0:30", jobs=2).images


if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(images, ["signs-yolo"]))
"""
OWN_STAGE = """
import holdfast as hf


@hf.stage("colour")
def own_colour(image):
    return image // 2


if __name__ == "__main__":
    print(hf.evaluate("signs-yolo", "signs:0:60", stage=["colour=own-colour"], jobs=2).images)
"""


@pytest.mark.parametrize(
    ("text", "printed"), [(SCRIPT, "60 ()"), (POOL, "[30]"), (OWN_STAGE, "60")], ids=["script", "pool", "own"]
)
def test_a_script_runs_with_worker_processes(text, printed, tmp_path):
    (tmp_path / "script.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.stdout.strip(), done.stderr) == (printed, "")


class Shell:
    """A stand-in for IPython: what is displayed, and how it is updated."""

    def __init__(self):
        self.lines = []

    def display(self, data, raw, display_id):
        assert raw
        assert display_id
        self.lines.append(data["text/plain"])
        return types.SimpleNamespace(update=lambda data, raw: self.lines.append(data["text/plain"]))


@pytest.fixture
def shell(monkeypatch):
    found = Shell()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: found))
    monkeypatch.setitem(sys.modules, "IPython.display", types.SimpleNamespace(display=found.display))
    return found


def test_a_notebook_shows_one_line_that_goes_away(model, data, shell, capfd):
    hf.evaluate(model, data)
    assert shell.lines[0] == "evaluate: 0 of 6 images"
    assert shell.lines[-2:] == ["evaluate: 6 of 6 images", ""]
    assert capfd.readouterr() == ("", "")


def test_progress_can_be_switched_off_in_a_notebook(model, data, shell):
    hf.evaluate(model, data, progress=False)
    assert shell.lines == []

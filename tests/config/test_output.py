"""Where results are written: what is checked before a run, what is replaced, and what is written to."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.config.output import check_writable, write_json
from holdfast.core.errors import OutputError
from holdfast.evaluate.options import PageOptions

PRINTS = """
import sys
from pathlib import Path
from holdfast.config.output import check_writable, say, write_json
path = Path(sys.argv[1])
say("the table")
check_writable(path)
write_json(path, {"a": 1})
say("the end")
"""
WRITTEN = 'the table\n{\n  "a": 1\n}\nthe end\n'


def printing(name, **more):
    return subprocess.run([sys.executable, "-c", PRINTS, name], check=True, timeout=60, **more)


@pytest.mark.parametrize("name", ["/dev/stdout", "/proc/self/fd/1", "/dev/fd/1", "link"])
def test_standard_output_is_written_on_and_not_replaced(tmp_path, name):
    (tmp_path / "link").symlink_to("/dev/stdout")
    with (tmp_path / "cap.txt").open("wb") as captured:
        printing(name, stdout=captured, cwd=tmp_path)
    assert (tmp_path / "cap.txt").read_text() == WRITTEN
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cap.txt", "link"]
    piped = printing(name, stdout=subprocess.PIPE, cwd=tmp_path)
    assert piped.stdout.decode() == WRITTEN


def test_an_inherited_stream_is_written_on(tmp_path):
    end, other = os.pipe()
    printing(f"/dev/fd/{other}", stdout=subprocess.DEVNULL, pass_fds=(other,))
    os.close(other)
    with os.fdopen(end, "rb") as stream:
        assert json.load(stream) == {"a": 1}


def test_devices_and_pipes_are_not_tried_beside(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    check_writable(tmp_path / "pipe")  # waits for no reader
    check_writable(Path("/dev/null"))
    write_json(Path("/dev/null"), 1)
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize("leads", ["/proc/nope/x.json", "link", "afile/x.json"])
def test_a_link_is_tried_where_it_leads(tmp_path, leads):
    (tmp_path / "afile").touch()
    (tmp_path / "link").symlink_to(leads)
    with pytest.raises(OutputError, match="link: cannot write"):
        check_writable(tmp_path / "link")


def test_a_link_to_a_new_file_may_be_written(tmp_path):
    (tmp_path / "link").symlink_to("new/x.json")
    check_writable(tmp_path / "link")
    write_json(tmp_path / "link", [1])
    assert (tmp_path / "new" / "x.json").read_text() == "[\n  1\n]\n"


def test_a_folder_that_is_a_link_to_nowhere_is_told(tmp_path):
    (tmp_path / "gone").symlink_to("nowhere")
    with pytest.raises(OutputError, match="cannot write"):
        check_writable(tmp_path / "gone" / "x.json")


def test_to_try_leaves_nothing_behind(tmp_path):
    PageOptions(json=tmp_path / "a/b/n.json", out=tmp_path / "c/n.html").check_output(tmp_path / "d/e")
    assert not list(tmp_path.iterdir())
    with pytest.raises(OutputError, match="Not a directory"):
        check_writable(Path("/dev/null/a/b"))


@pytest.mark.parametrize("other", ["n.json", "./n.json", "link", "folder/../n.json"])
def test_one_file_for_two_results_is_refused(tmp_path, monkeypatch, other):
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("link").symlink_to("n.json")
    with pytest.raises(OutputError, match=r"^--json n\.json and --out .*: are the same path"):
        PageOptions(json=Path("n.json"), out=Path(other)).check_output()
    with pytest.raises(OutputError, match=r"^--out n and --runs n: are the same path"):
        PageOptions(out=Path("n")).check_output(Path("n"))
    PageOptions(json=Path("/dev/null"), out=Path("/dev/null")).check_output()


def test_a_command_that_fails_makes_no_folders(fails, tmp_path):
    places = ("--runs", "deep1/a/b", "--json", "deep2/x/y.json", "-o", "deep3/q/p.html")
    assert "nosuch.onnx" in fails("noise", "nosuch.onnx", "signs:0:2", *places)
    assert "nosuch.onnx" in fails("noise", "combine", "nosuch.onnx", "signs:0:2", *places)
    assert not list(tmp_path.iterdir())
    same = fails("noise", "nosuch.onnx", "signs:0:2", "--json", "x", "-o", "x")
    assert same == "--json x and --out x: are the same path; give two different ones"

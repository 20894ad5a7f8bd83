"""What the shell completes."""

import shutil
import subprocess
import sys

import pytest

from holdfast.cli.app import root
from holdfast.cli.complete import SCRIPTS, install, offers, shell_named
from holdfast.core.errors import InputError

FILES = "<files>"


def offered(*words):
    return [word for word, _ in offers(list(words)) if word == FILES or word.startswith(words[-1])]


def test_commands_and_root_options():
    assert offered("") == list(root().commands)
    assert offered("d") == ["data", "diagnose", "demo", "doctor"]
    assert offered("model", "") == ["info", "card", "check", "list", "convert"]
    assert "--version" in offered("--")
    assert offered("--show-completion", "") == ["bash", "zsh", "fish"]
    assert offered("nonsense", "") == []
    assert {"list", "combine", "show", "signs-yolo"} <= set(offered("noise", ""))
    assert "--only" in offered("noise", "--o")
    assert "resize=opencv-area" in offered("noise", "signs-class", "--only", "resize=opencv-a")


def test_options_but_not_those_that_were_given():
    assert offered("evaluate", "--st") == ["--stage", "--store", "--strict"]
    assert offered("evaluate", "--strict", "--st") == ["--stage", "--store"]
    assert offered("evaluate", "--stage", "resize=pillow-box", "--st") == ["--stage", "--store", "--strict"]
    assert offered("doctor", "-") == ["--help"]


def test_values():
    assert offered("evaluate", "--classes", "") == ["all", "common"]
    assert sorted(offered("evaluate", "--rule", "voc")) == ["voc", "voc2007"]
    assert offered("evaluate", "--rule=voc2") == ["--rule=voc2007"]
    assert offered("evaluate", "--json", "") == [FILES]
    assert offered("evaluate", "--images", "") == []
    assert "coco" in offered("data", "info", "x", "--format", "")
    assert "resize=opencv-area" in offered("evaluate", "--stage", "resize=")


def test_arguments_by_their_place():
    assert offered("evaluate", "signs-y") == ["signs-yolo", FILES]
    assert offered("evaluate", "--jobs", "1", "signs-yolo", "si") == ["signs", FILES]
    assert offered("evaluate", "signs-yolo", "signs", "") == []
    assert offered("model", "convert", "a.cfg", "") == [FILES]


BASH = """
source ../script.sh
PATH=..:$PATH
COMP_WORDS=(%s); COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
_holdfast_completion holdfast "${COMP_WORDS[$COMP_CWORD]}" ""
printf '%%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("holdfast ev", ["evaluate"]),
        ("holdfast evaluate --rule voc2", ["voc2007"]),
        ("holdfast evaluate --rule = voc2", ["voc2007"]),
        ("holdfast evaluate --rule =", ["coco", "lecture", "voc", "voc2007"]),
        ("holdfast evaluate --stage resize = opencv-ar", ["opencv-area"]),
        ("holdfast evaluate --truth my", ["my file.json"]),
        ("holdfast evaluate --truth = my", ["my file.json"]),
        ("holdfast evaluate my", ["my file.json"]),
        ("holdfast evaluate signs-yolo ''", ["far", "signs", "my file.json"]),
    ],
)
def test_bash(tmp_path, words, wanted):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "my file.json").touch()
    (tmp_path / "script.sh").write_text(SCRIPTS["bash"])
    (tmp_path / "holdfast").write_text(f'#!/bin/sh\nexec {sys.executable} -m holdfast "$@"\n')
    (tmp_path / "holdfast").chmod(0o755)
    done = subprocess.run(
        ["bash", "--norc", "-c", BASH % words],
        capture_output=True,
        text=True,
        cwd=tmp_path / "here",
        check=False,
    )
    assert sorted(done.stdout.splitlines()) == sorted(wanted), done.stderr


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_read_their_script(tmp_path, shell):
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell}")
    (tmp_path / "script").write_text(SCRIPTS[shell])
    assert subprocess.run([shell, "-n", tmp_path / "script"], check=False).returncode == 0


def test_words_with_what_they_are_about_for_the_other_shells(holdfast, monkeypatch):
    monkeypatch.setenv("_HOLDFAST_COMPLETE", "complete_zsh")
    monkeypatch.setenv("COMP_WORDS", "holdfast\ndata\nin")
    monkeypatch.setenv("COMP_CWORD", "2")
    done = holdfast()
    assert done.code == 0
    assert done.out == "info\tDetect the format of a dataset and print counts, classes, sizes and problems.\n"


def test_an_error_does_not_spoil_the_line(holdfast, monkeypatch):
    monkeypatch.setenv("_HOLDFAST_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "holdfast ev")
    monkeypatch.setenv("COMP_CWORD", "nonsense")
    done = holdfast()
    assert (done.code, done.out, done.err) == (0, "", "")


def test_installed_twice_is_installed_once(tmp_path, monkeypatch, holdfast):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".bashrc").write_text("alias ll='ls -l'")
    for _ in range(2):
        assert "bash completion installed" in holdfast("--install-completion", "bash").out
    lines = (tmp_path / ".bashrc").read_text().splitlines()
    assert lines[0] == "alias ll='ls -l'"
    assert sum("holdfast.sh" in line for line in lines) == 1
    assert (tmp_path / ".bash_completions/holdfast.sh").read_text() == SCRIPTS["bash"]
    assert str(tmp_path / ".zfunc/_holdfast") in install("zsh")
    assert str(tmp_path / ".config/fish/completions/holdfast.fish") in install("fish")


def test_the_script_is_shown(holdfast, fails):
    assert holdfast("--show-completion", "fish").out == SCRIPTS["fish"]
    assert holdfast("--show-completion=zsh").out == SCRIPTS["zsh"]
    assert "unknown shell 'tcsh'" in fails("--show-completion", "tcsh")
    assert "unexpected argument 'more'" in fails("--show-completion", "bash", "more")


def test_the_shell_is_found_or_asked_for(monkeypatch):
    monkeypatch.setattr("holdfast.cli.complete._parent", lambda: "python")
    monkeypatch.setenv("SHELL", "/usr/bin/fish")
    assert shell_named("") == "fish"
    assert shell_named("zsh") == "zsh"
    monkeypatch.setenv("SHELL", "/bin/sh")
    with pytest.raises(InputError, match="cannot detect the shell"):
        shell_named("")

"""The help of every command ends with two examples and the address of its reference page."""

import importlib.util
import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.cli.app import Group, find_command, load, root
from holdfast.config.parser import docs_page, parse

ENDLESS = {"serve"}  # runs until it is interrupted
GOLDEN = Path(__file__).parents[2] / "tools" / "golden" / "commands.py"


def homes(group=None, path=()):
    for word, node in (group or root()).commands.items():
        if isinstance(node, Group):
            yield from [(" ".join((*path, word)), node.itself)] if node.itself else []
            yield from homes(node, (*path, word))
        else:
            yield " ".join((*path, word)), node


COMMANDS = dict(homes())


def lines_of(example):
    """The words after `holdfast` of each part of an example, without redirections."""
    for part in example.split(" && "):
        words = shlex.split(part.split(" > ")[0])
        if words[0] == "holdfast":
            yield words[1:]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_two_examples_that_parse(command):
    examples = load(COMMANDS[command]).options.examples
    assert len(examples) == 2
    for example in examples:
        lines = list(lines_of(example))
        assert " ".join(lines[-1]).startswith(command) or lines[-2][:2] == command.split()
        for words in lines:
            _, home, rest = find_command(words)
            assert parse(load(home).options, rest) is not None


@pytest.mark.parametrize("command", COMMANDS)
def test_help_ends_with_the_examples_and_the_address_of_the_page(holdfast, command):
    text = holdfast(*command.split(), "--help").out
    shown = text.split("\nExamples:\n")[1].replace(" \\\n    ", " ")
    for example in load(COMMANDS[command]).options.examples:
        assert f"  {example}\n" in shown
    assert text.rstrip().endswith(docs_page(command))
    assert docs_page(command).endswith(f"/reference/commands/{command.split()[0]}.html")


def test_the_commands_are_listed_by_job(holdfast):
    text = holdfast("--help").out
    places = [text.index(f"\n{job}:\n") for job in ("Measure", "Attack", "Prove", "Defend", "Run")]
    assert places == sorted(places)
    assert text.index("\nAttack:\n") < text.index("  contest ") < text.index("\nProve:\n")


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """A folder with a `holdfast` that runs these sources."""
    folder = tmp_path_factory.mktemp("bin")
    file = folder / "holdfast"
    file.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m holdfast "$@"\n')
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return folder


@pytest.fixture(scope="module")
def own_files(tmp_path_factory):
    """The files of a user that two commands need: a darknet network, and a classifier with batch norm."""
    folder = tmp_path_factory.mktemp("own")
    spec = importlib.util.spec_from_file_location("golden_commands", GOLDEN)
    golden = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = golden
    spec.loader.exec_module(golden)
    golden.prepare(folder)
    names = {"tiny.cfg": "yolov3-tiny.cfg", "tiny.weights": "yolov3-tiny.weights"}
    names |= {"normed.onnx": "resnet18.onnx", "normed.toml": "resnet18.toml"}
    return {new: (folder / old).read_bytes() for old, new in names.items()}


@pytest.mark.slow
@pytest.mark.parametrize("command", sorted(set(COMMANDS) - ENDLESS))
def test_the_examples_run_one_after_the_other(tmp_path, script, own_files, command):
    for name, content in own_files.items():
        (tmp_path / name).write_bytes(content)
    source = str(Path(__file__).parents[2] / "src")
    paths = {"PATH": f"{script}:{os.environ['PATH']}", "PYTHONPATH": source}
    for example in load(COMMANDS[command]).options.examples:
        done = subprocess.run(
            ["bash", "-c", example], cwd=tmp_path, env=os.environ | paths, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{example}\n{done.stderr}"

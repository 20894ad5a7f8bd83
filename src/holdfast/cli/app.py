"""The tree of commands. Packages declare their own; only the module of the command that runs is imported."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import holdfast
from holdfast.config.options import Options
from holdfast.config.output import say
from holdfast.config.parser import HELP, group_help, help_of, parse, refuse

ABOUT = """Test whether a perception model still works where it is deployed.

    Bring an ONNX file and images. `holdfast demo` shows everything on a shipped model."""
JOBS = ("Measure", "Attack", "Prove", "Defend", "Run")  # headings of the list of commands, in this order
ROOT_OPTIONS = {
    "--version": "Print the version.",
    "--install-completion": "Install shell completion (bash, zsh or fish; default: this shell).",
    "--show-completion": "Print the completion script.",
}


class Group(NamedTuple):
    """Commands under a common word; `itself` is what the word does when none of them follows.

    `jobs` are the headings under which the commands are listed, by command.
    """

    about: str
    commands: Mapping[str, str | Group]
    itself: str = ""
    jobs: Mapping[str, str] = {}


class Command(NamedTuple):
    """A command: a function of one options object."""

    options: type[Options]
    run: Callable[[Any], int | None]

    @property
    def about(self) -> str:
        """What the command does."""
        return self.run.__doc__ or ""


@cache
def root() -> Group:
    """All commands: what the packages declare as COMMANDS (job -> words -> module:function) and GROUPS."""
    homes: dict[str, str] = {}
    abouts: dict[str, str] = {}
    jobs: dict[str, str] = {}
    for name in (module.name for module in pkgutil.iter_modules(holdfast.__path__) if module.ispkg):
        package = importlib.import_module(f"holdfast.{name}")
        abouts |= getattr(package, "GROUPS", {})
        for job, commands in getattr(package, "COMMANDS", {}).items():
            homes |= {words: f"{name}.{home}" for words, home in commands.items()}
            jobs |= {words.split()[0]: job for words in commands}
    nodes: dict[str, str | Group] = {}
    for word in sorted(jobs, key=lambda word: (JOBS.index(jobs[word]), word)):
        below = [words for words in homes if words.startswith(f"{word} ")]
        inside = {words.split()[1]: homes[words] for words in below}
        nodes[word] = Group(abouts[word], inside, homes.get(word, "")) if inside else homes[word]
    return Group(ABOUT, nodes, jobs=jobs)


def execute(words: list[str]) -> int:
    """Run one command and return its exit code."""
    name, node, rest = find_command(words)
    if isinstance(node, str):
        command = load(node)
        options = parse(command.options, rest)
        if options is None:
            say(help_of(command.options, command.about))
            return 0
        with options.context():
            return command.run(options) or 0
    first = rest[0] if rest else ""
    if not first or first in HELP:
        rows = list(summaries(node))
        if node.itself:
            command = load(node.itself)
            text = help_of(command.options, command.about, rows)
        else:
            sections: dict[str, list[tuple[str, str]]] = {}
            for row in rows:
                sections.setdefault(node.jobs.get(row[0], "Commands"), []).append(row)
            text = group_help(name, node.about, sections, ROOT_OPTIONS if name == "holdfast" else {})
        say(text, sys.stdout if first else sys.stderr)
        return 0 if first else 2
    if name == "holdfast" and first.split("=")[0] in ROOT_OPTIONS:
        return _root_option(rest)
    kind = "option" if first.startswith("-") else "command"
    known = (*ROOT_OPTIONS, *HELP) if kind == "option" else node.commands
    return refuse(name, f"unknown {kind} {first!r}", first, known)


def find_command(words: list[str]) -> tuple[str, str | Group, list[str]]:
    """The command the words begin with, its home or its group, and the words after it."""
    node: str | Group = root()
    place = 0
    while isinstance(node, Group) and place < len(words) and words[place] in node.commands:
        node = node.commands[words[place]]
        place += 1
    if isinstance(node, Group) and node.itself and place < len(words) and words[place] not in HELP:
        node = node.itself
    return " ".join(["holdfast", *words[:place]]), node, words[place:]


def load(home: str) -> Command:
    """The command of a module:function; its options class is the type of the function's parameter."""
    module, name = home.split(":")
    function = getattr(importlib.import_module(f"holdfast.{module}"), name)
    hints = get_type_hints(function)
    return Command(next(hint for name, hint in hints.items() if name != "return"), function)


def summaries(group: Group) -> Iterator[tuple[str, str]]:
    """Each word of a group and one line about it."""
    for word, node in group.commands.items():
        yield word, node.about if isinstance(node, Group) else _docstrings(node.split(":")[0])[node]


@cache
def _docstrings(module: str) -> dict[str, str]:
    """The first docstring line of each function, as module:function; the module is read, not imported."""
    path = Path(holdfast.__file__).parent.joinpath(*module.split(".")).with_suffix(".py")
    functions = [node for node in ast.parse(path.read_bytes()).body if isinstance(node, ast.FunctionDef)]
    return {f"{module}:{f.name}": (ast.get_docstring(f) or "").partition("\n")[0] for f in functions}


def _root_option(words: list[str]) -> int:
    if words[0] == "--version":
        from holdfast._version import __version__

        say(f"holdfast {__version__}")
        return 0
    from holdfast.cli.complete import SCRIPTS, install, shell_named

    name, _, shell = words[0].partition("=")
    if not shell and len(words) > 1:
        shell, words = words[1], words[1:]
    if len(words) > 1:
        refuse("holdfast", f"unexpected argument {words[1]!r} after {name}")
    shell = shell_named(shell)
    say(SCRIPTS[shell].rstrip() if name == "--show-completion" else install(shell))
    return 0

"""The tree of commands. Only the module of the command that is called is imported."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from holdfast.config.args import HELP, parse, refuse, slots_of
from holdfast.config.output import say


class Group(NamedTuple):
    """Commands under a common word; `itself` is what the word does when none of them follows."""

    about: str
    commands: Mapping[str, str]
    itself: str = ""


ABOUT = "Does this detector still work where it is deployed? Bring an ONNX file and images."
COMMANDS: Mapping[str, str | Group] = {  # word -> module:function in holdfast
    "audit": "audit.cli:audit",
    "run": "experiment.cli:run",
    "evaluate": "evaluate.cli:evaluate",
    "report": "cli.report:report",
    "compare": "compare.cli:compare",
    "demo": "audit.demo:demo",
    "doctor": "cli.report:doctor",
    "data": Group(
        "Look at a data set, make the embedded one, cut pictures of single targets.",
        {"info": "cli.data:info", "make": "cli.data:make", "crop": "cli.data_crop:crop"},
    ),
    "model": Group(
        "Look at a model, write its card, convert darknet files.",
        {
            "info": "cli.model:info",
            "card": "cli.model:card",
            "list": "cli.model:shipped",
            "convert": "cli.model:convert",
        },
    ),
    "noise": Group(
        "Measure what the deployed system does to a model: decoder, resize, colour, pooling, precision…",
        {"list": "noise.cli:listing", "combine": "noise.cli:combine", "show": "noise.show_cli:show"},
        itself="noise.cli:suite",
    ),
    "train": Group(
        "Train a classifier against system noise: mix training, augmentation, TENT, and what each does.",
        {
            "mix": "train.cli:mix",
            "tent": "train.cli:tent",
            "matrix": "train.mitigate.cli:matrix",
            "compare": "train.mitigate.cli:compare",
        },
    ),
    "diagnose": "diagnose.cli:diagnose",
    "attack": "attack.cli:attack",
    "patch": Group("A patch as data: lay it over images.", {"apply": "attack.patch_cli:apply"}),
    "contest": Group(
        "Run a patch contest, or take part in one: images, rules, zips, scores, board.",
        {
            "init": "contest.cli:init",
            "validate": "contest.entry.cli:validate",
            "pack": "contest.entry.cli:pack",
            "score": "contest.cli:score",
            "board": "contest.cli:board",
            "rescore": "contest.cli:rescore",
            "show": "contest.cli:show",
        },
    ),
    "verify": "verify.cli:verify",
    "serve": "web.cli:serve",
    "patchbench": Group(
        "Make, check and decide the benchmark of a patch at any position (after CCTSDB-YOLO).",
        {
            "make": "patchbench.cli:make",
            "check": "patchbench.cli:check",
            "evaluate": "patchbench.evaluate_cli:evaluate",
        },
    ),
    "vnncomp": Group(
        "Run and score benchmarks of the neural-network verification competition.",
        {
            "run": "verify.vnncomp.cli:run",
            "score": "verify.vnncomp.cli:score",
            "instance": "verify.vnncomp.cli:instance",
            "warm": "verify.vnncomp.cli:warm",
        },
    ),
}
ROOT_OPTIONS = {
    "--version": "Print the version.",
    "--install-completion": "Install completion for this shell, or the one named: bash, zsh, fish.",
    "--show-completion": "Print the completion script instead, to be copied or changed.",
}


def execute(words: list[str]) -> int:
    """Run one command and return its exit code."""
    command, node, rest = walk(words)
    if isinstance(node, str):
        return _call(command, load(node), rest)
    first = rest[0] if rest else ""
    if not first or first in HELP:
        stream = sys.stdout if first else sys.stderr
        say(_group_text(command, node), stream)
        return 0 if first else 2
    if command == "holdfast" and first.split("=")[0] in ROOT_OPTIONS:
        return _root_option(rest)
    kind = "option" if first.startswith("-") else "command"
    known = (*ROOT_OPTIONS, *HELP) if kind == "option" else node.commands
    return refuse(command, f"unknown {kind} {first!r}.", first, known)


def walk(words: list[str]) -> tuple[str, str | Group, list[str]]:
    """The command the words begin with, its home or its group, and the words behind it."""
    node: Any = Group(ABOUT, COMMANDS)  # type: ignore[arg-type]
    place = 0
    while isinstance(node, Group) and place < len(words) and words[place] in node.commands:
        node = node.commands[words[place]]
        place += 1
    if isinstance(node, Group) and node.itself and place < len(words) and words[place] not in HELP:
        node = node.itself
    return " ".join(["holdfast", *words[:place]]), node, words[place:]


def load(home: str) -> Callable[..., int | None]:
    """The function of a command."""
    module, _, name = home.partition(":")
    function: Callable[..., int | None] = getattr(importlib.import_module(f"holdfast.{module}"), name)
    return function


def summaries(group: Group) -> Iterator[tuple[str, str]]:
    """Each word of a group and one line about it."""
    for word, node in group.commands.items():
        doc = node.about if isinstance(node, Group) else load(node).__doc__ or ""
        yield word, doc.strip().splitlines()[0]


def _group_text(command: str, group: Group) -> str:
    from holdfast.cli.help import command_help, group_help

    if not group.itself:
        return group_help(command, group, ROOT_OPTIONS if command == "holdfast" else {})
    function = load(group.itself)
    return command_help(command, function.__doc__ or "", slots_of(function), list(summaries(group)))


def _call(command: str, function: Callable[..., int | None], words: list[str]) -> int:
    slots = slots_of(function)
    values = parse(command, slots, words)
    if values is None:
        from holdfast.cli.help import command_help

        say(command_help(command, function.__doc__ or "", slots))
        return 0
    return function(**values) or 0


def _root_option(words: list[str]) -> int:
    if words[0] == "--version":
        from holdfast._version import __version__

        say(f"holdfast {__version__}")
        return 0
    from holdfast.cli.complete import install, script, shell_named

    name, _, shell = words[0].partition("=")
    if not shell and len(words) > 1:
        shell, words = words[1], words[1:]
    if len(words) > 1:
        refuse("holdfast", f"unexpected argument {words[1]!r} behind {name}")
    say(script(shell_named(shell)) if name == "--show-completion" else install(shell_named(shell)))
    return 0

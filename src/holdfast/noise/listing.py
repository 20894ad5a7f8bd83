"""What noise there is: the paper's Table 1 for what is installed, and every option with who does it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.noise.speech.options import STFT, SpeechOption
from holdfast.noise.speech.options import options as of_speech
from holdfast.report.tables import Cell, Table
from holdfast.stages.families import Option, families, options

CAPTION = "System noise: what deployed systems do otherwise"
SPEECH = "Speech"
_SHORT = {"classify": "Cls", "detect": "Det", "segment": "Seg", "single": "Single"}
_BEYOND = {"precision": ("NLP", SPEECH)}  # families that go beyond pictures


class Kind(NamedTuple):
    """A kind of noise with its options, each with the tasks it is for."""

    name: str
    title: str
    where: str
    tasks: str
    depends: bool
    listed: tuple[tuple[Option | SpeechOption, str], ...]


def kinds() -> Iterator[Kind]:
    """Every kind of noise: those of pictures, then what is of speech alone."""
    for of in families():
        listed = tuple((one, _tasks(of.name, one.tasks)) for one in options(of))
        yield Kind(of.name, of.title, of.where, _tasks(of.name, of.tasks), of.depends, listed)
    sound = tuple((one, SPEECH) for one in of_speech() if one.family == STFT)
    yield Kind(STFT, "Short-time Fourier transform", "pre- and post-processing", SPEECH, True, sound)


def _tasks(family: str, tasks: tuple[str, ...]) -> str:
    return "/".join([*(_SHORT[t] for t in tasks), *_BEYOND.get(family, ())])


def kinds_table() -> Table:
    """The paper's Table 1 for what is installed: a row a kind of noise."""
    rows: list[list[Cell]] = []
    for of in kinds():
        there = sum(not one.missing for one, _ in of.listed)
        depends = "yes" if of.depends else "no"
        rows.append([of.where, of.name, of.tasks, depends, f"{there} of {len(of.listed)}"])
    columns = ["stage", "noise", "tasks", "depends on input", "options installed"]
    return Table(columns, rows, CAPTION)


def list_text(width: int = 100) -> str:
    """Every option under its family, as a terminal shows it."""
    parts = []
    for of in kinds():
        lines = [f"{of.title} ({of.where}): {of.name}=…"]
        for one, _ in of.listed:
            state = one.missing or ("" if one.default else "on demand")
            who = [one.systems and f"Done by {one.systems}.", one.alike and f"Alike: {one.alike}."]
            said = " ".join(filter(None, [state and f"[{state}]", one.summary, *who]))
            lines += textwrap.wrap(
                said, width, initial_indent=f"  {one.name:<28} ", subsequent_indent=" " * 31
            )
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def list_table() -> Table:
    """Every option with its tasks and who does it."""
    rows: list[list[Cell]] = []
    for of in kinds():
        for one, tasks in of.listed:
            state = one.missing.split(":")[0] if one.missing else ("yes" if one.default else "on demand")
            said = "; ".join(filter(None, [one.systems, one.alike and f"alike: {one.alike}"]))
            rows.append([of.where, of.name, one.name, tasks, of.depends, state, one.summary, said])
    columns = ["stage", "noise", "option", "tasks", "depends on input", "runs", "what", "which systems"]
    return Table(columns, rows, CAPTION)

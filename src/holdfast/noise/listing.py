"""The list of noise options: the paper's Table 1 with what is installed, and every option in detail."""

import textwrap

from holdfast.noise.speech.options import STFT_FAMILY
from holdfast.noise.speech.options import options as of_speech
from holdfast.report.tables import Column, Table
from holdfast.stages.families import Family, NoiseOption, families, options

CAPTION = "System noise: how deployments differ from the training pipeline"
_SHORT = {"classify": "Cls", "detect": "Det", "segment": "Seg", "single": "Single"}
_BEYOND = {"precision": ("NLP", "Speech"), "stft": ("Speech",)}  # families of other tasks


def kinds() -> list[tuple[Family, list[NoiseOption]]]:
    """Every family with its options: those of images, then those of speech only."""
    sound = [one for one in of_speech() if one.family == STFT_FAMILY.name]
    return [*((of, list(options(of))) for of in families()), (STFT_FAMILY, sound)]


def _tasks(family: str, tasks: tuple[str, ...]) -> str:
    return "/".join([*(_SHORT[t] for t in tasks), *_BEYOND.get(family, ())])


def kinds_table() -> Table:
    """The paper's Table 1 with what is installed: one row per family."""
    columns: list[Column[tuple[Family, list[NoiseOption]]]] = [
        Column("stage", get=lambda e: e[0].where),
        Column("family", get=lambda e: e[0].name),
        Column("tasks", get=lambda e: _tasks(e[0].name, e[0].tasks)),
        Column("depends on input", get=lambda e: "yes" if e[0].depends else "no"),
        Column("options installed", get=lambda e: f"{sum(not o.missing for o in e[1])} of {len(e[1])}"),
    ]
    return Table.of(kinds(), columns, CAPTION)


def list_text(width: int = 100) -> str:
    """Every option under its family, as a terminal shows it."""
    parts = []
    for of, listed in kinds():
        lines = [f"{of.title} ({of.where}): {of.name}=…"]
        for one in listed:
            state = one.missing or _default(one)
            who = [one.systems and f"Used by {one.systems}.", one.alike and f"Algorithm: {one.alike}."]
            marks = [state and f"[{state}]", "[hypothetical]" if one.hypothetical else ""]
            text = " ".join(filter(None, [*marks, one.summary, *who]))
            first = f"  {one.name:<28} "
            lines += textwrap.wrap(text, width, initial_indent=first, subsequent_indent=" " * 31)
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def list_table() -> Table:
    """Every option with its tasks and the systems that use it."""
    columns: list[Column[tuple[Family, NoiseOption]]] = [
        Column("stage", get=lambda e: e[0].where),
        Column("family", get=lambda e: e[0].name),
        Column("option", get=lambda e: e[1].name),
        Column("tasks", get=lambda e: _tasks(e[0].name, e[1].tasks)),
        Column("depends on input", get=lambda e: e[0].depends),
        Column("runs", get=_runs),
        Column("description", get=lambda e: e[1].summary),
        Column("systems", get=lambda e: _systems(e[1])),
    ]
    return Table.of([(of, one) for of, listed in kinds() for one in listed], columns, CAPTION)


def _runs(entry: tuple[Family, NoiseOption]) -> str:
    option = entry[1]
    return option.missing.split(":")[0] or _default(option) or "yes"


def _default(option: NoiseOption) -> str:
    """When an option runs, if it does not run by default."""
    if option.on_request:
        return f"only with --only {option.family}"
    return "" if option.default else "off by default"


def _systems(one: NoiseOption) -> str:
    parts = [one.systems, one.alike and f"algorithm: {one.alike}", "hypothetical" if one.hypothetical else ""]
    return "; ".join(filter(None, parts))

"""The list of noise options: the paper's Table 1 with what is installed, and every option in detail."""

import textwrap

from holdfast.noise.speech.options import STFT_FAMILY
from holdfast.noise.speech.options import options as of_speech
from holdfast.noise.suite import CORRUPTIONS
from holdfast.report.tables import Column, Table
from holdfast.stages.families import Family, NoiseOption, families, options

CAPTION = "System noise: how deployments differ from the training pipeline"
PAPER_CATEGORIES = {
    "decode": 4, "resize": 11, "colour": 2, "ceil": 2, "upsample": 2, "precision": 3, "boxes": 2,
}  # fmt: skip
_SHORT = {"classify": "Cls", "detect": "Det", "segment": "Seg", "single": "Single"}
_OTHER_TASKS = {"precision": ("NLP", "Speech"), "stft": ("Speech",)}


def kinds() -> list[tuple[Family, list[NoiseOption]]]:
    """Every family with its options: those of images, then those of speech only."""
    speech = [option for option in of_speech() if option.family == STFT_FAMILY.name]
    return [*((family, list(options(family))) for family in families()), (STFT_FAMILY, speech)]


def _tasks(family: str, tasks: tuple[str, ...]) -> str:
    return "/".join([*(_SHORT[t] for t in tasks), *_OTHER_TASKS.get(family, ())])


def kinds_table() -> Table:
    """The paper's Table 1 with what is installed: one row per family.

    Effect level, frequency and the number of categories are the paper's.
    """
    columns: list[Column[tuple[Family, list[NoiseOption]]]] = [
        Column("stage", get=lambda e: e[0].where),
        Column("family", get=lambda e: e[0].name),
        Column("tasks", get=lambda e: _tasks(e[0].name, e[0].tasks)),
        Column("depends on input", get=lambda e: "yes" if e[0].depends else "no"),
        Column("effect level", get=lambda e: e[0].effect or "–"),
        Column("frequency of occurrence", get=lambda e: e[0].frequency or "–"),
        Column("in the paper", get=lambda e: PAPER_CATEGORIES.get(e[0].name, "–")),
        Column("options installed", get=lambda e: f"{sum(not o.missing for o in e[1])} of {len(e[1])}"),
    ]
    return Table.of(kinds(), columns, CAPTION)


def list_text(width: int = 100) -> str:
    """Every option under its family, as a terminal shows it."""
    parts = []
    for family, listed in kinds():
        lines = [f"{family.title} ({family.where}): {family.name}=…"]
        for option in listed:
            if family.name == CORRUPTIONS and not option.name.endswith("-1"):
                continue  # a line per corruption
            name = f"{option.name} … 5" if family.name == CORRUPTIONS else option.name
            state = option.missing or _default(option)
            used = option.systems and f"Used by {option.systems}."
            algorithm = option.alike and f"Algorithm: {option.alike}."
            marks = [state and f"[{state}]", "[hypothetical]" if option.hypothetical else ""]
            text = " ".join(filter(None, [*marks, option.summary, used, algorithm]))
            first = f"  {name:<28} "
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
        Column("runs", get=lambda e: _state(e[1])),
        Column("description", get=lambda e: e[1].summary),
        Column("systems", get=lambda e: _systems(e[1])),
    ]
    return Table.of([(family, option) for family, listed in kinds() for option in listed], columns, CAPTION)


def _state(option: NoiseOption) -> str:
    return option.missing.split(":")[0] or _default(option) or "yes"


def _default(option: NoiseOption) -> str:
    """When an option runs, if it does not run by default."""
    if option.on_request:
        suite = "--suite or " if option.family == CORRUPTIONS else ""
        return f"only with {suite}--only {option.family}"
    return "" if option.default else "off by default"


def _systems(option: NoiseOption) -> str:
    mark = "hypothetical" if option.hypothetical else ""
    return "; ".join(filter(None, [option.systems, option.alike and f"algorithm: {option.alike}", mark]))

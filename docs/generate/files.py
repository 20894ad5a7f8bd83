"""Pages of exit codes, gate names, experiment files, model cards, AP rules and noise options."""

import dataclasses

from generate.commands import value_of
from generate.markdown import cell, comments_of, field_table, intro, table
from holdfast.audit.values import PATTERNS, RANGES
from holdfast.config.options import FieldSpec, Options, fields_of
from holdfast.core.errors import EXIT_CODES
from holdfast.core.model import Card, Input
from holdfast.experiment.plan import DOES, Condition, DatasetEntry, Experiment, ModelEntry
from holdfast.metrics.rules import RULES
from holdfast.stages.families import NoiseOption, families, options

EXAMPLES = {  # what stands for a place in a gate name
    "FAMILY.OPTION": "resize.opencv-nearest",
    "FAMILY": "resize",
    "METRIC": "map50",
    "BUDGET": "300px",
    "OTHER": "recall",
}


def exit_codes() -> str:
    """The page of exit codes."""
    rows = [(f"`{code}`", cell(meaning)) for code, meaning in sorted(EXIT_CODES.items())]
    return f"# Exit codes\n\n{table(('code', 'meaning'), rows)}"


def gates() -> str:
    """The page of gate names."""
    rows = []
    for one in PATTERNS:
        name = f"`{one.text}`" + " ±" * one.interval
        rows.append((name, f"`{example_of(one.text)}`", one.unit, cell(one.meaning), ", ".join(one.parts)))
    units = [
        (unit, "0 or more" if low == 0 and high > 1 else f"{low:g} to {high:g}")
        for unit, (low, high) in RANGES.items()
    ]
    heads = ("name", "example", "unit", "meaning", "measured by")
    return f"# Gate names\n\n{intro('gates')}{table(heads, rows)}\n{table(('unit', 'range'), units)}"


def example_of(pattern: str) -> str:
    """A name that fits the pattern of a gate name."""
    for place, word in EXAMPLES.items():
        pattern = pattern.replace(place, word)
    return pattern


def experiment() -> str:
    """The page of experiment files."""
    tables = {"`[[model]]`": ModelEntry, "`[[data]]`": DatasetEntry, "`[[condition]]`": Condition}
    text = ["# Experiment files\n", intro("experiment"), "## Top level\n", key_table(Experiment)]
    for title, shape in tables.items():
        text += [f"## {title}\n", key_table(shape)]
    for do, work in DOES.items():
        text += [f'### `do = "{do}"`\n', key_table(work)]
    return "\n".join(text)


def key_table(shape: type[Options]) -> str:
    """The keys of one table of an experiment file."""
    rows = [(f"`{one.key}`", kind_of(one), value_of(one), cell(one.option.help)) for one in fields_of(shape)]
    return table(("key", "type", "value", "meaning"), rows)


def kind_of(spec: FieldSpec) -> str:
    """The TOML type of a key."""
    kinds = {bool: "boolean", int: "integer", float: "number", dict: "table"}
    name = kinds.get(spec.kind, "string")
    return f"{name} or array" if spec.many else name


def card() -> str:
    """The page of model cards."""
    required = [
        ("`task`", '`"classify"`, `"detect"`, `"segment"` or `"single"`'),
        ("`classes`", "a list of names, a number, a text file, or a built-in list"),
    ]
    head = "`name` is one of the [heads](parts/head.md). All other fields are options of that head.\n"
    text = ["# Model cards\n", intro("card"), "## Top level\n", table(("field", "value"), required)]
    text += ["## `[input]`\n", field_table(Input), "## `[head]`\n", head]
    text += ["## `[thresholds]`\n", field_table(Card, ("score", "nms_iou", "max_detections"))]
    text += ["## `[trained_with]`\n", field_table(Card, ("decode", "resize"))]
    return "\n".join(text)


def rules() -> str:
    """The page of AP rules."""
    shape = type(next(iter(RULES.values())))
    comments = comments_of(shape)
    rows = [
        (f"`{name}`", *(f"`{getattr(rule, name)}`" for rule in RULES.values()), cell(comments.get(name, "")))
        for name in (field.name for field in dataclasses.fields(shape))
        if name != "name"
    ]
    return f"# AP rules\n\n{intro('rules')}{table(('choice', *map(_code, RULES), 'meaning'), rows)}"


def _code(name: str) -> str:
    return f"`{name}`"


def noise_options() -> str:
    """The page of noise families and their options."""
    text = ["# Noise options\n", intro("noise-options")]
    for family in families():
        text.append(f"## {family.title}: `{family.name}`\n")
        depends = "; its effect depends on the input" if family.depends else ""
        text.append(f"Stage: {family.where}{depends}. Tasks: {', '.join(family.tasks)}.\n")
        text.append(
            table(("option", "what it does", "systems that do this", ""), map(_option, options(family)))
        )
    return "\n".join(text)


def _option(one: NoiseOption) -> tuple[str, str, str, str]:
    marks = {"in the paper": one.paper, "on demand": not one.default, "calibrated": one.calibrated}
    names = ", ".join(map(_code, one.labels))
    return (
        names,
        cell(one.summary),
        cell(one.systems) + "".join(f"; `--target {target}`" for target in one.targets),
        ", ".join(mark for mark, is_so in marks.items() if is_so),
    )

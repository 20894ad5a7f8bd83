"""Write the Markdown pages of `reference/` from the code: commands, options, gates, cards, parts, the API.

`write(folder)` is called by conf.py. The folder is ignored by git; nothing in it is edited by hand. Equations
that belong to a kind of part are in `_equations/KIND.md`.
"""

import dataclasses
import inspect
import io
import re
import tokenize
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import holdfast
from holdfast.audit.values import PATTERNS, RANGES
from holdfast.cli.app import ROOT_OPTIONS, Group, load, root, summaries
from holdfast.config.options import FieldSpec, Options, fields_of
from holdfast.core import registry
from holdfast.core.errors import EXIT_CODES
from holdfast.core.model import Card, Input
from holdfast.experiment.plan import DOES, Condition, Experiment, GivenData, GivenModel
from holdfast.metrics.rules import RULES
from holdfast.stages.families import families, options

EQUATIONS = Path(__file__).parent / "_equations"
KINDS = {  # kind of part -> title of its page, what it does
    "decode": ("Decoders", "Stage 1: encoded bytes to RGB pixels. Noise family `decode`."),
    "colour": ("Colour conversions", "Stage 2: pixels to pixels. Noise family `colour`."),
    "fit": ("Fits", "Stage 3: how the image is placed in the input of the network. Noise family `resize`."),
    "resize": ("Resizes", "Stage 3: pixels to the size that the fit needs. Noise family `resize`."),
    "normalise": ("Normalisations", "Stage 4: pixels to the input tensor."),
    "infer": ("Inference", "Stage 5: the input tensor to raw outputs."),
    "post": ("Post-processing", "Stage 6: raw outputs to a prediction."),
    "rewrite": ("Graph rewrites", "Rewrites of the ONNX graph. Families `ceil`, `upsample`, `precision`."),
    "runtime": ("Runtimes", "Inference engines. Noise family `runtime`."),
    "boxes": ("Box options", "Variants of box post-processing. Noise family `boxes`."),
    "head": ("Heads", "How the outputs of a network are read. `head.name` in a model card."),
    "reader": ("Dataset readers", "Dataset formats. Option `--format`."),
    "mask": ("Attack masks", "Which pixels an attack may change. Option `--mask` of `holdfast attack`."),
    "candidates": ("Differentiable heads", "Candidate boxes with gradients, for gradient attacks."),
    "transform": ("Attack transforms", "Expectation over transformations. Option `--transform`."),
    "features": ("Feature networks", "Networks of the Fréchet distance. Option `--features`."),
    "augment": ("Augmentations", "Training augmentations. Option `--augment` of `holdfast train mix`."),
    "stft": ("STFT operators", "Libraries that compute the short-time Fourier transform."),
    "spectrum": ("Spectrum options", "Settings of the spectrogram that differ between systems."),
}
UNITS = {
    "fraction": "0 to 1",
    "difference": "−1 to 1, positive for a loss",
    "points": "percentage points, positive for a loss",
}
EXAMPLES = {
    "FAMILY.OPTION": "resize.opencv-nearest",
    "FAMILY": "resize",
    "METRIC": "map50",
    "BUDGET": "300px",
    "OTHER": "recall",
}


def write(folder: Path) -> None:
    """Write all pages into `folder`; pages of an earlier build that no longer exist are deleted."""
    pages = dict(all_pages())
    if folder.is_dir():
        for path in folder.rglob("*.md"):
            if str(path.relative_to(folder)) not in pages:
                path.unlink()
    for name, text in pages.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:  # or Sphinx reads it again
            path.write_text(text, encoding="utf-8")


def all_pages() -> Iterator[tuple[str, str]]:
    """File name and Markdown text of each page."""
    yield "index.md", index()
    yield from command_pages()
    yield "exit-codes.md", exit_codes()
    yield "gates.md", gates()
    yield "experiment.md", experiment()
    yield "card.md", card()
    yield "rules.md", rules()
    yield "noise-options.md", noise_options()
    yield from part_pages()
    yield "api.md", api()


def index() -> str:
    """The first page of the reference."""
    pages = ["commands/index", "exit-codes", "gates", "experiment", "card", "rules", "noise-options"]
    about = "All pages of this part are generated from the code when the book is built."
    return f"# Reference\n\n{about}\n\n{toctree([*pages, 'parts/index', 'api'], depth=2)}"


def toctree(pages: Sequence[str], depth: int = 1, hidden: bool = False) -> str:
    """A MyST table of contents."""
    lines = ["```{toctree}", f":maxdepth: {depth}", *([":hidden:"] if hidden else []), "", *pages, "```"]
    return "\n".join(lines) + "\n"


def prose(text: str) -> str:
    """A docstring as Markdown: outside `code`, characters with a meaning in Markdown or HTML are escaped."""
    pieces = re.split(r"(`[^`]*`|\n {4}[^\n]*)", inspect.cleandoc(text).replace("``", "`"))
    return "".join(p if i % 2 else re.sub(r"([*<>\[\]|_~$\\])", r"\\\1", p) for i, p in enumerate(pieces))


def cell(text: str) -> str:
    """Text for one cell of a table."""
    return prose(" ".join(str(text).split()))


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; cells are Markdown already."""
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


# Commands


def command_pages() -> Iterator[tuple[str, str]]:
    """One page per top-level command, with the commands under it, and their list."""
    words = root().commands
    rows = [(f"[`holdfast {word}`]({word}.md)", cell(text)) for word, text in summaries(root())]
    own = table(("option", "meaning"), [(f"`{name}`", cell(text)) for name, text in ROOT_OPTIONS.items()])
    listed = toctree(list(words), hidden=True)
    yield "commands/index.md", f"# Commands\n\n{table(('command', 'purpose'), rows)}\n{own}\n{listed}"
    for word, node in words.items():
        yield f"commands/{word}.md", command_page(word, node)


def command_page(word: str, node: str | Group) -> str:
    """The page of one top-level command."""
    if isinstance(node, str):
        return f"# `holdfast {word}`\n\n{command_text(node)}"
    text = [f"# `holdfast {word}`\n", prose(node.about) + "\n"]
    inside = [(f"[`holdfast {word} {name}`](#holdfast-{word}-{name})", cell(line)) for name, line in summaries(node)]
    text.append(table(("command", "purpose"), inside))
    if node.itself:
        text.append(command_text(node.itself))
    for name, home in node.commands.items():
        assert isinstance(home, str)  # noqa: S101 - no group inside a group
        text.append(f"## `holdfast {word} {name}`\n\n{command_text(home)}")
    return "\n".join(text)


def command_text(home: str) -> str:
    """What a command does, its usage, arguments and options."""
    command = load(home)
    specs = fields_of(command.options)
    places = [spec for spec in specs if spec.positional]
    needed = [f"{s.label} {s.metavar}" for s in specs if s.required and not s.positional]
    shown = [(s.label if s.required else f"[{s.label}]") + ("…" if s.many and "…" not in s.label else "") for s in places]
    usage = " ".join(["holdfast", command.options.command, *shown, *needed, "[OPTIONS]"])
    text = [prose(command.about) + "\n", f"```text\n{usage}\n```\n"]
    if places:
        text.append(table(("argument", "meaning"), [(f"`{s.label}`", cell(s.option.help)) for s in places]))
    for group in dict.fromkeys(spec.group for spec in specs if not spec.positional):
        text.append(f"**{group}**\n")
        text.append(option_table(s for s in specs if s.group == group and not s.positional))
    return "\n".join(text)


def option_table(specs: Iterable[FieldSpec]) -> str:
    """The options of one group."""
    rows = [(flags(spec), value_of(spec), cell(spec.option.help)) for spec in specs]
    return table(("option", "value", "meaning"), rows)


def flags(spec: FieldSpec) -> str:
    """The flags of an option: `-o`, `--out`."""
    names = [*([spec.option.short] if spec.option.short else []), spec.label]
    if spec.kind is bool:
        names.append(f"--no-{spec.key}")
    return ", ".join(f"`{name}`" for name in names)


def value_of(spec: FieldSpec) -> str:
    """The value that an option or a key accepts, and its default."""
    words = [f"`{spec.metavar.replace('|', '`, `')}`"] if spec.metavar else []
    least, most = spec.option.least, spec.option.most
    if most is not None:
        words.append(f"up to {most}" if least is None else f"{least} to {most}")
    if spec.required:
        words.append("required")
    elif spec.default is not False and spec.default not in (None, (), "", {}):
        value = spec.default
        text = ", ".join(map(str, value)) if spec.many else "yes" if value is True else str(value)
        words.append(f"default `{text}`")
    return "; ".join(words)


# Exit codes, gates, files


def exit_codes() -> str:
    """The page of exit codes."""
    rows = [(f"`{code}`", cell(meaning)) for code, meaning in sorted(EXIT_CODES.items())]
    return f"# Exit codes\n\n{table(('code', 'meaning'), rows)}"


def gates() -> str:
    """The page of gate names."""
    rows = [
        (f"`{p.text}`" + " ±" * p.interval, f"`{example_of(p.text)}`", p.unit, cell(p.meaning), ", ".join(p.parts))
        for p in PATTERNS
    ]
    units = [(name, UNITS.get(name, "0 or more" if low == 0 else f"{low:g} to {high:g}")) for name, (low, high) in RANGES.items()]
    return f"""# Gate names

A gate is a name, one of `>` `>=` `<` `<=` `==` `!=`, and a number. The build fails if the condition is true, or if
the number was not measured. See [Gate a release in CI](../how-to/gate-a-release.md).

In the names below, METRIC is the main metric of the model: `map50` for a detector (`map` under `--rule coco`),
`iou_equal` for a single-object detector, `top1` for a classifier, `miou` for a segmenter. FAMILY and OPTION are
[noise families and options](noise-options.md), BUDGET is a pixel budget such as `300px`, and OTHER is another metric
of the evaluation. Names marked ± also exist with `.low` and `.high`, the ends of the 95% interval.

{table(("name", "example", "unit", "meaning", "measured by"), rows)}
{table(("unit", "range"), units)}"""


def example_of(pattern: str) -> str:
    """A name that fits the pattern of a gate name."""
    for place, word in EXAMPLES.items():
        pattern = pattern.replace(place, word)
    return pattern


def experiment() -> str:
    """The page of experiment files."""
    text = [
        "# Experiment files\n",
        "The keys of the TOML file that [`holdfast run`](commands/run.md) reads. "
        "[Run an experiment](../how-to/experiments.md) shows a complete file, and "
        "`holdfast run --schema` prints the JSON schema. Paths are relative to the folder of the file.\n",
        "## Top level\n", key_table(Experiment), "## `[[model]]`\n", key_table(GivenModel),
        "## `[[data]]`\n", key_table(GivenData), "## `[[condition]]`\n", key_table(Condition),
    ]  # fmt: skip
    for do, shape in DOES.items():
        text += [f"### `do = \"{do}\"`\n", key_table(shape)]
    text += [
        "## `[gates]`\n",
        "`fail-if` is one [gate](gates.md) or a list of gates, applied to every audit. `min-images` is the smallest "
        "number of images that decides a gate (20). Any other key is the title of a gate or the beginning of its name.\n",
    ]
    return "\n".join(text)


def key_table(shape: type[Options]) -> str:
    """The keys of one table of an experiment file."""
    rows = [(f"`{spec.key}`", kind_of(spec), value_of(spec), cell(spec.option.help)) for spec in fields_of(shape)]
    return table(("key", "type", "value", "meaning"), rows)


def kind_of(spec: FieldSpec) -> str:
    """The TOML type of a key."""
    kinds = {bool: "boolean", int: "integer", float: "number", dict: "table"}
    name = kinds.get(spec.kind, "string")
    return f"{name} or array" if spec.many else name


def card() -> str:
    """The page of model cards."""
    thresholds, trained = ("score", "nms_iou", "max_detections"), ("decode", "resize")
    required = [
        ("`task`", "`\"classify\"`, `\"detect\"`, `\"segment\"` or `\"single\"`", "required", ""),
        ("`classes`", "list of names, a number, a text file, or a built-in list", "required", "one name per class"),
    ]
    heads = ("field", "type", "default", "meaning")
    text = [
        "# Model cards\n", fragment("card"), "## Top level\n", table(heads, required),
        "## `[input]`\n", table(heads, field_rows(Input)),
        "## `[head]`\n",
        "`name` is one of the [heads](parts/head.md), which are listed with their options. All other fields of the "
        "section are options of that head.\n",
        "## `[thresholds]`\n", table(heads, field_rows(Card, thresholds)),
        "## `[trained_with]`\n", table(heads, field_rows(Card, trained)),
    ]  # fmt: skip
    return "\n".join(text)


def field_rows(shape: type, only: Sequence[str] = ()) -> list[tuple[str, str, str, str]]:
    """Name, type, default and meaning of the fields of a dataclass; the meaning is the comment on its line."""
    comments = comments_of(shape)
    hints = typing.get_type_hints(shape)
    rows = []
    for field in dataclasses.fields(shape):
        if not only or field.name in only:
            given = field.default is not dataclasses.MISSING
            default = f"`{field.default!r}`" if given else "required"
            rows.append((f"`{field.name}`", f"`{type_text(hints[field.name])}`", default, cell(comments.get(field.name, ""))))
    return rows


def comments_of(shape: type) -> dict[str, str]:
    """Field name -> comment at the end of its line, of a class and its bases."""
    found: dict[str, str] = {}
    for base in reversed(shape.__mro__[:-1]):
        source = inspect.getsource(base)
        name = ""
        for token in tokenize.generate_tokens(io.StringIO(inspect.cleandoc(source)).readline):
            if token.type == tokenize.COMMENT and name and not token.line.lstrip().startswith("#"):
                found[name] = token.string.lstrip("# ")
            match = re.match(r"\s*(\w+): ", token.line)
            name = match[1] if match else ""
    return found


def type_text(hint: Any) -> str:
    """A type as a reader writes it; `|` would end a cell of a table."""
    if typing.get_origin(hint) is typing.Literal:
        return " or ".join(map(repr, typing.get_args(hint)))
    text = hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)
    return short_names(text).replace("NoneType", "None").replace("|", "or")


def short_names(text: str) -> str:
    """Types in the text without their modules, arrays without their parameters."""
    text = re.sub(r"numpy\.ndarray\[tuple\[[^]]*\], numpy\.dtype\[(?:numpy\.)?\w*\]\]", "ndarray", text)
    return re.sub(r"\b(typing|collections\.abc|pathlib|holdfast(\.\w+)*|numpy(\.\w+)*)\.(?=[A-Z_a-z])", "", text)


def rules() -> str:
    """The page of AP rules."""
    text = ["# AP rules\n", "Each choice that changes an average precision is a field of a rule. "
            "[AP rules](../explanation/ap-rules.md) explains them.\n"]  # fmt: skip
    shape = type(next(iter(RULES.values())))
    comments = comments_of(shape)
    rows = [
        (f"`{f.name}`", *(f"`{getattr(rule, f.name)}`" for rule in RULES.values()), cell(comments.get(f.name, "")))
        for f in dataclasses.fields(shape) if f.name != "name"
    ]  # fmt: skip
    text.append(table(("choice", *(f"`{name}`" for name in RULES), "meaning"), rows))
    return "\n".join(text)


def noise_options() -> str:
    """The page of noise families and their options."""
    text = ["# Noise options\n", "`holdfast noise list` prints this table with what is installed on your machine. "
            "Options marked *on demand* run only if you name them with `--only`, or with `--all`.\n"]  # fmt: skip
    for family in families():
        text.append(f"## {family.title}: `{family.name}`\n")
        depends = "; its effect depends on the input" if family.depends else ""
        text.append(f"Stage: {family.where}{depends}. Tasks: {', '.join(family.tasks)}.\n")
        rows = []
        for one in options(family):
            marks = ["in the paper"] * one.paper + ["on demand"] * (not one.default) + ["calibrated"] * one.calibrated
            names = ", ".join(f"`{label}`" for label in one.labels)
            rows.append((names, cell(one.summary), cell(one.systems), ", ".join(marks)))
        text.append(table(("option", "what it does", "systems that do this", ""), rows))
    return "\n".join(text)


# Registered parts


def part_pages() -> Iterator[tuple[str, str]]:
    """One page per kind of registered part, and their list."""
    kinds = list(KINDS)
    rows = [(f"[{KINDS[kind][0]}]({kind}.md)", f"`{kind}`", KINDS[kind][1]) for kind in kinds]
    about = (
        "A registered part is a plain function that is found by its name. "
        "[Write your own part](../../how-to/own-parts.md) shows how to add one.\n"
    )
    listed = toctree(kinds, hidden=True)
    yield "parts/index.md", f"# Registered parts\n\n{about}\n{table(('kind', 'name', 'used for'), rows)}\n{listed}"
    for kind in kinds:
        yield f"parts/{kind}.md", part_page(kind)


def part_page(kind: str) -> str:
    """All parts of one kind: description, facts and options, after the equations they share."""
    title, about = KINDS[kind]
    text = [f"# {title}\n", about + "\n", fragment(kind)]
    for name in registry.names(kind):
        part = registry.part(kind, name)
        text += [f"## `{name}`\n", prose(part.function.__doc__ or "") + "\n"]
        rows = list(facts_of(part.facts))
        if rows:
            text.append(table(("fact", ""), rows))
        shape = part.facts.get("options")
        if shape is not None:
            text.append(table(("option", "type", "default", "meaning"), field_rows(shape)))
    return "\n".join(text)


def fragment(name: str) -> str:
    """The equations or the example that a page begins with; empty if there are none."""
    path = EQUATIONS / f"{name}.md"
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def facts_of(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The registered facts that a user can act on, in words."""
    if facts.get("systems"):
        yield "systems that do this", cell(facts["systems"])
    if facts.get("alike"):
        yield "same output as", cell(f"all parts of the class {facts['alike']}")
    if facts.get("extra"):
        yield "install", f"`pip install 'holdfast[{facts['extra']}]'`"
    if facts.get("aliases"):
        yield "aliases", ", ".join(f"`{alias}`" for alias in facts["aliases"])
    if facts.get("task") or facts.get("tasks"):
        tasks = facts.get("tasks") or (facts["task"],)
        yield "tasks", ", ".join(tasks)
    if facts.get("default") is False:
        yield "in the suite", "on demand"


# The Python API


def api() -> str:
    """The page of the names that `import holdfast` offers."""
    text = ["# Python API\n", prose(holdfast.__doc__ or "") + "\n", "```python\nimport holdfast as hf\n```\n"]
    objects = {name: getattr(holdfast, name) for name in holdfast.__all__ if not name.startswith("_")}
    groups = {
        "Functions": [name for name, one in objects.items() if inspect.isfunction(one)],
        "Classes": [name for name, one in objects.items() if inspect.isclass(one)],
    }
    rest = [name for name in objects if not any(name in group for group in groups.values())]
    for title, members in {**groups, "Modules and constants": rest}.items():
        if members:
            text.append(f"## {title}\n")
            text += [api_entry(name, objects[name]) for name in members]
    return "\n".join(text)


def api_entry(name: str, one: Any) -> str:
    """One public name."""
    if inspect.ismodule(one):
        inside = [getattr(one, member) for member in getattr(one, "__all__", ()) if not member.startswith("_")]
        members = [api_entry(f"{name}.{m.__name__}", m) for m in inside if callable(m)]
        return f"### `{name}`\n\n{prose(one.__doc__ or '')}\n\n" + "\n".join(members)
    if inspect.isclass(one):
        return class_entry(name, one)
    if callable(one):
        return directive("function", name + signature_of(one), prose(inspect.getdoc(one) or "") + command_link(name))
    return directive("data", name, f"A `{type(one).__name__}`.")


def class_entry(name: str, one: type) -> str:
    """One public class: what it is, its fields, its public methods and properties."""
    body = [prose(inspect.getdoc(one) or "")]
    if dataclasses.is_dataclass(one):
        rows = [(f, t, d, m) for f, t, d, m in field_rows(one) if not f.startswith("`_")]
        if rows:
            body.append(table(("field", "type", "default", "meaning"), rows))
    for key, member in public_members(one):
        if isinstance(member, property):
            body.append(directive("property", f"{name}.{key}", prose(inspect.getdoc(member) or ""), fence="```"))
        else:
            plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            body.append(directive("method", f"{name}.{key}{signature_of(plain)}", prose(inspect.getdoc(plain) or ""), fence="```"))
    bare = dataclasses.is_dataclass(one) or issubclass(one, BaseException)
    return directive("class", name + ("" if bare else signature_of(one)), "\n\n".join(body), fence="````")


def public_members(one: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties that holdfast itself defines, base classes included."""
    seen: set[str] = set()
    for base in one.__mro__:
        if base.__module__.startswith("holdfast"):
            for key, member in vars(base).items():
                kinds = isinstance(member, property | classmethod | staticmethod) or inspect.isfunction(member)
                if kinds and not key.startswith("_") and key not in seen:
                    seen.add(key)
                    yield key, member


def signature_of(one: Any) -> str:
    """The signature with short type names; `(…)` if it cannot be read."""
    try:
        text = str(inspect.signature(one))
    except (TypeError, ValueError):
        return "(…)"
    return re.sub(r"<[^<>]*>", "…", short_names(text).replace("'", ""))


def command_link(name: str) -> str:
    """A link to the options of the command with the same name, if there is one."""
    return f"\n\nOptions: [`holdfast {name}`](commands/{name}.md).\n" if name in root().commands else ""


def directive(kind: str, head: str, body: str, fence: str = "````") -> str:
    """A MyST directive of the Python domain."""
    return f"{fence}{{py:{kind}}} {head}\n\n{body.rstrip()}\n{fence}\n"


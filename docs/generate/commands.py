"""One page per top-level command, from the options classes."""

from collections.abc import Iterable, Iterator

from generate.markdown import cell, prose, table, toctree
from holdfast.cli.app import ROOT_OPTIONS, Group, load, root, summaries
from holdfast.config.options import FieldSpec, fields_of


def command_pages() -> Iterator[tuple[str, str]]:
    """File name and text of the list of commands and of each page."""
    words = root().commands
    rows = [(f"[`holdfast {word}`]({word}.md)", cell(text)) for word, text in summaries(root())]
    own = table(("option", "meaning"), [(f"`{name}`", cell(text)) for name, text in ROOT_OPTIONS.items()])
    listed = toctree(list(words), hidden=True)
    yield "commands/index.md", f"# Commands\n\n{table(('command', 'purpose'), rows)}\n{own}\n{listed}"
    for word, node in words.items():
        yield f"commands/{word}.md", command_page(word, node)


def command_page(word: str, node: str | Group) -> str:
    """The page of one top-level command and the commands under it."""
    if isinstance(node, str):
        return f"# `holdfast {word}`\n\n{command_text(node)}"
    rows = [
        (f"[`holdfast {word} {name}`](#holdfast-{word}-{name})", cell(line)) for name, line in summaries(node)
    ]
    text = [f"# `holdfast {word}`\n", prose(node.about) + "\n", table(("command", "purpose"), rows)]
    if node.itself:
        text.append(command_text(node.itself))
    text += [f"## `holdfast {word} {name}`\n\n{command_text(home)}" for name, home in node.commands.items()]
    return "\n".join(text)


def command_text(home: str | Group) -> str:
    """What a command does, its usage, arguments and options."""
    command = load(str(home))
    specs = fields_of(command.options)
    places = [spec for spec in specs if spec.positional]
    needed = [f"{s.label} {s.metavar}" for s in specs if s.required and not s.positional]
    several = {s.name: "…" if s.many and "…" not in s.label else "" for s in places}
    shown = [(s.label if s.required else f"[{s.label}]") + several[s.name] for s in places]
    usage = " ".join(["holdfast", command.options.command, *shown, *needed, "[OPTIONS]"])
    text = [prose(command.about) + "\n", f"```text\n{usage}\n```\n"]
    if places:
        rows = [(f"`{s.label}`", cell(s.option.help)) for s in places]
        text.append(table(("argument", "meaning"), rows))
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

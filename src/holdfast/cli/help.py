"""The text of --help: usage, what it is about, then arguments and options under their headings."""

from __future__ import annotations

import inspect
import os
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence

from holdfast.cli.app import Group, summaries
from holdfast.config.args import Argument, Option, Slot

WIDEST = 100  # columns; longer lines are hard to read
COLUMN = 28  # where the explanations begin at the latest
ASK = ("-h, --help", "Print this and end.")

Row = tuple[str, str]


def command_help(command: str, about: str, slots: Sequence[Slot], commands: Sequence[Row] = ()) -> str:
    """The help of one command, and of those that may follow its word."""
    places = [slot for slot in slots if isinstance(slot.about, Argument)]
    needed = [f"{s.name} {s.shown}" for s in slots if isinstance(s.about, Option) and s.required]
    usage = [command, *map(_placed, places), *needed]
    sections: dict[str, list[Row]] = {}
    if commands:
        sections["Commands"] = [(f"{command.split()[-1]} {word}", said) for word, said in commands]
    if places:
        sections["Arguments"] = [(slot.name, slot.about.about) for slot in places]
    for slot in slots:
        if isinstance(slot.about, Option):
            sections.setdefault(slot.about.group, []).append(
                (_names(slot, slot.about), _about(slot, slot.about))
            )
    sections.setdefault("Options", []).append(ASK)
    sections["Options"] = sections.pop("Options")  # the general ones last
    flags = [slot.name[2:] for slot in slots if slot.kind is bool]
    more = ", and so each flag" if len(flags) > 1 else ""
    foot = f"--no-{flags[0]} takes --{flags[0]} back{more}." if flags else ""
    return _page(" ".join([*usage, "[OPTIONS]"]), about, sections, foot)


def group_help(command: str, group: Group, options: Mapping[str, str]) -> str:
    """The help of a group of commands, or of all."""
    sections = {"Commands": list(summaries(group)), "Options": [*options.items(), ASK]}
    foot = f"{command} COMMAND --help tells more about one."
    return _page(f"{command} COMMAND …", group.about, sections, foot)


def _placed(slot: Slot) -> str:
    name = f"{slot.name}…" if slot.many and "…" not in slot.name else slot.name
    return name if slot.required else f"[{name}]"


def _names(slot: Slot, option: Option) -> str:
    short = f"{option.short}, " if option.short else ""
    return f"{short}{slot.name} {slot.shown}".rstrip()


def _about(slot: Slot, option: Option) -> str:
    facts = []
    if option.least is not None or option.most is not None:
        low = "" if option.least is None else f"{option.least} ≤ "
        facts.append(low + slot.shown + ("" if option.most is None else f" ≤ {option.most}"))
    if slot.required:
        facts.append("required")
    elif slot.default is not None and slot.default is not False and slot.default != ():
        facts.append(f"default: {'yes' if slot.default is True else slot.default}")
    return option.about + (f" [{'; '.join(facts)}]" if facts else "")


def _page(usage: str, about: str, sections: Mapping[str, Sequence[Row]], foot: str) -> str:
    wide = min(shutil.get_terminal_size().columns, WIDEST)
    longest = max(len(left) for rows in sections.values() for left, _ in rows)
    column = min(longest + 4, COLUMN)
    parts = [textwrap.fill(f"Usage: {usage}", wide, subsequent_indent="       ")]
    parts += [textwrap.fill(" ".join(p.split()), wide) for p in inspect.cleandoc(about).split("\n\n")]
    for title, rows in sections.items():
        parts.append("\n".join([_bold(title), *(_row(left, right, column, wide) for left, right in rows)]))
    return "\n\n".join([*parts, foot] if foot else parts)


def _row(left: str, right: str, column: int, wide: int) -> str:
    lines = textwrap.wrap(right, max(wide - column, 20)) or [""]
    begin = f"  {left}".ljust(column)
    if len(begin) > column or not begin.endswith("  "):
        lines, begin = ["", *lines], f"  {left}"
    return "\n".join([begin + lines[0], *(" " * column + line for line in lines[1:])])


def _bold(title: str) -> str:
    plain = os.environ.get("NO_COLOR") or sys.stdout is None or not sys.stdout.isatty()
    return title if plain else f"\x1b[1m{title}\x1b[0m"

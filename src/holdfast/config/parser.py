"""Command lines: words to options, help texts, and options back to words."""

import argparse
import inspect
import shlex
import shutil
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from holdfast.config.options import FieldSpec, InvalidValue, Options, changed, fields_of
from holdfast.core.errors import InputError

HELP = ("-h", "--help")
WIDEST = 100  # columns of a help text
DOCS = "https://holdfast.readthedocs.io/en/latest/"
LARGEST_SHOWN = 255  # a help text shows the range of a number up to this bound
T = TypeVar("T", bound=Options)


def parse(shape: type[T], words: Sequence[str]) -> T | None:
    """The options of a command line; None if it asks for help."""
    command = f"holdfast {shape.command}".rstrip()
    cut = words.index("--") if "--" in words else len(words)
    if any(word in HELP for word in words[:cut]):
        return None
    specs = {spec.name: spec for spec in fields_of(shape)}
    try:
        flags, loose = _parser(shape).parse_known_args(list(words[:cut]))
    except argparse.ArgumentError as problem:
        refuse(command, _describe_problem(problem, specs, words))
    for word in loose:
        if word.startswith("-") and word != "-":
            flag = word.partition("=")[0]
            refuse(command, f"unknown option {flag!r}", flag, [*flags_of(shape), *HELP])
    given = {name: [texts] if isinstance(texts, str) else texts for name, texts in vars(flags).items()}
    given |= _place(command, shape, [*loose, *words[cut + 1 :]])
    values: dict[str, Any] = {}
    for name, texts in given.items():
        try:
            values[name] = texts if isinstance(texts, bool) else specs[name].parse(texts)
        except InvalidValue as problem:
            refuse(command, f"{specs[name].label}: {problem}")
    missing = [spec.label for spec in specs.values() if spec.required and spec.name not in values]
    if missing:
        refuse(command, f"missing {', '.join(missing)}")
    return shape(**values)


def flags_of(shape: type[Options]) -> dict[str, FieldSpec]:
    """The fields by every flag of theirs: --out, -o, --strict, --no-strict."""
    flags: dict[str, FieldSpec] = {}
    for spec in fields_of(shape):
        if not spec.positional:
            flags |= dict.fromkeys([spec.label, *filter(None, [spec.option.short])], spec)
            flags |= {f"--no-{spec.key}": spec} if spec.kind is bool else {}
    return flags


def _parser(shape: type[Options]) -> argparse.ArgumentParser:
    """The parser of the flags; it keeps values as texts and leaves positional words over."""
    parser = argparse.ArgumentParser(
        add_help=False, allow_abbrev=False, exit_on_error=False, argument_default=argparse.SUPPRESS
    )
    for spec in fields_of(shape):
        if not spec.positional:
            parser.add_argument(*_flags(spec), **_how(spec))
    return parser


def _flags(spec: FieldSpec) -> list[str]:
    return [*filter(None, [spec.option.short]), spec.label]


def _how(spec: FieldSpec) -> dict[str, Any]:
    if spec.kind is bool:
        return {"dest": spec.name, "action": argparse.BooleanOptionalAction}
    return {"dest": spec.name, "action": "append" if spec.repeats else "store", "metavar": spec.metavar}


def _describe_problem(
    problem: argparse.ArgumentError, specs: Mapping[str, FieldSpec], words: Sequence[str]
) -> str:
    names = (problem.argument_name or "").split("/")
    spec = next(one for one in specs.values() if one.label in names)
    flag = spec.label
    if spec.kind is bool:
        return f"{flag} takes no value, got {problem.message.rpartition(' ')[2]}"
    at = max(place for place, word in enumerate(words) if word in _flags(spec))
    got = repr(words[at + 1]) if at + 1 < len(words) else "nothing"
    hint = "" if got == "nothing" else f"; write {flag}=VALUE if the value begins with '-'"
    return f"{flag}: expected {spec.metavar} after it, got {got}{hint}"


def _place(command: str, shape: type[Options], words: Sequence[str]) -> dict[str, list[str]]:
    """The positional words by field; the last positional field may take several."""
    places = [spec for spec in fields_of(shape) if spec.positional]
    given: dict[str, list[str]] = {}
    for number, text in enumerate(words):
        spec = places[min(number, len(places) - 1)] if places else None
        if spec is None or (number >= len(places) and not spec.many):
            taken = " ".join(spec.label for spec in places) or "no arguments"
            refuse(command, f"unexpected argument {text!r}; expected {taken}")
        given.setdefault(spec.name, []).append(text)
    return given


def refuse(command: str, problem: str, word: str = "", known: Iterable[str] = ()) -> NoReturn:
    """Raise InputError with the problem, the nearest known word, and where to look."""
    from holdfast.core.synonyms import did_you_mean  # here, because only a mistake needs it

    hint = did_you_mean(word, list(known), 0.6) if word else ""
    raise InputError(f"{problem}{hint and f'. {hint}'} (see {command} --help)")


def help_of(shape: type[Options], about: str, commands: Sequence[tuple[str, str]] = ()) -> str:
    """The help text of a command, with those that may follow its words."""
    places = [spec for spec in fields_of(shape) if spec.positional]
    needed = [
        f"{spec.label} {spec.metavar}" for spec in fields_of(shape) if spec.required and not spec.positional
    ]
    several = {spec.name: "…" if spec.many and "…" not in spec.label else "" for spec in places}
    shown = [f"{s.label}{several[s.name]}" if s.required else f"[{s.label}{several[s.name]}]" for s in places]
    command = f"holdfast {shape.command}".rstrip()
    parser = _help_parser(" ".join([command, *shown, *needed, "[OPTIONS]"]), about)
    if commands:
        _add_rows(parser, "Commands", [(f"{shape.command} {word}", text) for word, text in commands])
    if places:
        _add_rows(parser, "Arguments", [(spec.label, spec.option.help) for spec in places])
    flags = [spec for spec in fields_of(shape) if not spec.positional]
    titles = dict.fromkeys(spec.group for spec in flags if spec.group != "Options")
    groups = {title: parser.add_argument_group(title) for title in (*titles, "Options")}
    for spec in flags:
        how = _how(spec)
        if spec.kind is bool and not spec.default:  # --no-strict is accepted, but it is the default
            how["action"] = "store_true"
        groups[spec.group].add_argument(*_flags(spec), **how, help=_about(spec))
    groups["Options"].add_argument(*HELP, action="help", help="Print this help and exit.")
    lines = (" && \\\n    ".join(line.split(" && ")) for line in shape.examples)
    examples = ["Examples:", *(f"  {line}" for line in lines), ""] if shape.examples else []
    parser.epilog = "\n".join([*examples, f"Documentation: {docs_page(shape.command)}"])
    return parser.format_help().rstrip()


def docs_page(command: str) -> str:
    """The address of the reference page; a command and its subcommands share one."""
    return f"{DOCS}reference/commands/{command.split()[0]}.html" if command else DOCS


def group_help(
    command: str, about: str, sections: Mapping[str, Sequence[tuple[str, str]]], options: Mapping[str, str]
) -> str:
    """The help text of a group of commands, which are listed under headings."""
    parser = _help_parser(f"{command} COMMAND …", about)
    page = docs_page(command.partition(" ")[2])
    parser.epilog = f"Run {command} COMMAND --help for the options of a command.\n\nDocumentation: {page}"
    for title, rows in sections.items():
        _add_rows(parser, title, rows)
    last = parser.add_argument_group("Options")
    for name, text in options.items():
        last.add_argument(name, help=text, action="store_true")
    last.add_argument(*HELP, action="help", help="Print this help and exit.")
    return parser.format_help().rstrip()


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """The formatter of argparse, with the first word in upper case as in the headings."""

    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: str | None = None) -> None:
        super().add_usage(usage, actions, groups, prefix or "Usage: ")


def _help_parser(usage: str, about: str) -> argparse.ArgumentParser:
    width = min(shutil.get_terminal_size().columns, WIDEST)
    paragraphs = [textwrap.fill(" ".join(p.split()), width) for p in inspect.cleandoc(about).split("\n\n")]
    return argparse.ArgumentParser(
        usage=usage,
        description="\n\n".join(paragraphs),
        add_help=False,
        argument_default=argparse.SUPPRESS,
        formatter_class=lambda prog: _Formatter(prog, max_help_position=28, width=width),
    )


def _add_rows(parser: argparse.ArgumentParser, title: str, rows: Sequence[tuple[str, str]]) -> None:
    group = parser.add_argument_group(title)
    for number, (name, text) in enumerate(rows):
        group.add_argument(f"row{number}", metavar=name, help=text.replace("%", "%%"))


def _about(spec: FieldSpec) -> str:
    least, most = spec.option.least, spec.option.most
    facts = []
    if most is not None and most <= LARGEST_SHOWN:
        facts.append(f"up to {most}" if least is None else f"{least} to {most}")
    if spec.required:
        facts.append("required")
    elif spec.default is not False and spec.default not in (None, (), "", {}):
        value = spec.default
        text = ", ".join(map(str, value)) if spec.many else "yes" if value is True else str(value)
        facts.append(f"default: {text}")
    return (spec.option.help + (f" [{'; '.join(facts)}]" if facts else "")).replace("%", "%%")


def command_words(options: Options) -> list[str]:
    """The words after `holdfast` that give these options again; values that are the default are skipped."""
    given = changed(options)
    named, placed = [], []
    for spec in fields_of(type(options)):
        if spec.positional and given.get(spec.name) is not None:
            value = given[spec.name]
            placed += [str(one) for one in value] if spec.many else [str(value)]
        elif spec.name in given:
            named += _words(spec, given[spec.name])
    cut = ["--"] if any(word.startswith("-") for word in placed) else []
    head = [*options.command.split()]
    return [*head, *named, *cut, *placed] if cut else [*head, *placed, *named]


def command_line(options: Options) -> str:
    """The line for a shell that gives these options again."""
    return shlex.join(["holdfast", *command_words(options)])


def _words(spec: FieldSpec, value: Any) -> list[str]:
    if spec.kind is bool:
        return [spec.label if value else f"--no-{spec.key}"]
    if spec.kind is dict:
        texts = [f"{name}={text}" for name, text in value.items()]
    elif spec.many and spec.option.commas:
        texts = [",".join(map(str, value))]
    else:
        texts = [str(item) for item in (value if spec.many else [value])]
    words: list[str] = []
    for text in texts:
        flag = spec.option.short or spec.label
        words += [f"{spec.label}={text}"] if text.startswith("-") else [flag, text]
    return words

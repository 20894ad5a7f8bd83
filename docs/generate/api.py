"""The page of the names that `import holdfast` offers, from `holdfast.__all__`."""

import dataclasses
import inspect
import re
from collections.abc import Iterator
from typing import Any

import holdfast
from generate.markdown import field_rows, prose, short_names, table
from holdfast.cli.app import root


def api() -> str:
    """The page of the Python API."""
    text = ["# Python API\n", prose(holdfast.__doc__ or "") + "\n", "```python\nimport holdfast as hf\n```\n"]
    objects = {name: getattr(holdfast, name) for name in holdfast.__all__ if not name.startswith("_")}
    groups = {
        "Functions": [name for name, one in objects.items() if inspect.isfunction(one)],
        "Classes": [name for name, one in objects.items() if inspect.isclass(one)],
    }
    rest = [name for name in objects if not any(name in group for group in groups.values())]
    for title, members in {**groups, "Modules and constants": rest}.items():
        if members:
            text += [f"## {title}\n", *(entry(name, objects[name]) for name in members)]
    return "\n".join(text)


def entry(name: str, one: Any) -> str:
    """One public name."""
    if inspect.ismodule(one):
        inside = [member for member in getattr(one, "__all__", ()) if not member.startswith("_")]
        members = [entry(f"{name}.{member}", getattr(one, member)) for member in inside]
        return f"### `{name}`\n\n{prose(one.__doc__ or '')}\n\n" + "\n".join(members)
    if inspect.isclass(one):
        return class_entry(name, one)
    if callable(one):
        about = prose(inspect.getdoc(one) or "")
        return directive("function", name + signature_of(one), about + command_link(name))
    return directive("data", name, f"A `{type(one).__name__}`.")


def class_entry(name: str, one: type) -> str:
    """One public class: what it is, its fields, its public methods and properties."""
    body = [prose(inspect.getdoc(one) or "")]
    if dataclasses.is_dataclass(one):
        body.append(table(("field", "type", "default", "meaning"), field_rows(one)))
    for key, member in public_members(one):
        plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        kind = "property" if isinstance(plain, property) else "method"
        head = f"{name}.{key}" + ("" if kind == "property" else signature_of(plain))
        body.append(directive(kind, head, prose(inspect.getdoc(plain) or ""), fence="```"))
    bare = dataclasses.is_dataclass(one) or issubclass(one, BaseException)
    return directive("class", name + ("" if bare else signature_of(one)), "\n\n".join(body))


def public_members(one: type) -> Iterator[tuple[str, Any]]:
    """Public methods and properties that holdfast itself defines, base classes included."""
    seen: set[str] = set()
    for base in (base for base in one.__mro__ if base.__module__.startswith("holdfast")):
        for key, member in vars(base).items():
            method = isinstance(member, property | classmethod | staticmethod) or inspect.isfunction(member)
            if method and not key.startswith("_") and key not in seen:
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

"""Write the Markdown pages of `reference/` from the code: commands, options, gates, cards, parts, the API.

`write(folder)` is called by conf.py. The folder is ignored by git; nothing in it is edited by hand. Pages
begin with the file of the same name in `_intro/`, if there is one: equations, and what no docstring says.
"""

from collections.abc import Iterator
from pathlib import Path

from generate.api import api
from generate.commands import command_pages
from generate.files import card, exit_codes, experiment, gates, noise_options, rules
from generate.markdown import toctree
from generate.parts import part_pages


def write(folder: Path) -> None:
    """Write all pages into `folder`; pages of an earlier build that no longer exist are deleted."""
    pages = dict(all_pages())
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

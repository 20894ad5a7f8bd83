"""A table as data, and the five ways to write it: text, Markdown, CSV, LaTeX, HTML.

Declare a table by its columns, each with the function that takes its cell from a row:

    Table.of(
        tools,
        [
            Column("tool", get=lambda tool: tool.name),
            Column("mean s", get=lambda tool: tool.seconds, digits=2, note="mean time per instance"),
        ],
        "Solving times",
    )

A missing value (None or NaN) reads n/a, and is an empty field in CSV. Numbers are rounded to their column's
digits everywhere but in CSV and in the sort keys of HTML, which keep all of them; no zero has a minus.
"""

from __future__ import annotations

import csv
import io
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Generic, TypeAlias

from holdfast.core.errors import InputError

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Row = TypeVar("Row", default=Any)  # typing has no defaults before Python 3.13
else:
    from typing import TypeVar

    Row = TypeVar("Row")

Cell: TypeAlias = str | int | float | bool | None
MISSING = "n/a"
_THIN = "\u202f"  # narrow no-break space: groups the digits of large counts in HTML


@dataclass(frozen=True)
class Column(Generic[Row]):
    """A column's heading, the digits its fractions are rounded to, and a note that explains it."""

    name: str
    digits: int = 3  # negative ones are significant digits: −3 reads 0.0123 and 1.77e-05
    note: str = ""
    command: bool = False  # whether its cells are commands, folded away in HTML
    # The cell from a row; without it, rows are mappings by the heading.
    get: Callable[[Row], Any] | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Table:
    """Columns (a name stands for a plain column), rows of one cell per column, and a caption."""

    columns: Sequence[Column | str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""

    @classmethod
    def of(cls, rows: Iterable[Row], columns: Sequence[Column[Row]], caption: str = "") -> Table:
        """The table whose cells are what each column gets from each row."""
        get = [column.get or methodcaller("get", column.name) for column in columns]
        return cls(columns, [[cell(row) for cell in get] for row in rows], caption)

    def __post_init__(self) -> None:
        rows = tuple(tuple(_plain(cell) for cell in row) for row in self.rows)
        for number, row in enumerate(rows):
            if len(row) != len(self.columns):
                raise InputError(
                    f"table row {number}: expected {len(self.columns)} cells, one a column, got {len(row)}"
                )
        object.__setattr__(self, "rows", rows)

    def __str__(self) -> str:
        return to_text(self)

    def _repr_html_(self) -> str:
        return to_html(self, sortable=False)

    @property
    def heads(self) -> tuple[Column, ...]:
        """The columns, each as a `Column`."""
        return tuple(c if isinstance(c, Column) else Column(c) for c in self.columns)

    def texts(self) -> list[list[str]]:
        """The cells of every row as people read them."""
        return [[shown(c, h.digits) for c, h in zip(row, self.heads, strict=True)] for row in self.rows]

    def numeric(self) -> tuple[bool, ...]:
        """For each column whether all its cells are numbers or missing, which are aligned to the right."""
        return tuple(
            all(is_missing(row[i]) or _is_number(row[i]) for row in self.rows) and bool(self.rows)
            for i in range(len(self.columns))
        )


def table_of(rows: Sequence[Mapping[str, Any]], caption: str = "", digits: int = 3) -> Table:
    """The table whose columns are the keys of the rows, in the order in which they first appear."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    return Table.of(rows, [Column(key, digits) for key in keys], caption)


def is_missing(cell: Cell) -> bool:
    """Whether the cell reads n/a."""
    return cell is None or (isinstance(cell, float) and math.isnan(cell))


def shown(cell: Cell, digits: int = 3) -> str:
    """The cell as people read it; control characters, which could steer a terminal, become �."""
    if cell is None or is_missing(cell):
        return MISSING
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, float):
        return f"{cell:z.{digits}f}" if digits >= 0 else f"{cell:z.{-digits}g}"
    text = str(cell)
    if text.isprintable():
        return text
    return "".join("�" if unicodedata.category(c) in ("Cc", "Cs") else c for c in text)


def grouped(count: int) -> str:
    """The count as a page shows it: five digits and more in groups of three."""
    return f"{count:,}".replace(",", _THIN) if abs(count) >= 10_000 else str(count)


def many(count: int, one: str, more: str = "") -> str:
    """A count with its noun in the right number: 1 image, 2 images."""
    return f"{grouped(count)} {one if count == 1 else more or one + 's'}"


def to_text(table: Table) -> str:
    """The table in aligned columns for a terminal, without a newline at the end."""
    lines = [[head.name for head in table.heads], *table.texts()]
    widths = [max(map(_width, column)) for column in zip(*lines, strict=True)]
    rule = "  ".join("─" * width for width in widths)
    head, *body = ("  ".join(map(_aligned, line, widths, table.numeric())).rstrip() for line in lines)
    return "\n".join([*([table.caption] if table.caption else []), head, rule, *body])


def to_markdown(table: Table) -> str:
    """The table in GitHub's Markdown, its caption as a line of its own above."""
    lines = [
        [_markdown(head.name) for head in table.heads],
        ["---:" if right else ":---" for right in table.numeric()],
        *(map(_markdown, row) for row in table.texts()),
    ]
    caption = [_markdown(table.caption), ""] if table.caption else []
    return "\n".join([*caption, *(f"| {' | '.join(line)} |" for line in lines)])


def to_csv(table: Table) -> str:
    """The table as comma-separated values with all digits; missing ones are empty, there is no caption."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([head.name for head in table.heads])
    writer.writerows(["" if is_missing(cell) else cell for cell in row] for row in table.rows)
    return out.getvalue()


def to_latex(table: Table) -> str:
    r"""The table as a LaTeX tabular; it needs \usepackage{booktabs}."""
    head, *rows = (" & ".join(map(_latex, row)) for row in ([h.name for h in table.heads], *table.texts()))
    tabular = [
        rf"\begin{{tabular}}{{{''.join('r' if right else 'l' for right in table.numeric())}}}",
        r"\toprule",
        rf"{head} \\",
        r"\midrule",
        *(rf"{row} \\" for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    if not table.caption:
        return "\n".join(tabular)
    caption = rf"\caption{{{_latex(table.caption)}}}"
    return "\n".join([r"\begin{table}", r"\centering", caption, *tabular, r"\end{table}"])


def to_html(table: Table, *, sortable: bool = True) -> str:
    """The table as HTML; the page's script makes the buttons in its headings sort the rows."""
    heads, numeric = table.heads, table.numeric()
    titles = "".join(_heading(head, right, sortable) for head, right in zip(heads, numeric, strict=True))
    first = [True, *[False] * (len(heads) - 1)]
    rows = "".join(f"<tr>{''.join(map(_cell, row, heads, numeric, first))}</tr>" for row in table.rows)
    caption = f"<caption>{_escape(table.caption)}</caption>" if table.caption else ""
    kinds = ["sortable"] * sortable + ["few"] * (len(heads) <= 5 and any(numeric))
    kind = f' class="{" ".join(kinds)}"' if kinds else ""
    return f"<table{kind}>{caption}<thead><tr>{titles}</tr></thead><tbody>{rows}</tbody></table>"


def _heading(head: Column, right: bool, sortable: bool) -> str:
    kind = ' class="number"' if right else ""
    note = f' title="{_escape(head.note)}"' if head.note else ""
    name = _escape(head.name)
    if not sortable:
        return f'<th scope="col"{kind}{note}>{name}</th>'
    button = f'<button type="button">{name}<span class="arrow" aria-hidden="true"></span></button>'
    return f'<th scope="col" aria-sort="none"{kind}{note}>{button}</th>'


def _cell(cell: Cell, head: Column, right: bool, first: bool) -> str:
    text = _escape(shown(cell, head.digits))
    if isinstance(cell, int) and not isinstance(cell, bool):
        text = grouped(cell)
    if first and not right:
        return f'<th scope="row">{text}</th>'
    if head.command and text:
        folded = f'<pre tabindex="0"><code>{text}</code></pre>'
        return f'<td><details class="again"><summary>command</summary>{folded}</details></td>'
    if not right:
        return f"<td>{text}</td>"
    kind, key = ("number missing", "") if is_missing(cell) else ("number", cell)
    return f'<td class="{kind}" data-value="{key}">{text}</td>'


def _plain(cell: Any) -> Cell:
    """The cell without numpy's types, whose repr would get into CSV."""
    if isinstance(cell, float):
        return float(cell) + 0.0  # no zero with a sign
    if cell is None or isinstance(cell, str | int):
        return cell
    value: Cell = cell.item() if hasattr(cell, "item") else str(cell)
    return value


def _is_number(cell: Cell) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def _width(text: str) -> int:
    """Terminal columns of the text: two for each wide (Chinese, Japanese, Korean) character."""
    if text.isascii():
        return len(text)
    return sum((unicodedata.east_asian_width(c) in "WF") + 1 for c in text if not unicodedata.combining(c))


def _aligned(text: str, width: int, right: bool) -> str:
    space = " " * (width - _width(text))
    return space + text if right else text + space


def _escape(text: str) -> str:
    import html  # here, because a command that prints no page need not load its table of entities

    return html.escape(text)


def _markdown(text: str) -> str:
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace("\n", " ")
    # an underscore inside a word is not emphasis, so names like speed_limit stay readable
    return re.sub(r"[\\`*|\[\]]|(?<!\w)_|_(?!\w)", r"\\\g<0>", text)


def _latex(text: str) -> str:
    special = {
        "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
        ">": r"\textgreater{}", "|": r"\textbar{}", "Δ": r"$\Delta$", "−": "$-$", "≥": r"$\ge$",
        "≤": r"$\le$", "×": r"$\times$", "→": r"$\to$", "…": r"\dots{}", "′": r"$'$", "½": r"$\frac12$",
        "·": r"$\cdot$", "⌊": r"$\lfloor$", "⌋": r"$\rfloor$", "⌈": r"$\lceil$", "⌉": r"$\rceil$",
        "π": r"$\pi$", "–": "--",
    }  # fmt: skip
    return "".join(special.get(c) or (f"\\{c}" if c in "&%$#_{}" else c) for c in text)

"""Results of the public functions: a short repr, conversion to plain values, and `save`."""

from __future__ import annotations

import csv
import html
import importlib
import io
from pathlib import Path
from typing import Any, TypeVar

import orjson

from holdfast.core.errors import InputError, MissingExtra, OutputError

SHOWN_ROWS = 20  # of a table in a notebook
R = TypeVar("R", bound="Result")


class Result:
    """Base of results.

    A subclass defines `_summary` (a few words), `_rows` (the main table), `to_dict` and, if it has a page of
    its own, `_page`. Dataclasses must pass `repr=False`, or they replace the short repr.
    """

    @property
    def folder(self) -> Path | None:
        """The run folder of the result; None if it was not saved."""
        path: Path | None = self.__dict__.get("_folder")
        return path

    def to_dict(self) -> dict[str, Any]:
        """The result as plain values, ready for JSON."""
        raise NotImplementedError

    def to_pandas(self) -> Any:
        """The main table as a pandas DataFrame."""
        return optional("pandas", "to_pandas()").DataFrame(self._rows())

    def save(self, path: str | Path) -> Path:
        """Write the page (.html), all values (.json) or the main table (.csv), by the ending of the path."""
        path = Path(path)
        writers = {".html": self._page, ".json": self._json, ".csv": self._csv}
        if path.suffix.lower() not in writers:
            raise InputError(f"save: expected a path that ends in .html, .json or .csv, got {str(path)!r}")
        content = writers[path.suffix.lower()]()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8", errors="replace")
        except OSError as problem:
            raise OutputError(f"{path}: cannot be written: {problem.strerror or problem}") from problem
        return path

    def _summary(self) -> str:
        raise NotImplementedError

    def _rows(self) -> list[dict[str, Any]]:
        raise NotImplementedError

    def _page(self) -> str:
        return f"<!doctype html><meta charset=utf-8><title>holdfast</title>{self._repr_html_()}\n"

    def _json(self) -> str:
        option = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
        return orjson.dumps(self.to_dict(), default=str, option=option).decode()

    def _csv(self) -> str:
        return rows_to_csv(self._rows())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._summary()}>"

    def _repr_html_(self) -> str:
        rows = self._rows()
        more = f"<p>and {len(rows) - SHOWN_ROWS} more</p>" if len(rows) > SHOWN_ROWS else ""
        head = f"<p><strong>{type(self).__name__}</strong> {html.escape(self._summary())}</p>"
        return head + rows_to_html(rows[:SHOWN_ROWS]) + more


def in_folder(result: R, folder: Path) -> R:
    """The same result with its run folder set."""
    object.__setattr__(result, "_folder", folder.resolve())  # the class is frozen; this is not a field
    return result


def look_up(home: str) -> Any:
    """The function of module:function, imported now.

    Results refer to their pages and tables by name, so that they do not depend on their presentation.
    """
    module, _, name = home.partition(":")
    return getattr(importlib.import_module(f"holdfast.{module}"), name)


def optional(package: str, purpose: str) -> Any:
    """Import a package that holdfast does not depend on; raise HoldfastError if it is missing."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise MissingExtra(purpose, package, "") from None


def rows_to_csv(rows: list[dict[str, Any]]) -> str:
    """Rows as comma-separated values under the keys of all of them; missing values are empty."""
    out = io.StringIO()
    writer = csv.DictWriter(out, _keys(rows), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def rows_to_html(rows: list[dict[str, Any]]) -> str:
    """Rows as an HTML table."""
    keys = _keys(rows)

    def cell(value: Any) -> str:
        text = "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
        return f"<td>{html.escape(text)}</td>"

    head = "".join(f"<th>{html.escape(key)}</th>" for key in keys)
    body = "".join(f"<tr>{''.join(cell(row.get(key)) for key in keys)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if rows else ""


def _keys(rows: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(key for row in rows for key in row))

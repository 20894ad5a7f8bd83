"""Outcomes of `benchmarks/diagnose.py`: how an answer is judged, and the tables and files of the results."""

from __future__ import annotations

import datetime
import functools
import json
import os
import platform
import statistics
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from diagnose_mistakes import CONTROLS, MISTAKES, UNKNOWN, Kinds, Mistake, both
from holdfast.core.sources import versions
from holdfast.report.tables import Table, to_csv, to_markdown

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
OUTCOMES = ("found", "wrongly accused", "unknown", "missed", "failed")
FOUND, ACCUSED = 0.95, 0  # required: share of mistakes that are found, number of wrong accusations
PAIRS = "random pairs"


@dataclass(frozen=True)
class Case:
    """One dump: the row of the table that counts it, the model, the image, and its mistakes or control."""

    row: str
    model: str
    image: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """The answer to one dump."""

    case: Case
    image: str
    outcome: str
    correct: bool
    kinds: tuple[str, ...]
    text: str
    cpu_seconds: float  # of all threads


def mistake_of(names: Sequence[str]) -> Mistake:
    """The mistake of that name, or two at once."""
    return functools.reduce(both, (MISTAKES[name] for name in names))


def judge(needs: Iterable[Kinds], allowed: Kinds, kinds: Kinds, explained: bool) -> str:
    """The outcome of an answer that names causes of these kinds."""
    if kinds - allowed:
        return "wrongly accused"
    if not explained:
        return "unknown"
    return "found" if all(group & kinds for group in needs) else "missed"


def table_of(outcomes: Sequence[Outcome]) -> Table:
    """One row per mistake, and the random pairs and controls."""
    rows: list[list[Any]] = []
    for row in dict.fromkeys(one.case.row for one in outcomes):
        some = [one for one in outcomes if one.case.row == row]
        counts = Counter(one.outcome for one in some)
        name = some[0].case.names[0]
        expected = "no cause" if name in CONTROLS else "unknown" if name in UNKNOWN else ""
        if not expected and row != PAIRS:
            groups = mistake_of(some[0].case.names).needs
            expected = ", ".join("|".join(sorted(group)) for group in groups)
        right = sum(one.correct for one in some)
        rows.append([row, expected, len(some), right, *(counts[outcome] for outcome in OUTCOMES)])
    return Table(["mistake", "expected", "dumps", "correct", *OUTCOMES], rows)


def dumps_table(outcomes: Sequence[Outcome]) -> Table:
    """One row per dump."""
    rows: list[list[Any]] = [
        [
            "+".join(one.case.names),
            one.case.model,
            one.image,
            one.outcome,
            one.correct,
            one.text,
            one.cpu_seconds,
        ]
        for one in outcomes
    ]
    columns = ["mistake", "model", "image", "outcome", "correct", "answer", "CPU seconds"]
    return Table(columns, rows)


def summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The shares and the times of all cases."""
    mistakes = [one for one in outcomes if not {*CONTROLS, *UNKNOWN} & set(one.case.names)]
    seconds = [one.cpu_seconds for one in outcomes]
    return {
        "dumps with a mistake": len(mistakes),
        "found": sum(one.correct for one in mistakes),
        "dumps": len(outcomes),
        "wrongly accused": sum(one.outcome == "wrongly accused" for one in outcomes),
        "median CPU seconds": statistics.median(seconds),
        "largest CPU seconds": max(seconds),
    }


def sentence(told: dict[str, Any]) -> str:
    """The summary in one line."""
    found, mistakes = told["found"], told["dumps with a mistake"]
    return (
        f"{found} of {mistakes} mistakes found ({found / max(1, mistakes):.1%}; required: {FOUND:.0%}), "
        f"{told['wrongly accused']} of {told['dumps']} dumps wrongly accused (required: {ACCUSED}); per dump "
        f"{told['median CPU seconds']:.1f} CPU seconds (median), {told['largest CPU seconds']:.1f} (largest)."
    )


def commit() -> str:
    """The short hash of the checked-out commit."""
    words = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def write(outcomes: Sequence[Outcome], command: str) -> None:
    """Write the results."""
    told = summary(outcomes)
    about = {
        "command": command,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "commit": commit(),
        "versions": versions(),
    }
    table = table_of(outcomes)
    heads = [column.name for column in table.heads]
    rows = [dict(zip(heads, row, strict=True)) for row in table.rows]
    wrong = [asdict(one) for one in outcomes if not one.correct]
    content = {**about, "summary": told, "rows": rows, "not correct": wrong}
    (RESULTS / "diagnose.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    (RESULTS / "diagnose.csv").write_text(to_csv(dumps_table(outcomes)))
    source = f"`{about['command']}`, {about['date']}, {about['machine']}, commit {about['commit']}."
    head = "# Mistakes of the preprocessing, found by `holdfast diagnose`"
    parts = [head, f"{source} {sentence(told)}", to_markdown(table)]
    (RESULTS / "diagnose.md").write_text("\n\n".join(parts) + "\n")

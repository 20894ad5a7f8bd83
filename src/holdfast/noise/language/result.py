"""The result of a language suite, one row per precision, rule, set and model, and its tables."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.core.errors import UnknownName
from holdfast.core.result import Result, look_up
from holdfast.engine.manifest import Manifest, folder_of
from holdfast.metrics.points import interval_text, lost_text
from holdfast.noise.suite import Estimate, Outcome, excludes_zero, outcome_text
from holdfast.report.tables import Cell, Column, Table, many, table_of


@dataclass(frozen=True)
class PrecisionRow:
    """One precision. `points_lost` = fp32 − noisy accuracy in percentage points."""

    precision: str
    outcome: Outcome
    note: str = ""  # how it was done, or why not
    value: float | None = None  # the accuracy, 0 to 1
    points_lost: float | None = None
    low: float | None = None  # paired 95% interval of points_lost
    high: float | None = None
    changed: int | None = None  # questions whose answer changed
    lost: int | None = None  # correct before and wrong after
    gained: int | None = None
    questions: int = 0
    failed: int = 0  # questions without a likelihood, counted as wrong

    @property
    def clear(self) -> bool:
        """Whether the loss is significant: the 95% interval does not contain 0."""
        return excludes_zero(self.low, self.high)


@dataclass(frozen=True)
class RuleNoise:
    """A question set scored by one rule: the accuracy of the unchanged model, and every precision."""

    rule: str
    clean: float
    rows: tuple[PrecisionRow, ...]

    def row(self, precision: str) -> PrecisionRow | None:
        """The row of a precision."""
        return next((r for r in self.rows if r.precision == precision), None)


@dataclass(frozen=True)
class SetNoise:
    """One question set for one model, by every rule that applies to it, the default first."""

    data: str
    kind: str
    sha256: str
    questions: int
    chance: float  # accuracy of random answers
    rules: tuple[RuleNoise, ...]
    calibration: str = ""
    notes: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()  # questions without a likelihood in the unchanged model

    @property
    def default(self) -> RuleNoise:
        """The rule of the table."""
        return self.rules[0]


@dataclass(frozen=True)
class LanguageNoise:
    """One model on all sets."""

    model: str
    sha256: str
    sets: tuple[SetNoise, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, repr=False)
class LanguageSuite(Result):
    """One run: models, sets and precisions."""

    models: tuple[LanguageNoise, ...]
    precisions: tuple[str, ...]
    command: str = ""
    created: str = ""
    seconds: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def sets(self) -> tuple[str, ...]:
        """The names of the sets, in order."""
        return tuple(s.data for s in self.models[0].sets)

    @property
    def worst(self) -> PrecisionRow | None:
        """The row of the precision that loses the most points by the default rule; None without one."""
        worst = worst_of([of for model in self.models for of in model.sets])
        return worst[1] if worst else None

    @property
    def table(self) -> Table:
        """One row per model, one column per set: accuracy, and points lost at each precision."""
        return models_table(self)

    def row(self, precision: str, data: str = "", model: str = "") -> PrecisionRow:
        """The row of a precision by the default rule, of the first set and model or of the named ones."""
        for one in (m for m in self.models if model in ("", m.model)):
            for of in (s for s in one.sets if data in ("", s.data)):
                if row := of.default.row(precision):
                    return row
                raise UnknownName("precision", precision, self.precisions)
            raise UnknownName("question set", data, self.sets)
        raise UnknownName("model", model, [m.model for m in self.models])

    def to_dict(self) -> dict[str, Any]:
        """The suite as plain values, as `--json` writes them."""
        return SUITES.to_plain(self)

    def _summary(self) -> str:
        text = "nothing was measured"
        if worst := worst_of([of for model in self.models for of in model.sets]):
            of, row = worst
            text = f"{row.precision} on {of.data}: {lost_text(row.points_lost or 0.0)}"
        models, count = ", ".join(m.model for m in self.models), many(len(self.precisions), "precision")
        return f"{models} on {', '.join(self.sets)}: {count}, {text}"

    def _rows(self) -> list[dict[str, Any]]:
        return number_rows(self)

    def _page(self) -> str:
        return str(look_up("noise.language.page:page")(self))


def worst_of(sets: Iterable[SetNoise]) -> tuple[SetNoise, PrecisionRow] | None:
    """The set and the precision that lose the most points by the default rule; None without one."""
    pairs = [(s, r) for s in sets for r in s.default.rows if r.points_lost is not None]
    return max(pairs, key=lambda p: (p[1].points_lost or 0.0, p[1].clear, p[1].changed or 0), default=None)


SUITES = Manifest("language.json", "noise-language", LanguageSuite, "a language run")
as_plain, save, open_suite = SUITES.to_plain, SUITES.save, SUITES.open


def suite_folder(suite: LanguageSuite, runs: Path) -> Path:
    """Where a suite is saved: by its models, its sets and the selected precisions."""
    name = f"language-{'-'.join(m.model for m in suite.models)}-on-{'-'.join(suite.sets)}"
    same = [[m.sha256, [[s.sha256, s.questions, s.calibration] for s in m.sets]] for m in suite.models]
    return folder_of(runs, name, [same, suite.precisions])


CLEAN = "fp32"  # the unchanged model
RULES = {
    "plain": "the ending with the highest sum of log-likelihoods",
    "per-byte": "that sum divided by the ending's bytes (length-normalised)",
    "per-token": "that sum divided by the ending's tokens (length-normalised)",
    "greedy": "correct if greedy decoding gives the last word, token by token",
}


def models_table(suite: LanguageSuite) -> Table:
    """The paper's Table 5: one row per model, one column per set, accuracy and points lost in each cell."""
    columns = ["model", *(f"{s.data} ({s.default.rule})" for s in suite.models[0].sets)]
    rows = [[m.model, *(_cell(s, suite.precisions) for s in m.sets)] for m in suite.models]
    rows_of = [(of, row) for m in suite.models for of in m.sets for row in of.default.rows]
    fewer = any(0 < row.questions < of.questions for of, row in rows_of)
    apart = "; calibrated precisions are tested on the questions they were not calibrated on" if fewer else ""
    layout = "/".join([f"{CLEAN.upper()} accuracy", *(f"{p.upper()} points lost" for p in suite.precisions)])
    counts = ", ".join(dict.fromkeys(str(s.questions) for s in suite.models[0].sets))
    lower = f"points lost = fp32 − noisy, in percentage points (lower is better), n = {counts}{apart}"
    return Table(columns, rows, f"{layout}: {lower}")


def _cell(of: SetNoise, precisions: Sequence[str]) -> str:
    rows = [of.default.row(p) for p in precisions]
    drops = ["–" if r is None or r.points_lost is None else f"{r.points_lost:z.2f}" for r in rows]
    return "/".join([f"{100 * of.default.clean:.2f}", *drops])


def how_table(model: LanguageNoise) -> Table:
    """How the model was converted to each precision, or why not; once where that is the same for all sets."""
    rows: list[list[Cell]] = []
    for place, first in enumerate(model.sets[0].default.rows):
        notes = [(of.data, notes_of(of.default.rows[place])) for of in model.sets]
        if len({text for _, text in notes}) == 1:
            notes = [("all", notes[0][1])]
        rows += [[first.precision, data, text] for data, text in notes]
    return Table(["precision", "set", "conversion"], rows)


def numbers_table(of: SetNoise, model: str = "") -> Table:
    """Every precision by every rule: accuracy, points lost with the paired interval, changed answers."""
    columns: list[Column[tuple[str, PrecisionRow]]] = [
        Column("precision", get=lambda e: e[1].precision),
        Column("rule", get=lambda e: e[0]),
        Column(
            "fp32",
            2,
            "accuracy of the unchanged model on the same questions",
            get=lambda e: _clean_accuracy(e[1]),
        ),
        Column("accuracy", 2, get=lambda e: None if e[1].value is None else round(100 * e[1].value, 10)),
        Column("points lost", 2, get=lambda e: e[1].points_lost),
        Column("95% interval", get=lambda e: interval_text(e[1].low, e[1].high)),
        Column("answers changed", note="questions whose answer changed", get=lambda e: e[1].changed),
        Column("lost", note="correct before, wrong after", get=lambda e: e[1].lost),
        Column("gained", note="wrong before, correct after", get=lambda e: e[1].gained),
        Column("questions", get=lambda e: e[1].questions or None),
    ]
    rows = [(by.rule, by.rows[place]) for place in range(len(of.default.rows)) for by in of.rules]
    return Table.of(rows, columns, f"{model} on {of.data}: {caption(of)}" if model else "")


def _clean_accuracy(row: PrecisionRow) -> float | None:
    known = row.value is not None and row.points_lost is not None
    return round(100 * (row.value or 0.0) + (row.points_lost or 0.0), 10) if known else None


def caption(of: SetNoise) -> str:
    """A description of a set: its questions and the accuracy of the unchanged model by every rule."""
    clean = ", ".join(f"{100 * by.clean:.2f} {by.rule}" for by in of.rules)
    chance = f" (random answers: {100 * of.chance:.2f})" if of.chance else ""
    failed = f"; {len(of.failed)} without a likelihood, counted as wrong" if of.failed else ""
    return f"{of.questions} questions ({of.kind}), accuracy at fp32 {clean}{chance}{failed}"


def rules_table(suite: LanguageSuite) -> Table:
    """The definitions of the scoring rules."""
    used = dict.fromkeys(by.rule for m in suite.models for of in m.sets for by in of.rules)
    return Table(["rule", "chosen ending"], [[rule, RULES[rule]] for rule in used])


def notes_of(row: PrecisionRow) -> str:
    """The notes on a row."""
    notes: list[str] = [] if row.outcome == "measured" else [outcome_text(row)]
    if row.failed and row.points_lost is not None:
        notes.append(f"{row.failed} questions without a likelihood (NaN), counted as wrong")
    return ": ".join([*notes, row.note] if row.note else notes)


def rows_csv(suite: LanguageSuite) -> Table:
    """All numbers in one table: one row per model, set, rule and precision."""
    return table_of(number_rows(suite))


def number_rows(suite: LanguageSuite) -> list[dict[str, Cell]]:
    """The rows of the table of all numbers, by the headings of its columns."""
    rows: list[dict[str, Cell]] = []
    for model, of, by in ((m, s, r) for m in suite.models for s in m.sets for r in s.rules):
        clean = PrecisionRow(CLEAN, "measured", value=by.clean, questions=of.questions, failed=len(of.failed))
        about = {"model": model.model, "data": of.data, "kind": of.kind, "rule": by.rule}
        for row in (clean, *by.rows):
            cells: dict[str, Cell] = {**about, "default rule": by is of.default}
            cells |= {name: getattr(row, name) for name in ("precision", "outcome", "questions")}
            cells["fp32"] = 100 * by.clean
            cells["accuracy"] = None if row.value is None else 100 * row.value
            ends = ("points_lost", "low", "high", "changed", "lost", "gained", "failed", "note")
            rows.append(cells | {name: getattr(row, name) for name in ends})
    return rows


def estimate_table(estimates: Sequence[Estimate]) -> Table:
    """The estimated cells, time and disk space."""
    columns = [
        Column("model", get=lambda e: e.model),
        Column("set", get=lambda e: e.data),
        Column("questions", get=lambda e: e.items),
        Column("precisions", get=lambda e: e.variants),
        Column("cells", get=lambda e: e.cells),
        Column("cached", get=lambda e: e.cells - e.missing),
        Column("seconds (estimate)", 1, get=lambda e: e.seconds),
        Column("MB (estimate)", 2, get=lambda e: e.bytes / 1e6),
        Column("timed on", get=lambda e: f"{e.sample} questions each"),
    ]
    caption = (
        "Estimate from a sample that was run in one process with one thread; graphs are converted already, "
        "and cached cells are not run again"
    )
    return Table.of(estimates, columns, caption)

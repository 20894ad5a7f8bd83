"""The result of a speech suite: one row per option, one model or many. Saved as JSON, shown as tables."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.core.errors import UnknownName
from holdfast.core.result import Result, look_up
from holdfast.engine.manifest import Manifest, folder_of
from holdfast.noise.suite import OUTCOMES, OptionRow, Outcome, common_outcome, distinct_rows, outcome_text
from holdfast.report.tables import Cell, Column, Table, many, table_of


@dataclass(frozen=True)
class MeanInterval:
    """A mean over clips with its 95% interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class SpeechRow(OptionRow):
    """One option: mean square errors against the clean system on the same texts, over the clips."""

    family: str
    option: str
    outcome: Outcome
    note: str = ""
    mel: MeanInterval | None = None  # before the vocoder (precision: the model's output; stft: the analysis)
    heard: MeanInterval | None = None  # log mel of the wave
    wave: MeanInterval | None = None
    own: MeanInterval | None = None  # `heard` against the recording, warped in time
    clips: int = 0
    longer: int = 0  # clips with another number of frames than the clean system's
    unstopped: int = 0  # clips that max_frames ended
    failed: int = 0
    alike: str = ""  # an earlier option of the family with the same errors

    @property
    def loss(self) -> float | None:
        """The error of the log mel of the wave."""
        return self.heard.mean if self.heard else None


@dataclass(frozen=True)
class SpeechNoise:
    """The noise of one acoustic model: the clean system's errors, every option, the worst two combined."""

    model: str
    sha256: str
    kind: str
    clips: int
    own: MeanInterval  # log mel of the clean system's wave against the recording's, warped in time
    copy: MeanInterval  # the vocoder alone: the recording's log mel made a wave and analysed again
    power: float  # mean square of the clean wave: twice this is the error of two unrelated waves
    rows: tuple[SpeechRow, ...]
    combined: SpeechRow | None
    spectrum: dict[str, Any] = field(default_factory=dict)
    vocoder: str = ""
    calibration: str = ""
    notes: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()

    @property
    def worst(self) -> SpeechRow | None:
        """The option with the largest error of the log mel of the wave."""
        return max(distinct_rows(self.rows), key=lambda row: row.harm, default=None)


@dataclass(frozen=True, repr=False)
class SpeechSuite(Result):
    """Models on the same clips."""

    data: str
    models: tuple[SpeechNoise, ...]
    command: str = ""
    created: str = ""
    seconds: float = 0.0
    versions: dict[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()  # lines of the clips that cannot be used, which were skipped

    @property
    def worst(self) -> SpeechRow | None:
        """The option with the largest error of the log mel of the wave; None without one."""
        worst = (model.worst for model in self.models)
        return max((row for row in worst if row), key=lambda row: row.harm, default=None)

    @property
    def table(self) -> Table:
        """One row per model and metric, one column per family: mean and worst error."""
        return paper_table(self)

    def row(self, label: str, model: str = "") -> SpeechRow:
        """The row of an option such as stft=power-2, of the first model or the named one."""
        for one in (m for m in self.models if model in ("", m.model)):
            rows = {row.label: row for row in one.rows}
            if label not in rows:
                raise UnknownName("noise option", label, rows)
            return rows[label]
        raise UnknownName("model", model, [m.model for m in self.models])

    def to_dict(self) -> dict[str, Any]:
        """The suite as plain values, as `--json` writes them."""
        return SUITES.to_plain(self)

    def _summary(self) -> str:
        largest = "nothing changes"
        if worst := self.worst:
            largest = f"{worst.label} has the largest error (MSE {worst.loss:.3g})"
        models, count = ", ".join(m.model for m in self.models), many(len(self.models[0].rows), "option")
        return f"{models} on {self.data}: {count}, {largest}"

    def _rows(self) -> list[dict[str, Any]]:
        return number_rows(self)

    def _page(self) -> str:
        """The page with the sounds that are saved in the run folder."""
        open_example, page = (look_up(f"noise.speech.page:{name}") for name in ("open_example", "page"))
        sounds = [open_example(self.folder, model.model) for model in self.models] if self.folder else []
        return str(page(self, [sound for sound in sounds if sound is not None]))


SUITES = Manifest("speech.json", "noise of speech", SpeechSuite, "a noise run")
as_plain, save, open_suite = SUITES.to_plain, SUITES.save, SUITES.open


def suite_folder(suite: SpeechSuite, runs: Path) -> Path:
    """Where a suite is saved: by its models, its clips and the selected options."""
    name = f"noise-{'-'.join(m.model for m in suite.models)}-on-{suite.data}"
    same = [
        [m.sha256, m.clips, m.vocoder, m.calibration, m.spectrum, [r.label for r in m.rows]]
        for m in suite.models
    ]
    return folder_of(runs, name, same)


ORIGINAL = {"own": "original audio"}  # the paper's metric: against the recordings, warped in time
NAMES = {"heard": "log mel of the wave", "wave": "wave", "mel": "log mel before the vocoder"}
_FIRST = ("FP16", "INT8", "BF16")  # the paper's two, then others


def groups_of(suite: SpeechSuite) -> list[str]:
    """The columns of the paper's table, precisions first."""
    groups = {r.group.upper() for m in suite.models for r in m.rows}
    return sorted(groups, key=lambda g: (_FIRST.index(g) if g in _FIRST else len(_FIRST), g))


def paper_table(suite: SpeechSuite) -> Table:
    """Table 10: one row per model and metric, mean (worst) MSE of precisions, STFT and combined."""
    groups = groups_of(suite)
    rows: list[list[Cell]] = []
    for model in suite.models:
        for metric, name in {**ORIGINAL, **NAMES}.items():
            if metric == "own" and not any(row.own for row in model.rows):
                continue  # the clips have no recordings
            cells = [_mean_worst([r for r in model.rows if r.group.upper() == g], metric) for g in groups]
            own = three_digits(model.own.mean) if metric == "own" else ""
            both = mean(model.combined, metric)
            rows.append([model.model, name, *cells, "–" if both is None else three_digits(both), own])
    columns = ["model", "MSE of", *(g if g == "STFT" else f"precision {g}" for g in groups)]
    clips = ", ".join(dict.fromkeys(str(m.clips) for m in suite.models))
    caption = (
        f"MSE on the texts of {suite.data}, mean over clips (n = {clips}); mean (worst) over the options "
        "that differ, lower is better. First row of a model: log mel against the original audio, as in the "
        "paper; last column: the same of the clean system. Other rows: against the clean system"
    )
    return Table([*columns, "combined", "clean vs. original audio"], rows, caption)


def three_digits(value: float) -> str:
    """A mean square error in three digits."""
    return f"{value:.3g}"


def _mean_worst(rows: Sequence[SpeechRow], metric: str) -> str:
    numbers = [value for r in distinct_rows(rows) if (value := mean(r, metric)) is not None]
    if not numbers:
        outcome = common_outcome(rows)
        return "–" if outcome == "not run" else OUTCOMES.get(outcome, outcome)
    average = three_digits(sum(numbers) / len(numbers))
    return average if len(numbers) == 1 else f"{average} ({three_digits(max(numbers))})"


def mean(row: SpeechRow | None, metric: str) -> float | None:
    """The row's mean of that metric over the clips."""
    interval: MeanInterval | None = getattr(row, metric, None)
    return interval.mean if interval else None


def options_table(model: SpeechNoise) -> Table:
    """Every option of one model: its three errors, its error against the recordings, notes."""
    columns: list[Column[SpeechRow]] = [
        Column("family", get=lambda r: r.family),
        Column("option", get=lambda r: r.option),
        Column("vs. original audio", -3, get=partial(mean, metric="own")),
        Column("95% interval", get=lambda r: _interval(r.own)),
        Column("log mel of the wave", -3, get=partial(mean, metric="heard")),
        Column("95% interval (wave)", get=lambda r: _interval(r.heard)),
        Column("wave", -3, get=partial(mean, metric="wave")),
        Column("log mel before the vocoder", -3, get=partial(mean, metric="mel")),
        Column("notes", get=notes_of),
    ]
    shown = [*model.rows, *([model.combined] if model.combined else [])]
    caption = (
        f"{model.model} ({model.kind}): MSE against the clean system on {many(model.clips, 'clip')}. The MSE "
        f"of the clean system against the recordings is {three_digits(model.own.mean)}, of the vocoder alone "
        f"{three_digits(model.copy.mean)}; its waves have a power of {three_digits(model.power)}, so "
        f"unrelated waves differ by {three_digits(2 * model.power)}"
    )
    return Table.of(shown, columns, caption)


def _interval(of: MeanInterval | None) -> str:
    return f"[{three_digits(of.low)}, {three_digits(of.high)}]" if of else ""


def notes_of(row: SpeechRow) -> str:
    """The notes on a row."""
    outcome = "identical output" if row.outcome == "identical" else outcome_text(row)
    if row.heard is None:
        return f"{outcome}: {row.note}".rstrip(": ")
    note = row.note.rstrip(".") if row.alike or row.longer or row.unstopped or row.failed else row.note
    clips = many(row.clips, "clip")
    length = f"the length differs in {row.longer} of {clips}; compared over common frames"
    notes = [
        note if row.outcome == "measured" or not note else f"{outcome}: {note}",
        f"same errors as {row.alike}" if row.alike else "",
        length if row.longer else "",
        f"{row.unstopped} of {clips} ended at max_frames" if row.unstopped else "",
        f"{many(row.failed, 'clip')} failed" if row.failed else "",
    ]
    return "; ".join(filter(None, notes))


def csv_table(suite: SpeechSuite) -> Table:
    """Every number: one row per model and option, the clean system with its own error first."""
    return table_of(number_rows(suite))


def number_rows(suite: SpeechSuite) -> list[dict[str, Cell]]:
    """The rows of the table of every number, by the headings of its columns."""
    rows: list[dict[str, Cell]] = []
    for m in suite.models:
        clean = SpeechRow("clean", "clean", "measured", own=m.own, clips=m.clips, failed=len(m.failed))
        for row in (clean, *m.rows, *([m.combined] if m.combined else [])):
            cells: dict[str, Cell] = {"model": m.model, "data": suite.data, "kind": m.kind}
            cells["noise"] = row.family
            names = ("option", "outcome", "clips", "longer", "unstopped", "failed")
            cells |= {name: getattr(row, name) for name in names}
            for metric in ("mel", "heard", "wave", "own"):
                for end, name in (("", "mean"), (" low", "low"), (" high", "high")):
                    cells[metric + end] = getattr(getattr(row, metric), name, None)
            rows.append(cells)
    return rows

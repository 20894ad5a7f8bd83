"""A suite of speech as one page: what matters, the paper's table, every option, spectrograms and sounds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast.core.errors import OutputError
from holdfast.engine.store import write_atomic
from holdfast.noise.speech.pictures import spectrogram_section
from holdfast.noise.speech.result import Row, SpeechNoise, SpeechSuite
from holdfast.noise.speech.show import Shown
from holdfast.noise.speech.tables import clips_of, options_table, paper_table, short
from holdfast.report.charts.forest import Group, Spot, decades
from holdfast.report.html import document
from holdfast.report.parts import Alert, Card, Document, Figure, Section, joined, scroll
from holdfast.report.tables import Table, to_html

_READING = (
    "Log mel of the wave: the deployed system's wave and the clean one's, both analysed as the card says. "
    "Wave: sample by sample after Griffin-Lim, whose phase takes another way after the smallest difference. "
    "Log mel before the vocoder: for a precision the model's output; for STFT the analysis of the recording, "
    "which is what the model would have been trained on."
)


def write(suite: SpeechSuite, out: Path, shown: Sequence[Shown] = ()) -> Path:
    """The path of the written page, there whole or not at all; OutputError if it cannot be written there."""
    if out.is_dir():
        raise OutputError(f"{out}: is a folder; give the name of the page, such as {out / 'speech.html'}")
    write_atomic(out, page(suite, shown).encode())
    return out


def page(suite: SpeechSuite, shown: Sequence[Shown] = ()) -> str:
    """The suite as one self-contained HTML file."""
    first = suite.models[0]
    name = joined([m.model for m in suite.models])
    return document(
        Document(
            title=f"System noise of {name} on {suite.data}",
            subject=(name, suite.data),
            facts=_facts(suite),
            verdict=" ".join(lead(m) for m in suite.models),
            cards=_cards(first) if len(suite.models) == 1 else tuple(map(_card, suite.models[:6])),
            minor=(),
            rule=f"MSE against the clean system on the same texts; {first.vocoder}",
            command=suite.command,
            alerts=_alerts(suite),
            sections=tuple(_sections(suite, shown)),
            kind="system noise",
        )
    )


def lead(model: SpeechNoise) -> str:
    """One sentence: the worst option, and how it compares with the model's own error."""
    worst = model.worst
    if worst is None or worst.heard is None:
        return f"{model.model}: no option changes what is heard."
    share = worst.heard.mean / max(model.own.mean, 1e-30)
    than = f"{share:.1f} times" if share >= 0.1 else f"{100 * share:.2g} % of"
    return (
        f"{model.model}: the worst single noise is {worst.label}, MSE {short(worst.heard.mean)} on the log "
        f"mel of the wave, {than} the model's own error against the recordings ({short(model.own.mean)})."
    )


def _facts(suite: SpeechSuite) -> tuple[tuple[str, str], ...]:
    options = sum(r.heard is not None for m in suite.models for r in m.rows)
    return (
        ("clips", str(suite.models[0].clips)),
        ("models", str(len(suite.models))),
        ("options run", str(options)),
        ("made", suite.created),
    )


def _cards(model: SpeechNoise) -> tuple[Card, ...]:
    found = [Card("own error", short(model.own.mean), "clean system against the recordings, warped in time")]
    for family, name in (("precision", "worst precision"), ("stft", "worst STFT")):
        own = [r for r in model.rows if r.family == family and r.outcome == "measured" and r.heard]
        worst = max(own, key=lambda r: r.heard.mean if r.heard else 0.0, default=None)
        if worst is not None and worst.heard is not None:
            found.append(Card(name, short(worst.heard.mean), f"{worst.option}: MSE, log mel of the wave"))
    if model.combined is not None and model.combined.heard is not None:
        found.append(Card("both together", short(model.combined.heard.mean), "MSE, log mel of the wave"))
    return tuple(found)


def _card(model: SpeechNoise) -> Card:
    """One of several models: its worst single noise beside its own error."""
    worst = model.worst
    value = short(worst.heard.mean) if worst is not None and worst.heard is not None else "n/a"
    label = f"{worst.label}: MSE, log mel of the wave" if worst is not None else "no option changes it"
    return Card(model.model, value, f"{label}; own error {short(model.own.mean)}")


def _alerts(suite: SpeechSuite) -> tuple[Alert, ...]:
    lost = sum(len(m.failed) for m in suite.models)
    found = (
        [Alert(f"{clips_of(lost)} failed and {'are' if lost != 1 else 'is'} not in the numbers", "about")]
        if lost
        else []
    )
    found += [Alert(f"{m.model}: {note}", "about") for m in suite.models for note in m.notes]
    return tuple(found)


def _sections(suite: SpeechSuite, shown: Sequence[Shown]) -> list[Section]:
    table = paper_table(suite)
    body = scroll(to_html(Table(table.columns, table.rows)), "System noise of speech")
    found = [Section("noise", "System noise", (Figure("", body, _READING, wide=True),), f"{table.caption}.")]
    several = len(suite.models) > 1
    for place, model in enumerate(suite.models):
        end = f"-{place + 1}" if several else ""
        mine = options_table(model)
        body = scroll(to_html(Table(mine.columns, mine.rows)), "Option by option")
        title = f"Option by option: {model.model}" if several else "Option by option"
        told = f"Integer precisions are calibrated on {model.calibration}." if model.calibration else ""
        figures = (_chart(model), Figure("", body, told, wide=True))
        found.append(Section(f"options{end}", title, figures, f"{mine.caption}."))
        seen = [one for one in shown if one.model == model.model]
        named = f"See and hear it: {model.model}" if several else "See and hear it"
        found += [spectrogram_section(one, f"spectrograms{end}", named) for one in seen[:1]]
    return [*found, _about(suite)]


def _chart(model: SpeechNoise) -> Figure:
    """Every option's error of what is heard, beside the model's own."""
    titles = {"precision": "Precision", "stft": "STFT"}
    groups = [
        Group(title, [_spot(r) for r in model.rows if r.family == family]) for family, title in titles.items()
    ]
    if model.combined is not None:
        groups.append(Group("Combined", [_spot(model.combined)]))
    note = (
        "The dashed line is the clean system's own error against the recordings; what lies far to its left "
        "is little beside what the model gets wrong anyway. A dot is the mean over clips, its line the 95 % "
        "interval."
    )
    body = decades(
        [g for g in groups if g.spots], model.own.mean, title="MSE of the log mel of the wave", desc=note,
        told=f"own error {short(model.own.mean)}",
    )  # fmt: skip
    return Figure(f"MSE of the log mel of the wave, {clips_of(model.clips)}", body, note, wide=True)


def _spot(row: Row) -> Spot:
    name = "both" if row.family == "combined" else row.option
    if row.heard is None or row.outcome != "measured":
        return Spot(name, None, words=row.outcome, note=row.note)
    return Spot(name, row.heard.mean, row.heard.low, row.heard.high, note=f"{row.option}: {row.note}")


def _about(suite: SpeechSuite) -> Section:
    rows = [[name, version] for name, version in suite.versions.items()]
    versions = scroll(to_html(Table(["library", "version"], rows), sortable=False), "Versions")
    names = list(suite.models[0].spectrum)
    settings = [[m.model, m.kind, *(str(m.spectrum[n]) for n in names), m.vocoder] for m in suite.models]
    clean = to_html(Table(["model", "kind", *names, "vocoder"], settings), sortable=False)
    figures = [
        Figure("The clean system", scroll(clean, "The clean system"), "As the cards say.", wide=True),
        Figure("Versions", versions),
    ]
    lines = [f"{m.model}: {line}" for m in suite.models for line in (*m.failed, *m.notes)]
    if lines:
        told = to_html(Table(["what"], [[line] for line in lines]), sortable=False)
        figures.append(Figure("Clips that failed, and notes", scroll(told, "Failed"), wide=True))
    return Section("about", "How it was run", tuple(figures))

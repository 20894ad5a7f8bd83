"""The page of a speech suite: summary, the paper's table, every option, one clip to see and hear."""

import io
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import DataError, ModelError
from holdfast.engine.store import write_atomic
from holdfast.metrics.speech import mean_square
from holdfast.noise import page as pages
from holdfast.noise.speech.cells import SpeechRunner
from holdfast.noise.speech.clips import wav_bytes
from holdfast.noise.speech.options import CLEAN, System, kind_of
from holdfast.noise.speech.result import (
    SpeechNoise,
    SpeechRow,
    SpeechSuite,
    options_table,
    paper_table,
    three_digits,
)
from holdfast.noise.speech.run import PreparedSpeech
from holdfast.noise.speech.spectrum import Mel, Wave, log_mel
from holdfast.noise.suite import distinct_rows, outcome_text, worst_per_group
from holdfast.report.charts.forest import ForestGroup, ForestPoint, decades
from holdfast.report.html import data_uri, picture_uri, write_page
from holdfast.report.parts import Alert, Card, Figure, Section, about_section, fragment, table_figure
from holdfast.report.tables import Table, many

Floats: TypeAlias = NDArray[np.float32]
FILE = "shown-{}.npz"
LOUDEST = 75_000  # bytes of a sound on the page, before base64 makes four of three
_DARK_TO_LIGHT = ((8, 10, 36), (48, 38, 120), (140, 50, 120), (224, 96, 70), (252, 200, 90), (252, 250, 210))
_BELOW_TO_ABOVE = ((20, 70, 160), (120, 170, 220), (244, 244, 240), (232, 150, 110), (160, 30, 30))
_LEAD = (
    "Time runs to the right, frequency (mel) upwards; clean and deployed share one brightness scale. In the "
    "difference, blue is less energy in the deployed system, red is more."
)
_READING = (
    "Log mel of the wave: the waves of the deployed and the clean system, both analysed as in the card. "
    "Wave: sample by sample after Griffin-Lim, whose phase diverges after the smallest difference. "
    "Log mel before the vocoder: for precisions, the model's output; for STFT options, the analysis of the "
    "recording, which the model would have been trained on."
)


@dataclass(frozen=True)
class ExampleSound:
    """A wave with its log mel spectrogram (frames, mels), as the card's analysis has it."""

    label: str
    mel: Floats
    wave: Floats


@dataclass(frozen=True)
class ClipExample:
    """The sounds of one clip: the recording, the clean system's, then those of deployed systems."""

    model: str
    clip: str
    text: str
    rate: int
    sounds: tuple[ExampleSound, ...]


def clip_example(prepared: PreparedSpeech, noise: SpeechNoise) -> ClipExample | None:
    """The clip of the shortest text through the worst systems; None if no clip can be shown."""
    plan = prepared.plan
    runner = SpeechRunner(plan.model, plan.vocoder, prepared.graphs)
    # Of the clips that every system is tested on, if there is one that can be run.
    for clip in sorted(plan.data.clips, key=lambda c: (c.name in prepared.reserved.without, len(c.text))):
        with suppress(DataError):
            reference = runner.reference(clip)
            break
    else:
        return None
    spectrum = plan.model.card.spectrum
    sounds = [
        _sound("recording", reference.target, reference.recording),
        _sound("clean", reference.heard, reference.wave),
    ]
    for system in _worst_systems(prepared, noise):
        with suppress(DataError, ModelError):  # reported in its row
            wave = runner.wave(runner.voice(system.precision).speak(clip.text).mel, system)
            sounds.append(_sound(system.name, log_mel(wave, spectrum), wave))
    return ClipExample(noise.model, clip.name, clip.text, spectrum.rate, tuple(sounds))


def _sound(label: str, mel: Mel, wave: Wave) -> ExampleSound:
    return ExampleSound(label, mel.astype(np.float32), wave.astype(np.float32))


def _worst_systems(prepared: PreparedSpeech, noise: SpeechNoise) -> list[System]:
    """The worst precision, the worst operator, the worst setting, and the combined system."""
    known = {candidate.option.label: candidate.option for candidate in prepared.candidates}
    rows = worst_per_group(distinct_rows(noise.rows), lambda row: kind_of(known[row.label]))
    worst = [CLEAN.apply(known[row.label]) for row in rows]
    combined = [s for s in worst if not s.precision and noise.combined and s.name in noise.combined.option]
    precision = next((s.precision for s in worst if s.precision), "")
    return [*worst, replace(combined[-1], precision=precision)] if combined and precision else worst


def save_example(example: ClipExample, folder: Path) -> None:
    """Write the sounds next to the run's manifest."""
    arrays: dict[str, Any] = {"about": [example.model, example.clip, example.text], "rate": example.rate}
    arrays["labels"] = [sound.label for sound in example.sounds]
    for place, sound in enumerate(example.sounds):
        arrays |= {f"mel{place}": sound.mel.astype(np.float16), f"wave{place}": sound.wave}
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)
    write_atomic(folder / FILE.format(example.model), out.getvalue(), durable=False)


def open_example(folder: Path, model: str) -> ClipExample | None:
    """The sounds of a model in a run's folder; None if there are none."""
    try:
        with np.load(folder / FILE.format(model), allow_pickle=False) as file:
            name, clip, text = (str(word) for word in file["about"])
            sounds = tuple(
                ExampleSound(str(label), file[f"mel{n}"].astype(np.float32), file[f"wave{n}"])
                for n, label in enumerate(file["labels"])
            )
            return ClipExample(name, clip, text, int(file["rate"]), sounds)
    except (OSError, ValueError, KeyError):
        return None


def spectrogram_section(example: ClipExample, identifier: str, title: str) -> Section:
    """A row of spectrograms for every deployed system next to the clean one, each with its sound."""
    recording, clean, *noised = example.sounds
    scale = _range(recording.mel, clean.mel)
    named = (("recording", recording), ("clean system", clean))
    pictures = [(n, *spectrogram(s.mel, *scale), sound_uri(s.wave, example.rate)) for n, s in named]
    note = "the error of the clean system, as a reference for the rows below"
    first = {"label": "clean system and recording", "note": note, "pictures": pictures}
    rows = [first, *(_row(clean, sound, example.rate) for sound in noised)]
    rate = _resample(clean.wave, example.rate)[1]
    slower = f" Sounds are resampled to {rate} Hz to keep the page small." if rate < example.rate else ""
    says, body = f"{example.model} says “{example.text}”", fragment("speech_pictures.html", rows=rows)
    return Section(
        identifier, title, (Figure(says, body, f"Clip {example.clip}.{slower}", wide=True),), _LEAD
    )


def _row(clean: ExampleSound, noised: ExampleSound, rate: int) -> dict[str, object]:
    scale = _range(clean.mel, noised.mel)
    common = min(len(clean.mel), len(noised.mel))
    difference = noised.mel[:common] - clean.mel[:common]
    largest = float(np.abs(difference).max()) or 1.0
    mse = mean_square(noised.mel.astype(np.float64), clean.mel.astype(np.float64))
    note = f"MSE {three_digits(mse)} on this clip; the colour scale ends at ±{three_digits(largest)}"
    pictures = [
        ("clean", *spectrogram(clean.mel, *scale), ""),
        ("deployed", *spectrogram(noised.mel, *scale), sound_uri(noised.wave, rate)),
        ("deployed − clean", *spectrogram(difference, -largest, largest, _BELOW_TO_ABOVE), ""),
    ]
    return {"label": noised.label, "note": note, "pictures": pictures}


def _range(*mels: Floats) -> tuple[float, float]:
    return float(min(mel.min() for mel in mels)), float(max(mel.max() for mel in mels))


def spectrogram(
    mel: Floats, low: float, high: float, colours: Sequence[tuple[int, int, int]] = _DARK_TO_LIGHT
) -> tuple[str, int, int]:
    """A log mel spectrogram (frames, mels) as a PNG in a data URI, low ones at the bottom, and its size."""
    from PIL import Image

    place = np.clip((mel.T[::-1] - low) / max(high - low, 1e-9), 0.0, 1.0)
    stops = np.linspace(0.0, 1.0, len(colours))
    channels = [np.interp(place, stops, [c[n] for c in colours]) for n in range(3)]
    picture = Image.fromarray(np.stack(channels, axis=-1).astype(np.uint8))
    wide, tall = max(360, picture.width), max(200, picture.height)
    picture = picture.resize((min(wide, 720), min(tall, 240)), Image.Resampling.NEAREST)
    return picture_uri(picture.quantize(64), "PNG", optimize=True), *picture.size


def sound_uri(wave: Floats, rate: int) -> str:
    """The wave as a wav file in a data URI, at a lower rate if it would be too large for a page."""
    thinned, slower = _resample(wave, rate)
    loudest = max(1.0, float(np.abs(thinned).max()))  # a wave beyond full scale is scaled down
    return data_uri(wav_bytes(thinned / loudest, slower), "audio/wav")


def _resample(wave: Floats, rate: int) -> tuple[NDArray[np.float64], int]:
    """The wave at a half, a third, … of its rate, so that it is small enough; higher frequencies are cut."""
    factor = 1
    while 2 * len(wave) // factor > LOUDEST and rate // (factor + 1) >= 4000:
        factor += 1
    samples, wide = len(wave) // factor, wave.astype(np.float64)
    if factor > 1:
        wide = np.fft.irfft(np.fft.rfft(wide)[: samples // 2 + 1], n=samples) / factor
    return wide[: LOUDEST // 2], rate // factor


def write(suite: SpeechSuite, out: Path, examples: Sequence[ClipExample] = ()) -> Path:
    """Write the page, whole or not at all, and return its path."""
    return write_page(page(suite, examples), out, "speech.html")


def page(suite: SpeechSuite, examples: Sequence[ClipExample] = ()) -> str:
    """The suite as one self-contained HTML file."""
    first, table = suite.models[0], paper_table(suite)
    body = table_figure("", table, _READING, name="System noise of speech", wide=True)
    sections = [Section("noise", "MSE by noise family", (body,), f"{table.caption}.")]
    for place, model in enumerate(suite.models):
        options = options_table(model)
        sections.append(pages.options_section(suite, place, _chart(model), options, f"{options.caption}."))
        heading = pages.heading(suite, place, "spectrograms", "Spectrograms and sounds")
        if example := next((e for e in examples if e.model == model.model), None):
            sections.append(spectrogram_section(example, *heading))
    lines = f"{many(len(suite.problems), 'line')} of {suite.data} skipped"
    skipped = [Alert(f"{lines}: {problem}", "about") for problem in suite.problems[:1]]
    notes = [Alert(f"{m.model}: {note}", "about") for m in suite.models for note in m.notes]
    return pages.suite_page(
        suite,
        suite.data,
        {"clips": first.clips, "options run": sum(r.heard is not None for m in suite.models for r in m.rows)},
        _cards,
        _card,
        verdict=" ".join(lead(m) for m in suite.models),
        rule=f"MSE against the clean system on the same texts; {first.vocoder}",
        alerts=(*pages.failure_alerts(suite, "clip"), *skipped, *notes),
        sections=(*sections, _about(suite)),
    )


def lead(model: SpeechNoise) -> str:
    """The worst option and how it compares with the error of the clean system, and what to do next."""
    worst = model.worst
    if worst is None or worst.heard is None:
        return f"{model.model}: no option changes the sound."
    share = worst.heard.mean / max(model.own.mean, 1e-30)
    than = f"{share:.1f} times" if share >= 0.1 else f"{100 * share:.2g}% of"
    next_step = f" Next: check whether your deployment uses {worst.label}." if share >= 0.1 else ""
    return (
        f"{model.model}: the worst option is {worst.label}, MSE {three_digits(worst.heard.mean)} of the "
        f"log mel of the wave (n = {worst.clips}), {than} the clean system's error against the recordings "
        f"({three_digits(model.own.mean)}).{next_step}"
    )


def _cards(model: SpeechNoise) -> list[Card]:
    note = f"MSE against the recordings, warped in time, n = {model.clips}"
    cards = [Card("clean system", three_digits(model.own.mean), note)]
    worst = {row.family: row for row in worst_per_group(distinct_rows(model.rows), lambda row: row.family)}
    for family, title in (("precision", "precision"), ("stft", "STFT")):
        if row := worst.get(family):
            note = f"{row.option}: MSE, log mel of the wave, n = {row.clips}"
            cards.append(Card(f"worst {title}", three_digits(row.harm[0]), note))
    if model.combined is not None and model.combined.heard is not None:
        cards.append(Card("combined", three_digits(model.combined.heard.mean), "MSE, log mel of the wave"))
    return cards


def _card(model: SpeechNoise) -> Card:
    value, label = "n/a", "no option changes the sound"
    if (worst := model.worst) and worst.heard:
        value, label = three_digits(worst.heard.mean), f"{worst.label}: MSE, log mel of the wave"
    note = f"{label}, n = {model.clips}; clean system {three_digits(model.own.mean)}"
    return Card(model.model, value, note)


def _chart(model: SpeechNoise) -> Figure:
    titles = {"precision": "Precision", "stft": "STFT", "combined": "Combined"}
    rows = [*model.rows, *([model.combined] if model.combined else [])]
    points = {name: [_point(row) for row in rows if row.family == name] for name in titles}
    note = (
        "The dashed line is the clean system's error against the recordings; options far to its left matter "
        "little compared with the model's own error. Each dot is the mean over clips, each line the 95% "
        "interval."
    )
    title, own = "MSE of the log mel of the wave", model.own.mean
    groups = [ForestGroup(titles[name], dots) for name, dots in points.items() if dots]
    body = decades(groups, own, f"clean system {three_digits(own)}", title=title, desc=note)
    return Figure(f"{title}, {many(model.clips, 'clip')}", body, note, wide=True)


def _point(row: SpeechRow) -> ForestPoint:
    name = "combined" if row.family == "combined" else row.option
    if row.heard is None or row.outcome != "measured":
        return ForestPoint(name, None, words=outcome_text(row), note=row.note)
    return ForestPoint(name, row.heard.mean, row.heard.low, row.heard.high, note=f"{row.option}: {row.note}")


def _about(suite: SpeechSuite) -> Section:
    names = list(suite.models[0].spectrum)
    settings = [[m.model, m.kind, *(str(m.spectrum[n]) for n in names), m.vocoder] for m in suite.models]
    table = Table(["model", "kind", *names, "vocoder"], settings)
    clean = table_figure("Clean system", table, "As stated in the cards.", wide=True, sortable=False)
    lines = [[f"{m.model}: {line}"] for m in suite.models for line in (*m.failed, *m.notes)]
    lines += [[problem] for problem in suite.problems]
    table = Table(["note"], lines)
    lost = table_figure("Failed clips and notes", table, name="Failed clips", wide=True, sortable=False)
    return about_section([clean], suite.versions, *([lost] if lines else []))

"""The tables and the page of a suite of speech."""

import base64
import re
from dataclasses import replace

import numpy as np
import pytest

from holdfast.core.errors import OutputError
from holdfast.noise.speech.page import (
    LOUDEST,
    ClipExample,
    ExampleSound,
    lead,
    page,
    sound_uri,
    spectrogram,
    write,
)
from holdfast.noise.speech.result import (
    MeanInterval,
    SpeechNoise,
    SpeechRow,
    SpeechSuite,
    csv_table,
    notes_of,
    options_table,
    paper_table,
)
from holdfast.report.charts.forest import ForestGroup, ForestPoint, decades
from holdfast.report.tables import to_csv, to_html, to_latex, to_markdown, to_text


def number(value):
    return MeanInterval(value, 0.5 * value, 2 * value)


def row(family, option, value, **more):
    n = number(value)
    return SpeechRow(family, option, "measured", "how", n, number(2 * value), number(3 * value), n, 8, **more)


NOISE = SpeechNoise(
    "fast", "ab12", "parallel", 8, number(2.0), number(0.1), 0.01,
    (
        row("precision", "fp16", 0.001),
        row("precision", "int8", 0.02),
        row("precision", "int8-dynamic", 0.04, longer=2, unstopped=1, failed=1),
        row("stft", "power-2", 3.0),
        row("stft", "zeros", 1.0),
        row("stft", "zeros-too", 1.0, alike="zeros"),
        SpeechRow("stft", "torch", "not installed", "torch is not installed"),
    ),
    SpeechRow("combined", "precision=int8-dynamic + stft=power-2", "measured", "", None, number(7.0),
        number(9.0), number(8.0), 8),
    {"rate": 8000}, "Griffin-Lim", "2 of the 8 texts", ("a note",), ("c9: stereo",),
)  # fmt: skip
SUITE = SpeechSuite(
    "clips", (NOISE,), "holdfast noise fast clips --task speech", "today", 2.0, {"numpy": "2"}
)


def test_the_papers_table_has_mean_and_worst():
    table = paper_table(SUITE)
    assert [head.name for head in table.heads] == [
        "model", "MSE of", "precision FP16", "precision INT8", "STFT", "combined",
        "clean vs. original audio",
    ]  # fmt: skip
    assert table.rows[0] == ("fast", "original audio", "0.001", "0.03 (0.04)", "2 (3)", "8", "2")
    assert table.rows[1] == ("fast", "log mel of the wave", "0.002", "0.06 (0.08)", "4 (6)", "7", "")
    assert table.rows[2][1:5] == ("wave", "0.003", "0.09 (0.12)", "6 (9)")
    assert table.rows[3] == ("fast", "log mel before the vocoder", "0.001", "0.03 (0.04)", "2 (3)", "–", "")


def test_options_say_what_is_to_be_said():
    text = to_text(options_table(NOISE))
    assert "the length differs in 2 of 8 clips; compared over common frames" in text
    assert "1 of 8 clips ended at max_frames; 1 clip failed" in text
    assert "same errors as zeros" in text
    assert "not installed: torch is not installed" in text
    assert "[0.001, 0.004]" in text
    for write_table in (to_markdown, to_latex, to_html):
        assert "int8-dynamic" in write_table(options_table(NOISE))


def test_csv_has_every_number():
    lines = to_csv(csv_table(SUITE)).splitlines()
    assert len(lines) == 1 + 1 + 7 + 1
    assert lines[1].startswith("fast,clips,parallel,clean,clean,measured,8,0,0,1,")
    assert ",0.002,0.001,0.004," in lines[2]


def shown(frames=40, seconds=0.5):
    rng = np.random.default_rng(0)
    mel = rng.normal(size=(frames, 20)).astype(np.float32)
    wave = rng.normal(size=int(8000 * seconds)).astype(np.float32)
    names = ("recording", "clean", "precision=int8", "stft=power-2")
    return ClipExample(
        "fast", "c1", "a <road>", 8000, tuple(ExampleSound(n, mel + i, wave) for i, n in enumerate(names))
    )


def test_the_page_holds_tables_pictures_and_sounds(tmp_path):
    made = page(SUITE, (shown(),))
    assert made.count("<audio") == 4
    assert made.count("data:image/png") == 2 + 2 * 3
    assert "a &lt;road&gt;" in made
    assert "media-src data:" in made
    assert "the worst option is stft=power-2, MSE 6" in made
    assert "3.0 times the clean system" in made.replace("&#39;", "'")
    assert "1 clip failed and is not included in the numbers" in made
    assert "clean system 2" in made
    assert not re.search(r"https?://(?!www\.w3\.org)", made)
    assert write(SUITE, tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    with pytest.raises(OutputError, match="is a folder"):
        write(SUITE, tmp_path)


def test_the_lead_of_a_model_that_nothing_changes():
    still = SpeechNoise("fast", "ab12", "parallel", 8, number(2.0), number(0.1), 0.01, (), None)
    assert lead(still) == "fast: no option changes the sound."
    quiet = SpeechNoise(
        "fast", "", "parallel", 8, number(2.0), number(0.1), 0.01, (row("stft", "a", 0.005),), None
    )
    assert "0.5% of the clean system's error" in lead(quiet)


def test_sounds_are_small_enough_for_a_page():
    wave = np.sin(2 * np.pi * 440 * np.arange(22050 * 6) / 22050).astype(np.float32)
    uri = sound_uri(wave, 22050)
    assert len(uri) < 100_000 + 100
    data = base64.b64decode(uri.split(",")[1])
    rate = int.from_bytes(data[24:28], "little")
    samples = np.frombuffer(data[44:], "<i2") / 32768
    assert 2 * len(samples) <= LOUDEST
    peak = np.abs(np.fft.rfft(samples)).argmax() * rate / len(samples)
    assert peak == pytest.approx(440, abs=2)
    assert np.abs(samples).max() == pytest.approx(1.0, abs=0.05)
    short = base64.b64decode(sound_uri(wave[:1000], 22050).split(",")[1])
    assert int.from_bytes(short[24:28], "little") == 22050


def test_a_spectrogram_has_low_frequencies_at_the_bottom():
    import io

    from PIL import Image

    mel = np.zeros((10, 20), np.float32)
    mel[:, 0] = 1.0
    uri, width, height = spectrogram(mel, 0.0, 1.0)
    data = base64.b64decode(uri.split(",")[1])
    picture = np.asarray(Image.open(io.BytesIO(data)).convert("L"), float)
    assert picture.shape == (height, width)
    assert picture[-1].mean() > picture[0].mean() + 100


def test_decades_draw_every_row_and_the_line():
    groups = [
        ForestGroup(
            "A",
            [
                ForestPoint("tiny", 1e-20, 1e-21, 1e-19),
                ForestPoint("big", 5.0, 4.0, 6.0),
                ForestPoint("no", None, words="gone"),
            ],
        )
    ]
    drawn = decades(groups, 1.0, "own error 1", title="t")
    assert drawn.count("<circle") == 2
    assert drawn.count("spot loss") == 1
    assert "gone" in drawn
    assert "own error 1" in drawn
    assert decades([], 1.0, "own error 1", title="nothing")


def test_of_several_models_each_is_named_beside_its_own_error():
    made = page(replace(SUITE, models=(NOISE, replace(NOISE, model="slow"))))
    assert "fast and slow" in made
    assert "stft=power-2: MSE, log mel of the wave; clean system 2" in made
    assert made.count('<small class="basis">n = 8, indication</small>') == 2


def test_a_sentence_before_other_words_ends_without_a_full_stop():
    assert notes_of(replace(row("stft", "a", 1.0, alike="b"), note="As it comes.")) == (
        "As it comes; same errors as b"
    )
    assert notes_of(replace(row("stft", "a", 1.0), note="As it comes.")) == "As it comes."

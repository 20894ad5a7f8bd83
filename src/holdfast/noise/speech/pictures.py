"""Spectrograms of a clip: the clean system's, a deployed one's, and their difference, with what one hears."""

from __future__ import annotations

import base64
import io

import numpy as np
from numpy.typing import NDArray

from holdfast.metrics.speech import mean_square
from holdfast.noise.speech.model.wav import wav_bytes
from holdfast.noise.speech.show import Shown, Sound
from holdfast.noise.speech.tables import short
from holdfast.report.parts import Figure, Section, fragment

LOUDEST = 75_000  # bytes of a sound on the page, before base64 makes four of three
_DARK_TO_LIGHT = ((8, 10, 36), (48, 38, 120), (140, 50, 120), (224, 96, 70), (252, 200, 90), (252, 250, 210))
_BELOW_TO_ABOVE = ((20, 70, 160), (120, 170, 220), (244, 244, 240), (232, 150, 110), (160, 30, 30))
_LEAD = (
    "Time runs to the right, frequency (mel) upwards; clean and deployed share one scale of brightness. In "
    "the difference blue is what the deployed system lacks, red what it adds."
)


def spectrogram_section(
    one: Shown, identifier: str = "spectrograms", named: str = "See and hear it"
) -> Section:
    """A row of pictures for every deployed system beside the clean one, each with its sound."""
    recording, clean, *noised = one.sounds
    rows = [_own(recording, clean, one.rate), *(_row(clean, sound, one.rate) for sound in noised)]
    body = fragment("speech_pictures.html", rows=rows)
    title = f"{one.model} says “{one.text}”"
    rate = _thinned(clean.wave, one.rate)[1]
    note = f"Clip {one.clip}." + (
        f" Sounds at {rate} samples a second to keep the page small." * (rate < one.rate)
    )
    return Section(identifier, named, (Figure(title, body, note, wide=True),), _LEAD)


def _own(recording: Sound, clean: Sound, rate: int) -> dict[str, object]:
    low, high = _range(recording.mel, clean.mel)
    return {
        "label": "clean system and recording",
        "note": "the model's own error: everything below is to be seen beside it",
        "pictures": [
            ("recording", *spectrogram(recording.mel, low, high), sound_uri(recording.wave, rate)),
            ("clean system", *spectrogram(clean.mel, low, high), sound_uri(clean.wave, rate)),
        ],
    }


def _row(clean: Sound, noised: Sound, rate: int) -> dict[str, object]:
    low, high = _range(clean.mel, noised.mel)
    common = min(len(clean.mel), len(noised.mel))
    difference = noised.mel[:common] - clean.mel[:common]
    largest = float(np.abs(difference).max()) or 1.0
    mse = mean_square(noised.mel.astype(np.float64), clean.mel.astype(np.float64)).mse
    return {
        "label": noised.label,
        "note": f"MSE {short(mse)} on this clip; the strongest colour is ±{short(largest)}",
        "pictures": [
            ("clean", *spectrogram(clean.mel, low, high), ""),
            ("deployed", *spectrogram(noised.mel, low, high), sound_uri(noised.wave, rate)),
            ("deployed − clean", *spectrogram(difference, -largest, largest, _BELOW_TO_ABOVE), ""),
        ],
    }


def _range(first: NDArray[np.float32], second: NDArray[np.float32]) -> tuple[float, float]:
    return float(min(first.min(), second.min())), float(max(first.max(), second.max()))


def spectrogram(
    mel: NDArray[np.float32],
    low: float,
    high: float,
    colours: tuple[tuple[int, int, int], ...] = _DARK_TO_LIGHT,
) -> tuple[str, int, int]:
    """A log mel spectrogram (frames, mels) as a PNG in a data URI, low ones at the bottom, and its size."""
    from PIL import Image

    place = np.clip((mel.T[::-1] - low) / max(high - low, 1e-9), 0.0, 1.0)
    stops = np.linspace(0.0, 1.0, len(colours))
    channels = [np.interp(place, stops, [c[n] for c in colours]) for n in range(3)]
    picture = Image.fromarray(np.stack(channels, axis=-1).astype(np.uint8))
    wide, tall = max(360, picture.width), max(200, picture.height)
    picture = picture.resize((min(wide, 720), min(tall, 240)), Image.Resampling.NEAREST)
    out = io.BytesIO()
    picture.quantize(64).save(out, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(out.getvalue()).decode()}", *picture.size


def sound_uri(wave: NDArray[np.float32], rate: int) -> str:
    """The wave as a wav file in a data URI, at a lower rate if it would be too large for a page."""
    thinned, slower = _thinned(wave, rate)
    loudest = max(1.0, float(np.abs(thinned).max()))  # a wave beyond full scale is made as loud as can be
    data = wav_bytes(thinned / loudest, slower)
    return f"data:audio/wav;base64,{base64.b64encode(data).decode()}"


def _thinned(wave: NDArray[np.float32], rate: int) -> tuple[NDArray[np.float64], int]:
    """The wave at a half, a third, … of its rate, so that it is small enough; what is higher is cut off."""
    factor = 1
    while 2 * len(wave) // factor > LOUDEST and rate // (factor + 1) >= 4000:
        factor += 1
    if factor == 1:
        return wave[: LOUDEST // 2].astype(np.float64), rate
    spectrum = np.fft.rfft(wave.astype(np.float64))
    samples = len(wave) // factor
    kept = np.fft.irfft(spectrum[: samples // 2 + 1], n=samples) / factor
    return kept[: LOUDEST // 2], rate // factor

"""Recordings: what is read, and one line for each that cannot be."""

import numpy as np
import pytest

from helpers.speech import hum, write_wav
from holdfast.core.errors import DataError
from holdfast.noise.speech.model.wav import read_wav, wav_bytes


def test_a_recording_is_read_as_it_was_written(tmp_path):
    wave = hum(0.1)
    path = tmp_path / "a.wav"
    path.write_bytes(wav_bytes(wave, 8000))
    assert read_wav(path, 8000) == pytest.approx(wave, abs=1 / 32768)
    loud = wav_bytes(np.array([-3.0, 3.0]), 8000)
    path.write_bytes(loud)
    assert read_wav(path, 8000).tolist() == [-1.0, 32767 / 32768]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"rate": 22050}, "expected 8000 samples a second, as the card says, got 22050"),
        ({"channels": 2}, "expected one channel, got 2"),
        ({"width": 1}, "expected 16-bit samples, got 8-bit"),
    ],
)
def test_other_recordings_are_told(tmp_path, how, said):
    path = write_wav(tmp_path / "a.wav", hum(0.1), **how)
    with pytest.raises(DataError, match=said):
        read_wav(path, 8000)


def test_broken_recordings_are_told(tmp_path):
    path = write_wav(tmp_path / "a.wav", hum(0.1))
    data = path.read_bytes()
    path.write_bytes(data[:-100])
    with pytest.raises(DataError, match="cut short: its header tells of 800 samples, 750 are there"):
        read_wav(path, 8000)
    path.write_bytes(data[:20])
    with pytest.raises(DataError, match=r"a\.wav: expected a wav file of 16-bit PCM"):
        read_wav(path, 8000)
    path.write_bytes(b"MP3 or so, but no wav at all")
    with pytest.raises(DataError, match="expected a wav file of 16-bit PCM"):
        read_wav(path, 8000)
    with pytest.raises(DataError, match=r"b\.wav: no such file, but metadata\.csv names it"):
        read_wav(tmp_path / "b.wav", 8000)
    write_wav(path, [])
    with pytest.raises(DataError, match="holds no samples"):
        read_wav(path, 8000)

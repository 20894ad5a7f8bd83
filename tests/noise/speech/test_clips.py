"""The layout of LJ Speech, and lines that cannot be used."""

import numpy as np
import pytest

from helpers.speech import hum, write_clips, write_wav
from holdfast.core.errors import DataError
from holdfast.noise.speech.clips import clip_key, open_clips, read_wav, wav_bytes


def test_clips_are_read_in_order(tmp_path):
    found = open_clips(write_clips(tmp_path / "set"))
    assert found.name == "set"
    assert [c.name for c in found.clips] == ["c0", "c1", "c2", "c3"]
    assert found.clips[1].text == "the sign is red."
    assert found.clips[1].path == tmp_path / "set" / "wavs" / "c1.wav"
    assert len(open_clips(tmp_path / "set", 2)) == 2
    assert open_clips(tmp_path / "set" / "metadata.csv") == found


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("c9|Only Text", "got 2 of 3 fields: 'normalised text' is missing"),
        ("c9", "got 1 of 3 fields: 'text' is missing"),
        ("c9|a|b|c", "got 4 of 3 fields"),
        ("c9|Text|", "got an empty 'normalised text'"),
        ("|Text|text", "got an empty 'id'"),
        ("c0|Text|text", "id 'c0' is also the id of line 1"),
        ("../c9|Text|text", "expected a plain file name"),
    ],
)
def test_bad_lines_are_told_with_their_number(tmp_path, line, said):
    folder = write_clips(tmp_path)
    with (folder / "metadata.csv").open("a") as file:
        file.write(f"\n{line}\n")
    found = open_clips(folder)
    assert len(found) == 4
    (problem,) = found.problems
    assert problem.startswith(f"{folder / 'metadata.csv'}:6: ")
    assert said in problem


def test_folders_that_hold_nothing_are_told(tmp_path):
    with pytest.raises(DataError, match=r"no metadata\.csv in it; expected the layout of LJ Speech"):
        open_clips(tmp_path)
    with pytest.raises(DataError, match="no such folder"):
        open_clips(tmp_path / "nothing")
    (tmp_path / "metadata.csv").write_text("a|b\n")
    with pytest.raises(DataError, match=r"no line can be used; first .*metadata\.csv:1: "):
        open_clips(tmp_path)
    (tmp_path / "metadata.csv").write_bytes(b"\xff\xfe|\xff|a\n")
    with pytest.raises(DataError, match="expected text in UTF-8"):
        open_clips(tmp_path)


def test_the_key_changes_with_sound_and_text(tmp_path):
    clips = open_clips(write_clips(tmp_path)).clips
    keys = {clip_key(c) for c in clips}
    assert len(keys) == 4
    before = clip_key(clips[0])
    data = bytearray(clips[0].path.read_bytes())
    data[-1] ^= 1
    clips[0].path.write_bytes(bytes(data))
    assert clip_key(clips[0]) != before
    clips[0].path.unlink()
    assert clip_key(clips[0]).startswith("unreadable")


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
        ({"rate": 22050}, "expected 8000 Hz, as in the card, got 22050"),
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
    with pytest.raises(DataError, match="truncated: the header states 800 samples, the file has 750"):
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
    with pytest.raises(DataError, match="the file has no samples"):
        read_wav(path, 8000)

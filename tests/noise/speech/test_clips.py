"""The layout of LJ Speech, and lines that cannot be used."""

import pytest

from helpers.speech import write_clips
from holdfast.core.errors import DataError
from holdfast.noise.speech.clips import clip_key, open_clips


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
        ("c0|Text|text", "id 'c0' is that of line 1 too"),
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

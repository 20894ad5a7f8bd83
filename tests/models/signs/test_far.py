"""The folder that holds the pictures of `far`."""

import pytest

from holdfast.core.errors import OutputError
from holdfast.data.open import open_dataset
from models.signs.far import write_far


def test_the_folder_is_the_embedded_data_set(tmp_path):
    assert write_far(tmp_path, 3, range(6)) == 6
    assert write_far(tmp_path, 3, range(8)) == 2  # only what was missing
    written, drawn = open_dataset(tmp_path, task="classify"), open_dataset("far:3:8")
    by_name = {sample.name: sample for sample in (entry.load() for entry in drawn.entries)}
    assert len(written) == len(drawn) == 8
    for entry in written.entries:
        sample = entry.load()
        twin = by_name[sample.name.split("/")[-1]]
        assert sample.data == twin.data
        assert written.classes[sample.truth.index] == drawn.classes[twin.truth.index]


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="file"):
        write_far(tmp_path / "file", 0, range(1))

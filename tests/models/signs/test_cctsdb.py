"""signs-single from a CCTSDB folder: the counts of the split, the recipe, the score."""

import numpy as np
import pytest

from holdfast.core.errors import DataError
from holdfast.data.open import open_dataset
from holdfast.data.patchfile import png_of
from models.__main__ import main
from models.signs.cctsdb import SplitCounts, instances, pool_of, split


def test_the_split_is_nine_to_one_or_the_numbers_of_the_document():
    train, test = split(26838)
    assert (len(train), len(test)) == (24154, 2684)
    train, test = split(26838, 2982)
    assert str(SplitCounts(len(train), len(test))) == (
        "26,838 instances: 23,856 to train, 2,982 to test (8.00:1)"
    )
    assert not set(train.tolist()) & set(test.tolist())
    assert not np.array_equal(split(100, seed=1)[1], split(100)[1])
    with pytest.raises(DataError, match="expected 1 to 9 of 10"):
        split(10, 10)


@pytest.fixture
def folder(tmp_path):
    """40 pictures of one sign each, as CCTSDB-YOLO has them."""
    rng = np.random.default_rng(0)
    home = tmp_path / "cctsdb"
    for part in ("images", "gt_labels"):
        (home / part).mkdir(parents=True)
    for n in range(40):
        pixels = rng.integers(0, 90, (64, 64, 3)).astype(np.uint8)
        pixels[16:40, 20:44, n % 3] = 240
        (home / "images" / f"{n:05}.png").write_bytes(png_of(pixels))
        (home / "gt_labels" / f"{n:05}.txt").write_text(f"{n % 3} {20 / 64} {16 / 64} {44 / 64} {40 / 64}\n")
    return home


def test_instances_are_the_pictures_of_the_folder(folder, tmp_path):
    data = instances(folder, tmp_path / "work")
    pool = pool_of(data, np.arange(5))
    assert pool["images"].shape == (5, 64, 64, 3)
    np.testing.assert_allclose(pool["boxes"][0], [20 / 64, 16 / 64, 44 / 64, 40 / 64], atol=1e-6)
    assert pool["labels"].tolist() == [0, 1, 2, 0, 1]


def test_the_command_trains_and_prints_the_counts(folder, tmp_path, capsys):
    pytest.importorskip("torch")
    words = ["signs-single", "--cctsdb", str(folder), "--fraction", "0.001", "--work", str(tmp_path / "work")]
    assert main([*words, "--out", str(tmp_path / "out"), "--test-instances", "8"]) == 0
    said = capsys.readouterr()
    assert "40 instances: 32 to train, 8 to test (4.00:1)" in said.out + said.err
    assert "on 8 test instances" in said.out + said.err
    assert (tmp_path / "out" / "signs-single.onnx").is_file()
    assert open_dataset(str(folder)).classes
    assert main(words) == 2  # the shipped model is not replaced

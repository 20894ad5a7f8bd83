"""Patches on disk."""

import numpy as np
import pytest
from PIL import Image

from holdfast.core.errors import DataError
from holdfast.core.patch import OnBoxes, Patch, Position, apply
from holdfast.data.patchfile import files_of, patch_of, png_of, read_patch


def patch(where):
    rng = np.random.default_rng(3)
    return Patch(rng.integers(0, 256, (6, 5, 3), np.uint8), rng.random((6, 5)) < 0.5, where)


@pytest.mark.parametrize("where", [Position(3, -4), OnBoxes(0.25, 0.75, 0.4)])
def test_a_patch_comes_back_as_it_was(tmp_path, where):
    made = patch(where)
    png, toml = files_of(made, {"model": 'a "b"', "seed": 3})
    (tmp_path / "p.png").write_bytes(png)
    (tmp_path / "p.toml").write_bytes(toml)
    for name in ("p.png", "p.toml"):
        back = read_patch(tmp_path / name)
        assert back.where == where
        assert (back.mask == made.mask).all()
        assert (back.pixels[back.mask] == made.pixels[made.mask]).all()


def test_pixels_the_mask_hides_do_not_change_the_file():
    made = patch(Position())
    other = Patch(np.where(made.mask[..., None], made.pixels, 9).astype(np.uint8), made.mask)
    assert files_of(made) == files_of(other)


def test_without_toml_it_lies_in_the_corner(tmp_path):
    (tmp_path / "p.png").write_bytes(png_of(np.full((2, 2, 3), 5, np.uint8)))
    after = apply(np.zeros((4, 4, 3), np.uint8), read_patch(tmp_path / "p.png"))
    assert (after[:2, :2] == 5).all()
    assert after.sum() == 2 * 2 * 3 * 5


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        (b"[where]\nx = 1.5", "x: expected a whole number, got 1.5"),
        (b"[where]\nx = true", "expected a whole number"),
        (b'[where]\non = "faces"', 'expected on = "boxes"'),
        (b"[where]\nside = 3", 'expected on = "boxes"'),
        (b"[where]\nz = 3", "expected x, y"),
        (b'[where]\non = "boxes"\nside = 200', "side: expected a number above 0 and up to 4, got 200"),
        (b"where = [", "expected TOML"),
        (b"\xff\xfe", "expected TOML"),
    ],
)
def test_wrong_toml_is_told_in_one_line(toml, said):
    png = png_of(np.zeros((2, 2, 3), np.uint8))
    with pytest.raises(DataError, match=said) as caught:
        patch_of(png, toml, "mine")
    assert "\n" not in str(caught.value)
    assert "mine.toml" in str(caught.value)


def test_half_transparent_pixels_are_no_mask(tmp_path):
    half = np.full((2, 2, 4), 100, np.uint8)
    with pytest.raises(DataError, match="alpha of 0 or 255"):
        patch_of(png_of(half), b"")


def test_a_jpeg_is_no_patch(tmp_path):
    Image.new("RGB", (4, 4)).save(tmp_path / "p.png", "JPEG")
    with pytest.raises(DataError, match="expected a PNG, got JPEG"):
        read_patch(tmp_path / "p.png")
    with pytest.raises(DataError, match="expected the PNG of a patch"):
        read_patch(tmp_path / "q.png")
    (tmp_path / "cut.png").write_bytes(png_of(np.zeros((9, 9, 3), np.uint8))[:40])
    with pytest.raises(DataError, match="cut"):
        read_patch(tmp_path / "cut.png")

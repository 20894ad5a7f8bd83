"""The input of a target with one or two deliberate mistakes, made with OpenCV and numpy alone."""

import io
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image as Pictures

from holdfast.core.errors import InputError
from holdfast.core.model import Card, Head, Input, Model
from holdfast.core.types import Size
from holdfast.diagnose.target import diagnose_input

MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


def scene(width=300, height=221, seed=3):
    """A smooth coloured background with shapes and texture, (h, w, 3) BGR."""
    rng = np.random.default_rng(seed)
    image = cv2.resize(rng.integers(30, 220, (6, 8, 3)).astype(np.uint8), (width, height))
    for _ in range(14):
        x, y, r = rng.integers(0, width), rng.integers(0, height), rng.integers(6, 40)
        colour = tuple(int(v) for v in rng.integers(0, 255, 3))
        cv2.rectangle(image, (int(x), int(y)), (int(x + r), int(y + r // 2)), colour, -1)
        cv2.circle(image, (int(y), int(x) % height), int(r // 2), colour[::-1], 2)
    return image


def encoded(image, kind="PNG", **options):
    out = io.BytesIO()
    Pictures.fromarray(image[..., ::-1].copy()).save(out, kind, **options)
    return out.getvalue()


def model_of(**values):
    spec = {"size": Size(160, 160), "colour": "bgr", "policy": "letterbox", "place": "corner", **values}
    card = Card("detect", Input(**spec), Head("yolox"), ("a",), resize="opencv-bilinear")
    return Model("net", Path("net.onnx"), card, "0" * 64)


def letterbox(image, side=160, pad=114, centre=False, resize=cv2.INTER_LINEAR, cut=round):
    height, width = image.shape[:2]
    ratio = min(side / width, side / height)
    w, h = cut(width * ratio), cut(height * ratio)
    x, y = ((side - w) // 2, (side - h) // 2) if centre else (0, 0)
    canvas = np.full((side, side, 3), pad, np.uint8)
    canvas[y : y + h, x : x + w] = cv2.resize(image, (w, h), interpolation=resize)
    return canvas


def nchw(pixels):
    return np.ascontiguousarray(np.asarray(pixels, np.float32).transpose(2, 0, 1)[np.newaxis])


def crop(image):
    side = min(image.shape[:2])
    left = (image.shape[1] - side) // 2
    return cv2.resize(image[:, left : left + side], (160, 160))


def grey(pixels):
    return np.repeat(cv2.cvtColor(pixels, cv2.COLOR_BGR2GRAY)[..., np.newaxis], 3, 2)


def shifted(pixels, x):
    return cv2.warpAffine(pixels, np.float32([[1, 0, x], [0, 1, 0]]), pixels.shape[1::-1])


def gamma(pixels, power):
    return np.round(255 * (pixels / 255.0) ** power).astype(np.uint8)


def expanded(pixels):
    return np.round(np.clip((pixels - 16.0) * 255 / 219, 0, 255)).astype(np.uint8)


def corner_crop(image):
    height, width = image.shape[:2]
    ratio = 160 / min(width, height)
    return cv2.resize(image, (round(width * ratio), round(height * ratio)))[:160, :160]


def by_pillow(image, width, height):
    return np.asarray(Pictures.fromarray(image).resize((width, height), Pictures.Resampling.BILINEAR))


IMAGE = scene()
BOX = letterbox(IMAGE)
MISTAKES = {  # dump, kinds of the causes
    "none": (nchw(BOX), []),
    "rgb": (nchw(BOX[..., ::-1]), ["channels"]),
    "divided": (nchw(BOX) / 255, ["range"]),
    "mean and std": (nchw((BOX / 255.0 - MEAN) / STD), ["range"]),
    "minus one to one": (nchw(BOX / 127.5 - 1), ["range"]),
    "centred": (nchw(letterbox(IMAGE, centre=True)), ["geometry"]),
    "stretched": (nchw(cv2.resize(IMAGE, (160, 160))), ["geometry"]),
    "cropped": (nchw(crop(IMAGE)), ["geometry"]),
    "cropped at the corner": (nchw(corner_crop(IMAGE)), ["geometry"]),
    "expanded": (nchw(letterbox(expanded(IMAGE))), ["colour"]),
    "truncated": (nchw(letterbox(IMAGE, cut=int)), ["geometry"]),
    "padded with 0": (nchw(letterbox(IMAGE, pad=0)), ["pad"]),
    "one pixel": (nchw(np.roll(BOX, 1, 1)), ["shift"]),
    "half a pixel": (nchw(shifted(BOX, 0.5)), ["shift"]),
    "mirrored": (nchw(BOX[:, ::-1]), ["flip"]),
    "upside down": (nchw(BOX[::-1]), ["flip"]),
    "resized by two libraries": (nchw(letterbox(by_pillow(IMAGE, 224, 165))), ["twice"]),
    "resized twice": (nchw(letterbox(cv2.resize(IMAGE, (224, 165)))), ["twice"]),
    "gamma": (nchw(gamma(BOX, 2.2)), ["gamma"]),
    "area": (nchw(letterbox(IMAGE, resize=cv2.INTER_AREA)), ["resize"]),
    "channels last": (BOX[np.newaxis].astype(np.float32), ["layout"]),
    "reshaped": (BOX.astype(np.float32).reshape(1, 3, 160, 160), ["layout"]),
    "batch": (np.concatenate([nchw(letterbox(scene(seed=9))), nchw(BOX)]), ["batch"]),
    "grey": (nchw(grey(BOX)), ["channels"]),
    "blue dropped": (nchw(BOX * np.array([0, 1, 1])), ["channels"]),
    "larger": (nchw(letterbox(IMAGE, side=192)), ["size"]),
    "float16": (nchw(BOX * 0.37).astype(np.float16), ["range", "dtype"]),
    "uint8": (nchw(BOX).astype(np.uint8), ["dtype"]),
    "int8": (nchw(BOX / 2.0 - 60).round().astype(np.int8), ["quantised"]),
    "rgb and divided": (nchw(BOX[..., ::-1]) / 255, ["channels", "range"]),
    "mirrored and gamma": (nchw(gamma(BOX[:, ::-1], 1 / 2.2)), ["flip", "gamma"]),
    "stretched and nearest": (nchw(cv2.resize(IMAGE, (160, 160), interpolation=0)), ["geometry", "resize"]),
    "no batch axis": (nchw(BOX)[0], ["batch"]),
    "float64": (nchw(BOX).astype(np.float64), ["dtype"]),
    "grey and divided": (nchw(grey(BOX)) / 255, ["channels", "range"]),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found_and_no_other_is_named(name):
    dump, kinds = MISTAKES[name]
    result = diagnose_input(model_of(), [encoded(IMAGE)], [dump])
    assert [cause.kind for cause in result.causes] == kinds
    assert result.explained


@pytest.mark.parametrize("seed", range(3))
def test_another_order_of_rounding_is_no_mistake(seed):
    """The resized image before it is rounded to levels, and one level more or less here and there."""
    image = scene(seed=seed)
    exact = cv2.resize(image.astype(np.float32), (160, 118))
    box = letterbox(image).astype(np.float32)
    box[:118] = exact
    worn = letterbox(image).astype(np.float32) + np.random.default_rng(seed).integers(-1, 2, (160, 160, 3))
    for dump in (box, worn):
        result = diagnose_input(model_of(), [encoded(image)], [nchw(dump)])
        assert result.causes == ()
        assert result.explained


def test_the_verdict_is_a_sentence_with_a_repair_and_numbers():
    result = diagnose_input(model_of(), [encoded(IMAGE)], [nchw(BOX[..., ::-1])])
    before = np.abs(BOX[..., ::-1].astype(float) - BOX).max()
    assert result.verdict == (
        "The target feeds RGB; the model wants BGR. Swap the first and the third channel. "
        f"Repaired, the largest difference falls from {before:.3g} to 0."
    )


def test_a_vignette_saturation_and_blur_accuse_neither_padding_nor_geometry():
    height, width = IMAGE.shape[:2]
    y, x = np.linspace(-1, 1, height)[:, None], np.linspace(-1, 1, width)[None]
    dimmed = np.rint(IMAGE * (1 - (x**2 + y**2) / 4)[..., None]).astype(np.uint8)
    colours = cv2.cvtColor(IMAGE, cv2.COLOR_BGR2HSV)
    colours[..., 1] = np.minimum(colours[..., 1] * 1.5, 255).astype(np.uint8)
    vivid = cv2.cvtColor(colours, cv2.COLOR_HSV2BGR)
    for changed in (dimmed, vivid, cv2.GaussianBlur(IMAGE, (0, 0), 3)):
        result = diagnose_input(model_of(), [encoded(IMAGE)], [nchw(letterbox(changed))])
        assert (result.causes, result.explained) == ((), False)


def test_noise_another_image_and_a_covered_half_are_not_explained():
    rng = np.random.default_rng(0)
    covered = BOX.copy()
    covered[:, :80] = 255 - covered[:, :80]
    for dump in (
        nchw(BOX) + rng.normal(0, 12, (1, 3, 160, 160)),
        nchw(letterbox(scene(seed=11))),
        nchw(covered),
    ):
        result = diagnose_input(model_of(), [encoded(IMAGE)], [dump.astype(np.float32)])
        assert not result.explained
        assert result.causes == ()
        assert result.verdict.startswith("No known cause explains the difference")
    assert result.remainder.where == "in the left half"


@pytest.mark.parametrize("tag", [3, 6, 8])
def test_an_exif_orientation_is_applied_or_ignored_by_mistake(tag):
    exif = Pictures.Exif()
    exif[0x0112] = tag
    data = encoded(IMAGE, "JPEG", quality=95, exif=exif)
    stored = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
    upright = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    as_stored, applied = nchw(letterbox(stored)), nchw(letterbox(upright))

    result = diagnose_input(model_of(), [data], [applied])
    assert [cause.kind for cause in result.causes] == ["orientation"]
    assert f"The target applies the EXIF orientation {tag}" in result.causes[0].sentence
    result = diagnose_input(model_of(), [data], [as_stored])
    assert result.causes == ()
    assert f"The file has the EXIF orientation {tag}" in result.verdict
    assert "repeat with --train-exif" in result.verdict

    result = diagnose_input(model_of(), [data], [as_stored], train_exif=True)
    assert [cause.kind for cause in result.causes] == ["orientation"]
    assert f"The target ignores the EXIF orientation {tag}" in result.causes[0].sentence
    assert result.remainder.largest < 0.01
    result = diagnose_input(model_of(), [data], [applied], train_exif=True)
    assert (result.causes, result.explained, result.note) == ((), True, "")


def test_an_exif_orientation_of_the_second_image_is_named():
    exif = Pictures.Exif()
    exif[0x0112] = 8
    files = [encoded(IMAGE), encoded(scene(seed=4), exif=exif)]
    turned = cv2.rotate(scene(seed=4), cv2.ROTATE_90_COUNTERCLOCKWISE)
    result = diagnose_input(model_of(), files, [nchw(BOX), nchw(letterbox(turned))])
    assert ["EXIF orientation 8" in cause.sentence for cause in result.causes] == [True]


def test_more_dumps_agree_on_one_answer():
    scenes = [scene(seed=seed) for seed in (3, 4)]
    dumps = [nchw(letterbox(one, resize=cv2.INTER_AREA)) for one in scenes]
    result = diagnose_input(model_of(), [encoded(one) for one in scenes], dumps)
    assert [cause.kind for cause in result.causes] == ["resize"]
    assert result.dumps == 2
    assert result.remainder.largest < 0.01


def test_a_dump_that_cannot_be_read_leaves_the_others():
    dumps = [np.zeros((2, 2), np.float32), nchw(BOX).astype(np.uint8)]
    result = diagnose_input(model_of(), [encoded(IMAGE)] * 2, dumps)
    assert [cause.kind for cause in result.causes] == ["dtype"]  # of the dump that was read
    assert result.dumps == 1


def test_options_with_the_same_values_are_named_beside_the_accused_one():
    data = encoded(IMAGE, "JPEG", quality=60)
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    (cause,) = diagnose_input(model_of(), [data], [nchw(letterbox(pixels, resize=cv2.INTER_AREA))]).causes
    assert "decode" not in cause.text
    assert "resize=opencv-area" in cause.text


@pytest.mark.parametrize("shape", [(5,), (1, 7, 160, 160), (2, 2)])
def test_an_array_that_is_no_input_is_refused(shape):
    with pytest.raises(InputError, match="the dump"):
        diagnose_input(model_of(), [encoded(IMAGE)], [np.zeros(shape, np.float32)])

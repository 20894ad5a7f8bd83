"""Bad input: one clear line that names the file, exit code 2; one bad image does not end a run."""

import gzip
import io
import os
import struct

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from PIL import Image

from helpers import models as making


@pytest.fixture
def folder(tmp_path):
    making.classifier(tmp_path)
    making.image_folder(tmp_path / "data", 8)
    return tmp_path


def spoil(folder, data, name="zz.jpg"):
    path = folder / "data" / "dark" / name
    path.write_bytes(data)
    return path


def good(size=24, **options):
    return making.jpeg(np.full((size, size, 3), 40, np.uint8), **options)


@pytest.mark.parametrize("decode", ["pillow", "opencv"])
@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "0 bytes"),
        (b"this is no image at all, but it is long enough to be read as one" * 20, "image"),
        (good(200)[:900], "truncated|ends inside|cannot be decoded"),
    ],
    ids=["0-byte", "text", "truncated"],
)
def test_one_bad_image_is_counted_named_and_left_out(holdfast, folder, data, words, decode):
    import re

    spoil(folder, data)
    done = holdfast("evaluate", "tiny.onnx", "data", "--jobs", 1, "--stage", f"decode={decode}")
    assert done.code == 4, done
    line = next(text for text in done.err.splitlines() if text.startswith("failed"))
    assert "zz.jpg" in line
    assert re.search(words, line)
    assert "1 of 9 images failed and is not included in the numbers" in done.err
    assert "8 images" in done.out


def test_strict_ends_at_the_first_bad_image(fails, folder):
    spoil(folder, b"")
    assert "zz.jpg" in fails("evaluate", "tiny.onnx", "data", "--jobs", 1, "--strict")


def test_strict_does_not_trust_an_earlier_lenient_run(holdfast, fails, folder):
    spoil(folder, good(200)[:900])
    assert holdfast("evaluate", "tiny.onnx", "data", "--jobs", 1).code == 4
    assert "zz.jpg" in fails("evaluate", "tiny.onnx", "data", "--jobs", 1, "--strict")


def encoded(mode, kind, **options):
    stream = io.BytesIO()
    if mode == "I;16":
        picture = Image.fromarray(np.full((24, 24), 40 * 257, np.uint16))
    else:
        picture = Image.new("RGB", (24, 24), (40, 40, 40)).convert(mode)
    picture.save(stream, kind, **options)
    return stream.getvalue()


def rotated():
    exif = Image.Exif()
    exif[0x0112] = 6
    return encoded("RGB", "JPEG", exif=exif.tobytes())


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (encoded("RGB", "PNG"), "PNG image with the suffix .jpg"),
        (encoded("CMYK", "JPEG"), "CMYK"),
        (encoded("I;16", "PNG"), "16"),
        (rotated(), "EXIF"),
    ],
    ids=["png-named-jpg", "cmyk", "16-bit", "exif"],
)
def test_odd_images_are_read_and_said(holdfast, folder, data, words):
    spoil(folder, data)
    done = holdfast("evaluate", "tiny.onnx", "data", "--jobs", 1, "--json", "o.json")
    assert done.code == 0, done
    note = [text for text in done.err.splitlines() if "zz.jpg" in text and words in text]
    assert note, done.err
    assert "9 images" in done.out


def test_a_decompression_bomb_is_refused(holdfast, folder):
    header = struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0)
    spoil(folder, b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + header + bytes(200), "bomb.png")
    done = holdfast("evaluate", "tiny.onnx", "data", "--jobs", 1)
    assert done.code == 4
    assert "bomb.png" in done.err


def test_all_images_bad_is_an_error(fails, folder):
    for path in (folder / "data").rglob("*.jpg"):
        path.write_bytes(b"")
    assert "none of the 8 images" in fails("evaluate", "tiny.onnx", "data", "--jobs", 1)


@pytest.mark.parametrize(
    "content", [b"", b"<html>404</html>", b"\x08\x07garbage" * 50], ids=["empty", "html", "junk"]
)
def test_a_file_that_is_no_onnx_is_named(fails, folder, content):
    (folder / "net.onnx").write_bytes(content)
    (folder / "net.toml").write_text(making.CLASS_CARD)
    line = fails("evaluate", "net.onnx", "data")
    assert "net.onnx" in line
    assert "ONNX" in line


def test_a_truncated_onnx_is_named(fails, folder):
    data = (folder / "tiny.onnx").read_bytes()
    (folder / "tiny.onnx").write_bytes(data[: len(data) // 2])
    assert "tiny.onnx" in fails("evaluate", "tiny.onnx", "data")


def test_a_damaged_gz_is_named(fails, folder):
    data = bytearray(gzip.compress((folder / "tiny.onnx").read_bytes() * 40))
    data[20:60] = b"\xff" * 40
    (folder / "tiny.onnx.gz").write_bytes(data)
    assert "tiny.onnx.gz: expected a readable ONNX file" in fails("evaluate", "tiny.onnx.gz", "data")


def test_data_without_class_names_cannot_be_renamed(fails, folder):
    (folder / "data" / "val.txt").write_text("dark/0000.jpg 0\n")
    line = fails("evaluate", "tiny.onnx", "data/val.txt", "--map", "0=dark")
    assert "has no class names to map" in line


def odd_graph(path, domain="", opset=17):
    node = helper.make_node("Relu" if not domain else "Twist", ["x"], ["y"], domain=domain, name="odd")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 16, 16])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3, 16, 16])
    sets = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    onnx.save(helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=sets), str(path))
    path.with_suffix(".toml").write_text(making.CLASS_CARD)


def test_a_custom_operator_is_named(fails, folder):
    odd_graph(folder / "odd.onnx", domain="com.vendor")
    line = fails("evaluate", "odd.onnx", "data")
    assert "odd.onnx" in line
    assert "com.vendor" in line


def test_an_opset_of_the_future_is_named(fails, folder):
    odd_graph(folder / "odd.onnx", opset=999)
    line = fails("evaluate", "odd.onnx", "data")
    assert "odd.onnx" in line
    assert "999" in line


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("size = [16, 16]", "size = [32, 32]", "32"),
        ('task = "classify"', 'task = "clasify"', "classify"),
        ('name = "classifier"', 'name = "clasifier"', "Did you mean 'classifier'"),
        ("scale = ", "sclae = ", "scale"),
        ('["dark", "bright"]', '["dark", "bright", "grey"]', "3"),
        ("[input]", "[input", "tiny.toml"),
    ],
    ids=["size", "task", "head", "unknown key", "class count", "syntax"],
)
def test_a_wrong_card_says_what_is_wrong(fails, folder, old, new, words):
    card = folder / "tiny.toml"
    card.write_text(card.read_text().replace(old, new))
    assert words in fails("evaluate", "tiny.onnx", "data", "--jobs", 1)


def test_a_model_that_does_not_know_the_classes(fails, folder):
    (folder / "data" / "dark").rename(folder / "data" / "murky")
    line = fails("evaluate", "tiny.onnx", "data")
    assert "class mismatch" in line
    assert "murky" in line


def test_nan_in_the_outputs_is_each_images_failure(fails, tmp_path):
    making.classifier(tmp_path, scale=float("nan"))
    making.image_folder(tmp_path / "data", 4)
    line = fails("evaluate", "tiny.onnx", "data", "--jobs", 1)
    assert "NaN" in line
    assert ".jpg" in line


def test_an_empty_folder(fails, folder):
    (folder / "nothing").mkdir()
    assert "nothing: the folder is empty" in fails("evaluate", "tiny.onnx", "nothing")


def test_a_missing_model_and_a_missing_data_set(fails, folder):
    assert "nix.onnx: no such model file" in fails("evaluate", "nix.onnx", "data")
    assert "nix: no such file or folder" in fails("evaluate", "tiny.onnx", "nix")


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="POSIX")
def test_a_folder_that_cannot_be_written(fails, folder):
    # A file where a folder is needed stops root too, whom permissions do not.
    (folder / "runs").write_text("")
    assert "runs" in fails("evaluate", "tiny.onnx", "data", "--jobs", 1, "--runs", "runs")


def test_a_full_disk(fails, folder, monkeypatch):
    import errno

    from holdfast.engine import store

    def full(_handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(store.os, "fsync", full)
    told = fails("evaluate", "tiny.onnx", "data", "--jobs", 1, code=6)
    assert "No space left on device" in told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["evaluate"], "expected MODEL DATA"),
        (["evaluate", "tiny.onnx"], "expected MODEL DATA"),
        (["evaluate", "--truth", "x.json"], "both --truth FILE and --predictions FILE"),
        (["evaluate", "--truth", "x.json", "--predictions", "y.json"], "x.json"),
        (["evaluate", "tiny.onnx", "data", "--rule", "cocoo"], "Did you mean 'coco'?"),
        (["evaluate", "tiny.onnx", "data", "--iou", "2"], "--iou"),
        (["evaluate", "tiny.onnx", "data", "--stage", "resize"], "expected KIND=NAME"),
        (
            ["evaluate", "tiny.onnx", "data", "--stage", "resize=opencv-linear"],
            "Did you mean 'opencv-bilinear'?",
        ),
        (["evaluate", "tiny.onnx", "data", "--csv", "--markdown"], "not several"),
        (["evaluate", "tiny.onnx", "data", "--class", "dark"], "--class: expected with --explain"),
        (["evaluate", "tiny.onnx", "data", "--explain"], "only detectors have an AP"),
        (["evaluate", "tiny.onnx", "--explain"], "expected MODEL DATA"),
        (["evaluate", "--explain", "--images", "3"], "--images: expected only with MODEL DATA"),
        (
            ["evaluate", "--truth", "x", "--predictions", "y", "--stage", "a=b", "--classes", "common"],
            "--classes, --stage: expected only with MODEL DATA",
        ),
        (["evaluat"], "Did you mean"),
        (["report", "nowhere"], "no such run"),
        (["data", "make", "sings", "x"], "Did you mean 'signs'?"),
        (["model", "info", "signs-yol"], "signs-yolo"),
    ],
)
def test_wrong_words_on_the_command_line(fails, folder, arguments, words):
    assert words in fails(*arguments)


def test_truth_without_any_class_cannot_be_explained(fails, folder):
    (folder / "t.json").write_text('{"images": [{"id": 1}], "annotations": [], "categories": []}')
    (folder / "p.json").write_text("[]")
    files = ("--truth", "t.json", "--predictions", "p.json")
    assert "has no class to explain" in fails("evaluate", *files, "--explain")


def test_a_page_is_made_from_another_folder_too(holdfast, folder, monkeypatch):
    from holdfast.evaluate.page import pictures
    from holdfast.evaluate.result import open_run

    assert holdfast("evaluate", "tiny.onnx", "data", "--jobs", 1).code == 0
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    done = open_run(folder / "holdfast-runs" / "tiny-on-data")
    assert pictures(done)(done.records[0].name)

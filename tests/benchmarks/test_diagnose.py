"""The generator and the judge of the benchmark. Only `tests/diagnose` tests the diagnosis itself."""

import importlib
import io
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from holdfast.core.model import Input
from holdfast.core.pipeline import place
from holdfast.core.registry import lookup
from holdfast.core.types import Size
from holdfast.data.open import open_dataset

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
MODULES = ("diagnose_dumps", "diagnose_mistakes", "diagnose_results", "diagnose")


@pytest.fixture(scope="module")
def modules():
    """The three scripts by name, as `python benchmarks/diagnose.py` imports them."""
    sys.path.insert(0, str(FOLDER))
    try:
        yield {name: importlib.import_module(name) for name in MODULES}
    finally:
        sys.path.remove(str(FOLDER))
        for name in MODULES:
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def dumps(modules):
    return modules["diagnose_dumps"]


@pytest.fixture(scope="module")
def mistakes(modules):
    return modules["diagnose_mistakes"]


@pytest.fixture(scope="module")
def bench(modules):
    return modules["diagnose"]


@pytest.fixture(scope="module")
def photos():
    """Four colour photographs of 550×411 pixels with subsampled chroma."""
    files = []
    for entry in open_dataset("signs:0:4").entries:
        out = io.BytesIO()
        scene = Image.open(io.BytesIO(entry.load().data)).crop((20, 30, 570, 441))
        scene.save(out, format="JPEG", quality=90, subsampling=2)
        files.append(out.getvalue())
    return files


def test_every_mistake_is_visible_with_some_model(dumps, mistakes, photos):
    assert len(mistakes.MISTAKES) >= 75
    clean = {name: dumps.dump(chain, photos[0]) for name, chain in mistakes.CLEAN.items()}
    for name, mistake in mistakes.MISTAKES.items():
        seen = []
        for model, chain in mistakes.CLEAN.items():
            other = mistake.change(chain)
            made = dumps.dump(other, dumps.file_bytes(other, photos[0]), photos[1:])
            level = min(dumps.grey_level(chain), dumps.grey_level(other))
            seen.append(dumps.differ(made, clean[model], level))
        assert any(seen), name


def test_forty_mistakes_change_the_preprocessing_of_every_model(mistakes):
    for chain in mistakes.CLEAN.values():
        assert sum(bool(mistake.changed(chain)) for mistake in mistakes.MISTAKES.values()) >= 40


def test_clean_dumps_computed_in_other_ways_differ_by_rounding_only(dumps, mistakes, photos):
    for chain in mistakes.CLEAN.values():
        clean = dumps.dump(chain, photos[0])
        for name, change in mistakes.CONTROLS.items():
            other = dumps.dump(change(chain), dumps.file_bytes(change(chain), photos[0]))
            assert not dumps.differ(other, clean, 2 * dumps.grey_level(chain)), name


def test_dumps_with_an_unknown_cause_differ_clearly(dumps, mistakes, photos):
    for chain in mistakes.CLEAN.values():
        clean = dumps.dump(chain, photos[0])
        for name in mistakes.UNKNOWN:
            made = mistakes.unknown_dump(name, chain, photos[0], photos[1])
            assert np.abs(made - clean).mean() > dumps.grey_level(chain), name


@pytest.mark.parametrize(
    ("name", "spec", "resize"),
    [
        (
            "yolox_nano",
            Input(Size(416, 416), colour="bgr", policy="letterbox-truncate", place="corner"),
            "opencv-bilinear",
        ),
        (
            "efflite0",
            Input(Size(224, 224), policy="crop", short_side=256, mean=(127.0,) * 3, std=(128.0,) * 3),
            "pillow-bilinear",
        ),
        ("signs-yolo", Input(Size(416, 416), scale=1 / 255), "pillow-bilinear"),
    ],
)
def test_the_clean_dump_is_the_models_input(dumps, mistakes, photos, name, spec, resize):
    chain = mistakes.CLEAN[name]
    for data in photos:
        small = place(lookup("decode", "pillow")(data), spec, lookup("resize", resize))[0]
        assert np.allclose(
            dumps.dump(chain, data)[0],
            lookup("normalise", "card")(small, spec),
            atol=0.001 * dumps.grey_level(chain),
        )


@pytest.mark.parametrize("tag", range(1, 9))
def test_the_exif_orientation_is_written_and_applied(dumps, photos, tag):
    chain = dumps.Chain((64, 48), tag=tag, upright=True)
    tagged = dumps.file_bytes(chain, photos[0])
    picture = Image.open(io.BytesIO(tagged))
    assert picture.getexif()[0x0112] == tag
    assert np.array_equal(dumps.source(chain, tagged), np.asarray(ImageOps.exif_transpose(picture)))


def test_layouts_and_quantised_types(dumps, photos):
    chain = dumps.Chain((64, 48), scale=1 / 255)
    clean = dumps.dump(chain, photos[0])
    nhwc = dumps.dump(replace(chain, layout="nhwc"), photos[0])
    assert np.array_equal(nhwc.transpose(0, 3, 1, 2), clean)
    reinterpreted = dumps.dump(replace(chain, layout="reinterpreted"), photos[0])
    assert reinterpreted.shape == clean.shape
    assert np.array_equal(reinterpreted.reshape(1, 48, 64, 3), nhwc)
    int8 = dumps.dump(replace(chain, quantised="int8"), photos[0])
    assert np.array_equal(int8.astype(int) + 128, np.rint(clean * 255))
    uint8 = dumps.dump(replace(chain, quantised="uint8"), photos[0])
    assert np.abs((uint8.astype(float) - 21) * 1.2 / 255 - clean).max() <= 0.6 * 1.2 / 255
    four = dumps.dump(replace(chain, batch="four"), photos[0], photos[1:])
    assert four.shape == (4, 3, 48, 64)
    assert np.array_equal(four[2], clean[0])


def test_bilinear_without_half_pixel_centres(dumps):
    row = np.array([[10, 20, 30, 40]], np.uint8)[..., None].repeat(3, 2)
    assert dumps.resized_asymmetric(row, (8, 1))[0, :, 0].tolist() == [10, 15, 20, 25, 30, 35, 40, 40]


def test_the_judge(bench):
    needs = (frozenset({"shift", "geometry"}), frozenset({"range"}))
    allowed = frozenset({"shift", "geometry", "range", "resize"})
    for kinds, explained, outcome in (
        ({"shift", "range"}, True, "found"),
        ({"geometry", "range", "resize"}, True, "found"),
        ({"geometry", "range"}, False, "unknown"),
        ({"shift"}, True, "missed"),
        (set(), True, "missed"),
        ({"shift", "range", "flip"}, True, "wrongly accused"),
        ({"flip"}, False, "wrongly accused"),
    ):
        assert bench.judge(needs, allowed, frozenset(kinds), explained) == outcome
    assert bench.judge((), frozenset(), frozenset(), True) == "found"


def test_two_mistakes_require_both_causes(mistakes):
    def needs(first, second):
        mistake = mistakes.both(mistakes.MISTAKES[first], mistakes.MISTAKES[second])
        return [set(group) for group in mistake.needs]

    assert needs("gamma-2.2", "mirrored") == [{"gamma"}, {"flip"}]
    assert needs("exif-6-applied", "mirrored") == [{"orientation", "flip"}]
    assert needs("int8", "limited-range") == [{"quantised"}, {"range", "colour", "quantised"}]


def test_pairs_are_always_the_same_and_change_different_steps(bench, mistakes):
    pairs = list(bench.draw_pairs("signs-yolo", 2, 3))
    assert pairs == list(bench.draw_pairs("signs-yolo", 2, 3))
    clean = mistakes.CLEAN["signs-yolo"]
    for case in pairs:
        first, second = (mistakes.MISTAKES[name].changed(clean) for name in case.names)
        assert first
        assert second
        assert not first & second


def test_without_the_data_only_the_embedded_model_is_run(bench, monkeypatch, capsys, tmp_path):
    ran = []
    monkeypatch.setattr(bench, "DATA", tmp_path / "none")
    monkeypatch.setattr(bench, "run", lambda cases, *_: ran.extend(cases))
    monkeypatch.setattr(sys, "argv", ["diagnose.py", "mirrored", "--images", "2"])
    with pytest.raises(SystemExit):
        bench.main()
    assert [(case.model, case.image) for case in ran] == [("signs-yolo", 0), ("signs-yolo", 1)]
    assert "set HOLDFAST_DATA" in capsys.readouterr().out

"""What one process makes of one image: masks, odd values, keys."""

import functools
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from helpers import models as making
from holdfast.core.errors import ImageError
from holdfast.core.pipeline import pipeline_of
from holdfast.core.registry import lookup
from holdfast.core.types import Detections
from holdfast.data.open import open_dataset
from holdfast.engine.records import first_of, read_mask, to_plain
from holdfast.evaluate.run import EvaluationPlan, evaluate
from holdfast.graph.load import load_model
from holdfast.noise.vision.sweep import SweepPlan, Variant, sweep

SEGMENT_CARD = """\
task = "segment"
classes = ["dark", "bright"]

[input]
size = [16, 16]
scale = 0.00392156862745098

[head]
name = "segmentation"
"""


def segmenter(folder):
    """An ONNX file that calls a pixel bright when its channels' mean is over one half."""
    from onnx import TensorProto, helper

    weights = {"w": np.array([[-1.0] * 3, [1.0] * 3], np.float32).reshape(2, 3, 1, 1)}
    weights["b"] = np.array([1.5, -1.5], np.float32)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 16, 16])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2, 16, 16])
    path = making.save_graph(
        folder / "seg.onnx", [helper.make_node("Conv", ["x", "w", "b"], ["y"])], [x], [y], weights
    )
    path.with_suffix(".toml").write_text(SEGMENT_CARD)
    return path


def png(array, palette=None):
    picture = Image.fromarray(array)
    if palette:
        picture.putpalette(palette)
    stream = io.BytesIO()
    picture.save(stream, "PNG")
    return stream.getvalue()


VOC = [0, 0, 0, 128, 0, 0, 0, 128, 0, *([0] * 753)]
IDS = np.array([[0, 1], [2, 255]], np.uint8)


@pytest.mark.parametrize(
    "data",
    [png(IDS), png(IDS, VOC), png(IDS.astype(np.uint16)), png(np.repeat(IDS[:, :, None], 3, axis=2))],
    ids=["grey", "palette as in VOC", "16-bit", "grey as RGB"],
)
def test_a_mask_is_read_as_class_ids(data):
    np.testing.assert_array_equal(read_mask(data), IDS)


def test_a_mask_of_colours_or_of_nonsense_is_an_image_error():
    with pytest.raises(ImageError, match="colour image"):
        read_mask(png(np.array([[[128, 0, 0], [0, 128, 0]]], np.uint8)))
    with pytest.raises(ImageError, match="its mask cannot be decoded"):
        read_mask(b"no mask")


def test_one_mask_with_an_unknown_class_is_that_images_failure(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("images", "masks"):
        (tmp_path / "data" / name).mkdir(parents=True)
    for i in range(3):
        truth = rng.integers(0, 2, (16, 16)).astype(np.uint8)
        pixels = np.repeat(truth[:, :, None] * 200 + 20, 3, axis=2).astype(np.uint8)
        (tmp_path / "data" / "images" / f"{i}.png").write_bytes(png(pixels))
        truth[0, 0] = (255, 7, 1)[i]  # ignored; unknown; a class
        (tmp_path / "data" / "masks" / f"{i}.png").write_bytes(png(truth, VOC))
    (tmp_path / "data" / "classes.txt").write_text("dark\nbright\n")
    plan = EvaluationPlan(
        load_model(segmenter(tmp_path)), open_dataset(tmp_path / "data"), runs=tmp_path / "runs", jobs=1
    )
    done = evaluate(plan)
    assert [f.name for f in done.failed] == ["1.png"]
    assert "value 7" in done.failed[0].reason
    assert done.result["metrics"]["pixel_accuracy"] > 0.99


def test_numbers_that_overflow_in_the_head_are_that_images_failure(tmp_path):
    making.detector(tmp_path)
    making.blob_coco(tmp_path / "data", 3)

    def post(raw, frame, card):
        bad = post.calls == 1
        post.calls += 1
        return Detections([[0, 0, np.inf if bad else 9, 9]], [0.5], [0])

    post.calls = 0
    model = load_model(tmp_path / "blobs.onnx")
    pipeline = pipeline_of(model.card).replace(post=post)
    plan = EvaluationPlan(model, open_dataset(tmp_path / "data"), pipeline, runs=tmp_path / "runs", jobs=1)
    done = evaluate(plan)
    assert [str(f) for f in done.failed] == ["001.jpg: Detections.boxes: expected finite numbers, got inf"]
    assert done.result["images"] == 2


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=40), st.integers(1, 8))
def test_the_first_places_are_those_of_a_stable_sort(values, count):
    scores = np.array(values, np.float64)
    found = first_of(scores, count)
    np.testing.assert_array_equal(found, np.argsort(-scores, kind="stable")[:count])


def classifier(tmp_path, infers, post=None):
    """The records of six pictures by each way to infer, three resizes of each, all swept together."""
    model, data = load_model("signs-class"), open_dataset("signs:0:6", task="classify")
    clean = pipeline_of(model.card)
    resizes = ("pillow-bilinear", "pillow-nearest", "opencv-bicubic")
    variants = tuple(
        Variant(f"{name} {resize}", clean.replace(infer=infer, resize=resize, post=post or clean.post))
        for name, infer in infers.items()
        for resize in resizes
    )
    found = sweep(SweepPlan(model, data, variants=variants, runs=tmp_path))
    return {
        name: made.problem or [to_plain(record) for record in made.read().records]
        for name, made in found.items()
    }


def plainly(model, threads):
    return lookup("infer", "onnxruntime")(model, threads)


def reusing(model, threads):
    """A runtime that writes its outputs into one array, time and again."""
    run, kept = plainly(model, threads), {}

    def again(tensor):
        for name, value in run(tensor).items():
            kept.setdefault(name, np.empty_like(value))[:] = value
        return kept

    return again


def scribbling(model, threads):
    """A runtime that leaves nothing of its input."""
    run = plainly(model, threads)

    def spoil(tensor):
        made = run(tensor)
        tensor[:] = 0
        return made

    return spoil


def wrapped(model, threads):
    """Both at once, in a function that looks like the one it wraps."""
    run, kept = plainly(model, threads), {}

    @functools.wraps(run)
    def again(tensor):
        for name, value in run(tensor).items():
            kept.setdefault(name, np.empty_like(value))[:] = value
        tensor[:] = 0
        return kept

    assert again.pure
    return again


@pytest.mark.parametrize("infer", [reusing, scribbling, wrapped])
def test_a_runtime_may_use_its_memory_as_it_likes(infer, tmp_path):
    want = classifier(tmp_path / "want", {"plain": plainly})
    # twice, so that one comes before the plain one and one after it
    found = classifier(tmp_path / "found", {"first": infer, "plain": plainly, "last": lambda *a: infer(*a)})
    assert len({str(records) for records in want.values()}) == 3
    for name, records in found.items():
        assert records == want[f"plain {name.split()[1]}"], name


@pytest.mark.parametrize(
    ("answer", "said"),
    [(None, "expected a mapping of output names to arrays, got NoneType"), ({"a": "no array"}, "")],
)
def test_a_runtime_that_gives_nonsense_does_not_stop_the_others(answer, said, tmp_path):
    found = classifier(tmp_path, {"bad": lambda model, threads: lambda tensor: answer, "plain": plainly})
    assert isinstance(found["plain pillow-nearest"], list)
    assert isinstance(found["bad pillow-nearest"], str)
    assert said in found["bad pillow-nearest"]


def test_a_runtime_may_give_lists(tmp_path):
    def listing(model, threads):
        run = plainly(model, threads)
        return lambda tensor: {name: value.tolist() for name, value in run(tensor).items()}

    found = classifier(tmp_path, {"lists": listing, "plain": plainly})
    for resize in ("pillow-bilinear", "opencv-bicubic"):
        tops = [[record["top"] for record in found[f"{name} {resize}"]] for name in ("lists", "plain")]
        assert tops[0] == tops[1]


def test_posts_that_write_into_outputs_do_not_spoil_those_of_others(tmp_path):
    model, data = load_model("signs-class"), open_dataset("signs:0:6", task="classify")
    clean = pipeline_of(model.card)
    usual = lookup("post", clean.post)

    def spoils(raw, frame, card):
        made = usual({name: value.copy() for name, value in raw.items()}, frame, card)
        for value in raw.values():
            value[:] = 0
        return made

    posts = {"first": spoils, "plain": clean.post, "last": lambda *given: spoils(*given)}
    variants = tuple(Variant(name, clean.replace(post=post)) for name, post in posts.items())
    found = sweep(SweepPlan(model, data, variants=variants, runs=tmp_path))
    first, *others = ([to_plain(r) for r in made.read().records] for made in found.values())
    assert first == others[0] == others[1]
    assert len({str(record["scores"]) for record in first}) == 6

"""The network of the benchmark: the detector unchanged, the patch where the text says, output as defined."""

import numpy as np
import onnx
import pytest

from holdfast.core.errors import CardError, ModelError
from holdfast.core.patch import Patch, Position, apply
from holdfast.core.pipeline import PreparedImage, load_pipeline, pipeline_of, place
from holdfast.core.types import Size
from holdfast.data.open import open_dataset
from holdfast.graph.load import load_model
from holdfast.graph.nodes import part_of
from holdfast.metrics.boxes import single_values
from holdfast.patchbench.graph import INPUT, PICTURE, PREFIX, bench_graph
from holdfast.patchbench.layout import Layout, Target, unit, whole
from holdfast.patchbench.make import black
from holdfast.patchbench.positions.models import open_detector
from holdfast.verify.replay import session_of

SMALL = Size(16, 16)


def output(session, image, position, target):
    return float(session.run(None, {INPUT: whole(image, position, target)})[0][0])


def pictures(model, layout, content):
    """A function from a flat input to the picture the detector is given."""
    whole_model = onnx.load_model_from_string(bench_graph(model, layout, content))
    part = part_of(whole_model, {INPUT: np.zeros(layout.length, np.float32)}, [PICTURE])
    session = session_of(part.SerializeToString())
    return lambda point: session.run([PICTURE], {INPUT: point})[0][0]


def test_the_detector_is_embedded_unchanged():
    model = load_model("signs-single")
    before = onnx.load(model.path)
    after = onnx.load_model_from_string(
        bench_graph(model, Layout(Size(64, 64), Size(3, 3)), black(Size(3, 3)))
    )
    own = [n for n in after.graph.node if not n.name.startswith(PREFIX)]
    assert [n.SerializeToString() for n in own] == [n.SerializeToString() for n in before.graph.node]
    kept = {w.name: w.SerializeToString() for w in after.graph.initializer if not w.name.startswith(PREFIX)}
    assert kept == {w.name: w.SerializeToString() for w in before.graph.initializer}
    assert [d.dim_value for d in after.graph.input[0].type.tensor_type.shape.dim] == [12296]


def test_clean_output_is_what_evaluate_computes():
    model = load_model("signs-single")
    machine = load_pipeline(pipeline_of(model.card), model, 1)
    session = session_of(bench_graph(model, Layout(Size(64, 64), Size(3, 3)), None))
    for entry in open_dataset("signs:3:4", task="single").entries:
        sample = entry.load()
        image, frame = place(machine.decode(sample.data), model.card.input, machine.resize)
        tensor = machine.normalise(image, model.card.input)[None]
        found = machine.predict(PreparedImage(tensor, frame))
        wanted = single_values(found.boxes, found.classes, sample.truth.xyxy, sample.truth.classes)[0]
        box = frame.to_network(sample.truth.xyxy)[0] / 64
        target = Target(int(sample.truth.classes[0]), tuple(box))
        assert output(session, np.asarray(image), (0, 0), target) == pytest.approx(wanted, abs=1e-5)
        assert wanted > 0.3


def test_first_value_is_the_column_and_a_class_change_is_zero(halving):
    session = session_of(bench_graph(load_model(halving()), Layout(SMALL, Size(1, 1)), black(Size(1, 1))))
    image, target = np.full((16, 16, 3), 255, np.uint8), Target(0, (0, 0, 1, 1))
    assert output(session, image, (5, 5), target) == 1.0
    assert output(session, image, (0, 0), target) == 0.5
    assert output(session, image, (12, 9), target) == 0.0
    assert output(session, image, (9, 12), target) == 1.0
    assert output(session, image, (12.99, 9.99), target) == 0.0  # cut to whole numbers
    assert output(session, image, (5, 5), Target(1, (0, 0, 1, 1))) == 0.0


@pytest.mark.parametrize("holes", [False, True])
def test_a_patch_lies_where_numpy_lays_it_at_every_position(halving, holes):
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 256, (2, 5, 3)).astype(np.uint8)
    mask = rng.random((2, 5)) < 0.6 if holes else np.ones((2, 5), bool)
    layout = Layout(SMALL, Size(5, 2))
    assert layout.last == (11, 14)
    seen = pictures(load_model(halving()), layout, Patch(pixels, mask))
    image = rng.integers(0, 256, (16, 16, 3)).astype(np.uint8)
    for x in range(12):
        for y in range(15):
            laid = apply(image, Patch(pixels, mask, Position(x, y)))
            assert np.array_equal(seen(whole(image, (x, y), Target(0, (0, 0, 1, 1)))), unit(laid))


@pytest.mark.parametrize("colour", ["rgb", "bgr"])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_pixels_are_prepared_as_the_card_says(dense, colour, layout):
    rng = np.random.default_rng(2)
    box, scores = rng.normal(0, 1e-4, (768, 4)), rng.normal(0, 0.01, (768, 3))
    more = f'mean = [10.0, 20.0, 30.0]\nstd = [50.0, 60.0, 70.0]\ncolour = "{colour}"\nlayout = "{layout}"\n'
    path = dense((box, [0.1, 0.2, 0.8, 0.9]), (scores, [0, 0, 0]), more=more, nhwc=layout == "nhwc")
    model = load_model(path)
    machine = load_pipeline(pipeline_of(model.card), model, 1)
    session = session_of(bench_graph(model, Layout(SMALL, Size(1, 1)), None))
    for _ in range(4):
        image = rng.integers(0, 256, (16, 16, 3)).astype(np.uint8)
        raw = machine.run(machine.normalise(image, model.card.input)[None])
        target = Target(int(raw["scores"].argmax()), tuple(map(float, raw["box"][0])))
        assert output(session, image, (0, 0), target) == pytest.approx(1, abs=1e-4)
        assert output(session, image[:, ::-1, ::-1], (0, 0), target) != pytest.approx(1, abs=1e-4)


def test_a_box_turned_inside_out_encloses_nothing(dense):
    zero = np.zeros((768, 4)), np.zeros((768, 3))
    path = dense((zero[0], [0.9, 0.9, 0.1, 0.1]), (zero[1], [1, 0, 0]))
    session = session_of(bench_graph(load_model(path), Layout(SMALL, Size(1, 1)), None))
    assert output(session, np.zeros((16, 16, 3), np.uint8), (0, 0), Target(0, (0, 0, 1, 1))) == 0.0


def test_what_is_no_detector_of_one_object_is_refused(tmp_path, halving):
    with pytest.raises(CardError, match="single object"):
        bench_graph(load_model("signs-yolo"), Layout(Size(64, 64), Size(1, 1)), None)
    made = tmp_path / "made.onnx"
    model = load_model(halving())
    made.write_bytes(bench_graph(model, Layout(SMALL, Size(1, 1)), None))
    with pytest.raises(ModelError, match="holds a patch already"):
        bench_graph(type(model)("made", made, model.card, ""), Layout(SMALL, Size(1, 1)), None)
    old = onnx.load(model.path)
    old.opset_import[0].version = 9
    onnx.save(old, model.path)
    with pytest.raises(ModelError, match="opset 11 or newer, got 9"):
        bench_graph(model, Layout(SMALL, Size(1, 1)), None)


def test_network_of_free_content_computes_the_same_overlap_with_other_operators(dense):
    """Boxes of any kind: beside the target, inside out, around it; classes equal or not."""
    rng = np.random.default_rng(0)
    box, scores = rng.normal(0, 0.02, (768, 4)), rng.normal(0, 0.1, (768, 3))
    model = load_model(dense((box, [0.2, 0.3, 0.6, 0.8]), (scores, [0.1, 0, -0.1])))
    session = session_of(bench_graph(model, Layout(SMALL, Size(3, 3)), None))
    detector = open_detector(model)
    values = []
    for _ in range(300):
        image = rng.integers(0, 256, (16, 16, 3)).astype(np.uint8)
        target = Target(int(rng.integers(3)), tuple(np.sort(rng.random((2, 2)), axis=0).ravel().tolist()))
        wanted = detector.output(detector.tensor(image)[None], target)
        values.append(wanted)
        assert output(session, image, (0, 0), target) == pytest.approx(wanted, abs=1e-5)
    assert 20 < np.count_nonzero(values) < 280

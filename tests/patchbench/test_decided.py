"""The verifier decides what `make` wrote, and says what trying every position in ONNX Runtime says."""

import numpy as np
import pytest

from holdfast.core.model import Network
from holdfast.core.property import Budget
from holdfast.data.patchfile import png_of
from holdfast.graph.load import load_model
from holdfast.patchbench.folder import instances, open_benchmark
from holdfast.patchbench.layout import output_of, unit
from holdfast.verify.replay import session_of
from holdfast.verify.run import verify
from holdfast.verify.vnnlib.read import read_vnnlib
from holdfast.verify.vnnlib.spec import property_of


def decided(instance, seconds=600.0):
    question = property_of(read_vnnlib(instance.spec), Network(instance.network.stem, instance.network))
    return verify(question, Budget(seconds))


def every_output(instance):
    """The output at every whole position of the range, by (column, row)."""
    session = session_of(instance.network)
    name, point = session.get_inputs()[0].name, instance.point.astype(np.float32)
    found = {}
    for x in range(int(instance.columns[0]), int(instance.columns[1]) + 1):
        for y in range(int(instance.rows[0]), int(instance.rows[1]) + 1):
            point[-8:-6] = x, y
            found[x, y] = float(session.run(None, {name: point})[0][0])
    return found


def every_output_apart(instance, model):
    """The same by numpy and the original model, many pictures at a time."""
    session = session_of(model.path)
    side, found = instance.patch.width, {}
    count = int(instance.columns[1]) + 1
    for y in range(int(instance.rows[1]) + 1):
        images = np.repeat(unit(instance.image)[None], count, axis=0)
        for x in range(count):
            images[x, :, y : y + side, x : x + side] = 0
        boxes, scores = session.run(["box", "scores"], {"image": images})
        outputs = output_of(boxes, scores.argmax(axis=1), instance.target)
        found |= {(x, y): value for x, value in enumerate(outputs.tolist())}
    return found


def agrees(instance, every=every_output):
    """The verdict, after a look whether enumeration says the same."""
    verdict, outputs = decided(instance), every(instance)
    worst = min(outputs.values())
    unsafe = worst < 0.5 if instance.strict else worst <= 0.5
    assert verdict.status == ("violated" if unsafe else "holds"), (instance.name, worst, verdict)
    assert verdict.engine == "enumerate"
    if unsafe:
        x, y = (int(v) for v in verdict.witness[-8:-6])
        assert outputs[x, y] <= 0.5
    else:
        assert verdict.bound == pytest.approx(worst - 0.5, abs=1e-5)
    return verdict.status


@pytest.mark.slow
def test_both_answers_agree_on_the_shipped_detector(holdfast, tmp_path):
    done = holdfast("patchbench", "make", "b", "--images", 1, "--patch", 1, "--patch", 3, "--seed", 4)
    assert done.code == 0, done
    found = list(instances(open_benchmark(tmp_path / "b")))
    assert [(i.patch, i.columns, i.rows) for i in found] == [
        ((1, 1), (0, 63), (0, 63)),
        ((3, 3), (0, 61), (0, 61)),
    ]
    model = load_model("signs-single")
    for instance in found:
        agrees(instance, lambda instance: every_output_apart(instance, model))


def test_both_answers_agree_where_some_are_safe_and_some_are_not(dense, holdfast, tmp_path):
    rng = np.random.default_rng(5)
    box, scores = rng.normal(0, 0.02, (768, 4)), rng.normal(0, 0.05, (768, 3))
    model = dense((box, [0.1, 0.1, 0.9, 0.9]), (scores, [0, 0, 0]))
    root = tmp_path / "data"
    for part in ("images", "gt_labels"):
        (root / part).mkdir(parents=True)
    for i in range(6):
        image = rng.integers(0, 256, (16, 16, 3)).astype(np.uint8)
        flat = image.transpose(2, 0, 1).ravel() / 255
        corners, label = flat @ box + [0.1, 0.1, 0.9, 0.9], int((flat @ scores).argmax())
        if (np.diff(corners[::2]) > 0.1).all() and (np.diff(corners[1::2]) > 0.1).all():
            (root / "images" / f"r{i}.png").write_bytes(png_of(image))
            text = " ".join(f"{v:.6f}" for v in np.clip(corners, 0, 1))
            (root / "gt_labels" / f"r{i}.txt").write_text(f"{label} {text}\n")
    count = len(list((root / "images").iterdir()))
    assert count >= 3
    done = holdfast(
        "patchbench", "make", "b", "--model", model, "--data", root, "--held-out", "--images", 3,
        "--patch", 1, "--patch", 3, "--patch", 6,
    )  # fmt: skip
    assert done.code == 0, done
    said = [agrees(instance) for instance in instances(open_benchmark(tmp_path / "b"))]
    assert {"holds", "violated"} == set(said)


@pytest.mark.parametrize(("option", "status"), [("--strict", "holds"), ("--no-strict", "violated")])
def test_exactly_one_half_is_safe_only_under_the_strict_rule(bench, option, status):
    folder = bench("--patch", 1, option, images=1, flip=False)
    (instance,) = instances(open_benchmark(folder))
    assert min(every_output(instance).values()) == 0.5
    assert agrees(instance) == status
    assert ("(< Y_0 0.5)" in instance.spec.read_text()) == (option == "--strict")


def test_the_last_column_and_row_are_reached(dense, white, holdfast, tmp_path):
    box = np.zeros((768, 4))
    box[255, 2] = 0.9  # red at column 15, row 15
    model = dense((box, [0, 0, 0.1, 1]), (np.zeros((768, 3)), [1, 0, 0]))
    for side, last in ((1, 15), (4, 12)):
        args = ("--model", model, "--data", white(folder=f"w{side}"), "--held-out", "--images", 1)
        assert holdfast("patchbench", "make", f"b{side}", *args, "--patch", side).code == 0
        (instance,) = instances(open_benchmark(tmp_path / f"b{side}"))
        verdict = decided(instance)
        assert verdict.status == "violated"
        assert tuple(verdict.witness[-8:-6].astype(int)) == (last, last) or side == 4
        assert instance.columns == instance.rows == (0, last)


def test_free_content_is_never_said_to_hold_where_a_content_breaks_it(bench):
    folder = bench("--patch", 1, "--content", "free", "--positions", "all", images=1)
    found = {(i.columns[0], i.rows[0]): i for i in instances(open_benchmark(folder))}
    assert len(found) == 256
    assert all(i.free and i.columns[0] == i.columns[1] for i in found.values())
    broken = decided(found[12, 9], 5)
    assert broken.status == "violated"
    value = broken.witness.reshape(-1)[256 + 9 * 16 + 12]
    assert 0 <= value <= 0.5
    assert decided(found[5, 5], 1).status in ("unknown", "timeout", "holds")


def test_free_content_is_proven_for_the_detector_trained_for_it(holdfast, tmp_path):
    words = ("--model", "signs-certified", "--data", "signs:0:1", "--images", 1)
    done = holdfast("patchbench", "make", "b", *words, "--content", "free", "--positions", 2)
    assert done.code == 0, done
    for instance in instances(open_benchmark(tmp_path / "b")):
        verdict = decided(instance, 600)
        assert verdict.status == "holds", verdict
        assert not verdict.real_only

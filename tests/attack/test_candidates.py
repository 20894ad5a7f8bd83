"""Candidates with a gradient: thresholded, they are what the numpy head of the same name finds."""

import numpy as np
import pytest
import torch

from holdfast.attack.gradient.candidates import candidates_of
from holdfast.core.errors import CardError, InputError
from holdfast.core.model import Card, Head, Input
from holdfast.core.registry import part
from holdfast.core.types import Size
from holdfast.graph.candidates import above
from holdfast.graph.card import numbered

SIZE, K = Size(96, 64), 3


def card(head, score=0.2, task="detect", **options):
    return Card(task, Input(SIZE), Head(head, options), numbered(K), score=score)


def squashed(x):
    return 1 / (1 + np.exp(-x))


def yolov5_raw(rng, scale=1.0):
    rows = rng.uniform(0, 1, (1, 50, 5 + K))
    rows[:, :, :4] *= scale
    return {"o": rows}


def yolov8_raw(rng):
    return {"o": yolov5_raw(rng)["o"][:, :, 1:].transpose(0, 2, 1)}


def yolov8_rows(rng):
    return {"o": yolov5_raw(rng)["o"][:, :, 1:]}


MAP_ANCHORS = (((10, 13), (30, 20)), ((40, 30), (60, 50)))


def yolo_maps(rng):
    return {f"m{s}": rng.normal(0, 2, (1, 2, 64 // s, 96 // s, 5 + K)) for s in (16, 32)}


def pairs(rng, width=K):
    return {"s": rng.normal(0, 2, (1, 50, width)), "b": rng.uniform(0, 1, (1, 50, 4))}


def fastestdet_raw(rng):
    found = rng.normal(0, 2, (1, 5 + K, 4, 6))
    found[:, 0] = squashed(found[:, 0])
    found[:, 5:] = squashed(found[:, 5:])
    return {"o": found}


def nanodet_raw(rng, joined=False, logits=False):
    cells = [8 * 12, 4 * 6, 2 * 3]
    scores = [rng.normal(-1, 2, (1, n, K)) for n in cells]
    scores = scores if logits else [squashed(s) for s in scores]
    bins = [rng.normal(0, 2, (1, n, 32)) for n in cells]
    if joined:
        return {"o": np.concatenate([np.concatenate(scores, 1), np.concatenate(bins, 1)], 2)}
    return {f"o{i}": t for i, t in enumerate([bins[2], *scores, *bins[:2]])}


GEOMETRY = {"strides": (16, 32), "ratios": (0.5, 1.0), "scales": (1.0, 2.0), "stds": (0.1, 0.1, 0.2, 0.2)}


def anchor_maps(rng, width=K):
    raw = {}
    for stride in (32, 16):
        h, w = 64 // stride, 96 // stride
        raw[f"s{stride}"] = rng.normal(-1, 2, (1, 4 * width, h, w))
        raw[f"d{stride}"] = rng.normal(0, 2, (1, 16, h, w))
    return raw


def proposals(rng, width=K + 1, each=4):
    corners = rng.uniform(0, 40, (1, 20, 2))
    return {
        "boxes": np.concatenate([corners, corners + rng.uniform(5, 30, (1, 20, 2))], axis=2),
        "scores": rng.normal(0, 3, (1, 20, width)),
        "deltas": rng.normal(0, 1, (1, 20, each)),
    }


PROPOSED = {"proposals": "boxes", "outputs": ("scores", "deltas"), "activation": "softmax"}
CASES = {
    "yolov5": (yolov5_raw, {}),
    "yolov5 normalised": (yolov5_raw, {"normalised": True}),
    "yolov8": (yolov8_raw, {}),
    "yolov8 rows": (lambda rng: {"o": yolov8_raw(rng)["o"].transpose(0, 2, 1)}, {"multi_label": False}),
    "yolov8 rotated, with more columns": (
        lambda rng: {"o": np.concatenate([yolov8_raw(rng)["o"], rng.uniform(-2, 2, (1, 3, 50))], axis=1)},
        {"trailing": 3, "angle": True},
    ),
    "yolov5 with mask coefficients": (
        lambda rng: {"o": np.concatenate([yolov5_raw(rng)["o"], rng.normal(0, 1, (1, 50, 4))], axis=2)},
        {"trailing": 4},
    ),
    "yolov5-maps": (yolo_maps, {"anchors": MAP_ANCHORS}),
    "yolov5-maps squashed": (
        lambda rng: {n: squashed(m) for n, m in yolo_maps(rng).items()},
        {"anchors": MAP_ANCHORS, "activation": "none"},
    ),
    "yolov3 squashed": (
        lambda rng: {n: squashed(m) for n, m in yolo_maps(rng).items()},
        {"anchors": MAP_ANCHORS, "activation": "none"},
    ),
    "boxes-scores": (pairs, {"form": "cxcywh", "normalised": True, "activation": "sigmoid"}),
    "boxes-scores turned": (
        lambda rng: {n: v.transpose(0, 2, 1) if n == "s" else v for n, v in pairs(rng).items()},
        {"activation": "sigmoid", "form": "yxyx"},
    ),
    "boxes-scores with background": (
        lambda rng: pairs(rng, K + 1),
        {"activation": "softmax", "background": "first", "form": "xywh"},
    ),
    "detr": (lambda rng: pairs(rng, K + 1), {"activation": "softmax", "background": "last"}),
    "rtdetr": (yolov8_rows, {"multi_label": True}),
    "fastestdet": (fastestdet_raw, {}),
    "nanodet": (nanodet_raw, {}),
    "nanodet joined": (lambda rng: nanodet_raw(rng, joined=True), {"centre": 0.0}),
    "nanodet logits": (lambda rng: nanodet_raw(rng, logits=True), {"activation": "sigmoid"}),
    "anchors": (anchor_maps, GEOMETRY),
    "anchors softmax": (
        lambda rng: anchor_maps(rng, K + 1),
        {
            **GEOMETRY,
            "outputs": ("s16", "s32", "d16", "d32"),  # 4 scores and 4 deltas: shapes do not tell
            "activation": "softmax",
            "background": "last",
            "offset": 1.0,
            "major": "scales",
        },
    ),
    "anchors proposals": (proposals, {**PROPOSED, "background": "first"}),
    "anchors per class": (lambda rng: proposals(rng, each=4 * K), {**PROPOSED, "background": "first"}),
    "anchors per class and background": (
        lambda rng: proposals(rng, each=4 * K + 4),
        {**PROPOSED, "background": "first", "means": (0.1, 0.0, 0.0, 0.2)},
    ),
}


def listed(boxes, scores, classes):
    rows = np.column_stack([classes, scores, boxes])
    return rows[np.lexsort(rows.T[::-1].round(7))]


def tensors(raw):
    return {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in raw.items()}


def checked_alike(raw, wanted):
    """Candidates of a batch of one; they are asserted to be the numpy head's once thresholded."""
    found = part("head", wanted.head.name).function(raw, wanted)
    made = candidates_of(wanted)(tensors(raw), wanted)
    every = wanted.head.name != "fastestdet" and wanted.head.options.get("multi_label", True)
    rows, classes, scores = above(made.scores[0].numpy(), wanted.score, every)
    got = listed(made.boxes[0].numpy()[rows], scores, classes)
    expected = listed(found.boxes, found.scores, found.classes)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=2e-4)
    return made, len(expected)


@pytest.mark.parametrize("case", CASES)
def test_candidates_are_those_of_the_head(case):
    make, options = CASES[case]
    wanted = card(case.split()[0], **options)
    made, count = checked_alike(make(np.random.default_rng(3)), wanted)
    assert count >= 5
    # The energy is the log-odds of the score: it orders as the score does.
    inner = (made.scores > 1e-6) & (made.scores < 1 - 1e-6)
    assert torch.allclose(made.energy[inner], torch.logit(made.scores[inner]), atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_a_batch_is_its_images(case):
    make, options = CASES[case]
    wanted = card(case.split()[0], **options)
    each = [tensors(make(np.random.default_rng(seed))) for seed in (1, 2)]
    both = candidates_of(wanted)({n: torch.cat([e[n] for e in each]) for n in each[0]}, wanted)
    for at, one in enumerate(each):
        made = candidates_of(wanted)(one, wanted)
        for got, expected in zip(vars(both).values(), vars(made).values(), strict=True):
            assert torch.allclose(got[at], expected[0])


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_right(case):
    make, options = CASES[case]
    wanted = card(case.split()[0], **options)
    raw = tensors(make(np.random.default_rng(4)))
    names = list(raw)

    def rows(*values):
        made = candidates_of(wanted)(dict(zip(names, values, strict=True)), wanted)
        return made.boxes.sum((0, 1)), made.energy[:, :3].flatten(), made.scores[:, :3].flatten()

    inputs = [raw[name].clone().requires_grad_() for name in names]
    assert torch.autograd.gradcheck(rows, inputs, fast_mode=True, atol=1e-4)


@pytest.mark.parametrize(("options", "normal"), [({}, True), ({"activation": "none"}, False)])
def test_landmark_is_one_candidate(options, normal):
    raw = {"box": np.array([[0.1, 0.2, 0.5, 0.6]]), "scores": np.array([[0.2, 0.7, 0.1]])}
    wanted = card("landmark", task="single", normalised=normal, **options)
    found = part("head", "landmark").function(raw, wanted)
    made = candidates_of(wanted)(tensors(raw), wanted)
    assert made.boxes.shape == (1, 1, 4)
    assert made.scores.shape == made.energy.shape == (1, 1, K)
    assert np.allclose(made.boxes[0], found.boxes)
    assert np.isclose(made.scores.max(), found.scores[0])
    assert int(made.scores.argmax()) == found.classes[0] == 1


def test_energy_keeps_a_gradient_where_scores_are_one():
    """float32 logits of 30: every score is 1, every slope of a score is 0."""
    wanted = card("landmark", task="single")
    raw = {"box": torch.zeros(1, 4), "scores": torch.tensor([[40.0, 0.0, 0.0]], requires_grad=True)}
    made = candidates_of(wanted)(raw, wanted)
    assert made.scores.max() == 1
    made.energy[0, 0, 0].backward()
    assert raw["scores"].grad[0, 0] > 0.9
    behind = torch.tensor([12.0], requires_grad=True)
    rows = torch.cat([torch.zeros(4), torch.sigmoid(behind).repeat(1 + K)]).reshape(1, 1, -1)
    made = candidates_of(card("yolov5"))({"o": rows}, card("yolov5"))
    made.energy.sum().backward()
    assert torch.isfinite(behind.grad)
    assert behind.grad > 0.1


def test_nothing_is_infinite_at_zero_and_one():
    for value in (0.0, 1.0):
        raw = torch.full((1, 5 + K, 4, 6), value, requires_grad=True)
        for head, seen in (("fastestdet", raw), ("yolov5", raw.flatten(2).transpose(1, 2))):
            made = candidates_of(card(head))({"o": seen}, card(head))
            (made.energy.sum() + made.scores.sum() + made.boxes.sum()).backward()
            assert torch.isfinite(made.energy).all()
            assert torch.isfinite(raw.grad).all()


def test_heads_that_no_gradient_passes():
    for head in ("boxes", "selected"):
        with pytest.raises(InputError, match=f"head '{head}': the graph itself suppresses.*--black-box"):
            candidates_of(card(head))
    with pytest.raises(InputError, match="expected a detector to attack, got a model for task 'classify'"):
        candidates_of(card("classifier", task="classify"))


@pytest.mark.parametrize("head", ["yolov5", "yolov8", "fastestdet", "nanodet", "anchors", "landmark"])
def test_wrong_cards_are_told(head):
    with pytest.raises(CardError, match=f"head '{head}'"):
        candidates_of(card(head))({"o": torch.zeros(1, 6, 9)}, card(head))


@pytest.mark.shared
@pytest.mark.parametrize("name", ["nanodet_m", "FastestDet"])
def test_real_models(shared_data, name):
    import cv2

    from holdfast.core.pipeline import load_pipeline, pipeline_of
    from holdfast.graph.load import load_model

    model = load_model(shared_data / "models" / f"{name}.onnx")
    machine = load_pipeline(pipeline_of(model.card), model, threads=1)
    picture = cv2.imread(str(next((shared_data / "roadsign" / "images").glob("road10*.jpg"))))
    raw = machine.run(machine.prepare(cv2.imencode(".png", picture)[1].tobytes()).tensor)
    _, count = checked_alike(raw, Card(**{**vars(model.card), "score": 0.02}))
    assert count > 3

"""The networks have the promised shapes, learn a handful of pictures, and survive the way to ONNX."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import onnxruntime  # noqa: E402
from torch.nn import functional  # noqa: E402

from holdfast.train.export import export, folded  # noqa: E402
from models.signs.free import FreeNet  # noqa: E402
from models.signs.nets import ClassNet, SegNet, SingleNet, YoloNet  # noqa: E402
from models.signs.plain import PlainNet  # noqa: E402
from models.signs.recipes import iou, soft_iou_loss  # noqa: E402

CASES = {
    "yolo": (lambda: YoloNet(20), (96, 64), [(2, 50, 12, 8), (2, 50, 6, 4), (2, 50, 3, 2)]),
    "free": (lambda: FreeNet(20, 16), (96, 64), [(2, 12 * 8 + 6 * 4 + 3 * 2, 25)]),
    "plain": (lambda: PlainNet(20, 16), (96, 64), [(2, 25, 12, 8)]),
    "single": (lambda: SingleNet(3), (64, 64), [(2, 4), (2, 3)]),
    "class": (lambda: ClassNet(20, 8), (64, 64), [(2, 20)]),
    "seg": (lambda: SegNet(6), (48, 64), [(2, 6, 48, 64)]),
}


def outputs(net, x):
    found = net(x)
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize("name", CASES)
def test_exported_network_equals_torch(name, tmp_path):
    make, size, shapes = CASES[name]
    torch.manual_seed(0)
    net = make()
    x = torch.rand(2, 3, *size)
    net.train()(x)  # move the running statistics off their start, so that folding is put to the test
    net.eval()
    path = tmp_path / "net.onnx"
    names = tuple(f"out{i}" for i in range(len(shapes)))
    export(net, size, names, path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    found = session.run(list(names), {"image": x.numpy()})
    assert [f.shape for f in found] == shapes
    assert [tuple(o.shape) for o in session.get_outputs()] == [("n", *shape[1:]) for shape in shapes]
    with torch.no_grad():
        for mine, theirs in zip(outputs(net, x), found, strict=True):
            np.testing.assert_allclose(theirs, mine.numpy(), atol=1e-4)
    assert b"/work" not in path.read_bytes()
    assert not list(tmp_path.glob("*.part"))


def test_folding_leaves_the_network_alone():
    net = ClassNet(4, 8).eval()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    assert not any(isinstance(m, torch.nn.BatchNorm2d) for m in folded(net).modules())
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())


def test_untrained_detector_is_quiet():
    torch.manual_seed(0)
    with torch.no_grad():
        for head in YoloNet(20).eval()(torch.rand(1, 3, 64, 64)):
            assert head.view(1, 2, 25, -1)[:, :, 4].sigmoid().max() < 0.05


@pytest.mark.slow
def test_classifier_overfits_a_handful():
    torch.manual_seed(0)
    net, x, y = ClassNet(4, 8), torch.rand(8, 3, 32, 32), torch.arange(8) % 4
    optimiser = torch.optim.AdamW(net.parameters(), lr=5e-3)
    losses = []
    for _ in range(30):
        loss = functional.cross_entropy(net(x), y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]


def test_iou_of_boxes():
    a = torch.tensor([[0.0, 0.0, 0.5, 0.5], [0.0, 0.0, 0.5, 0.5], [0.5, 0.5, 0.0, 0.0]])
    b = torch.tensor([[0.0, 0.0, 0.5, 0.5], [0.25, 0.0, 0.75, 0.5], [0.0, 0.0, 0.5, 0.5]])
    assert iou(a, b).tolist() == pytest.approx([1, 1 / 3, 0], abs=1e-5)


def test_soft_iou_loss_is_nought_for_a_sure_right_answer_and_high_for_a_wrong_one():
    masks = torch.tensor([[[0, 1], [2, 0]]]).repeat(1, 16, 16)
    sure = functional.one_hot(masks, 3).permute(0, 3, 1, 2) * 30.0
    assert soft_iou_loss(sure, masks).item() == pytest.approx(0, abs=1e-3)
    assert soft_iou_loss(sure.roll(1, 1), masks).item() > 0.9

"""Feature nets: the package's own, FID's Inception, and any ONNX file."""

import hashlib
import io
import pickle
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from holdfast.core.errors import ImageError, InputError, ModelError, UnknownName
from holdfast.core.registry import names
from holdfast.core.types import Size
from holdfast.data.signs.scene import scene
from holdfast.metrics.frechet import frechet
from holdfast.stages.features import FeatureNet, open_features
from holdfast.stages.resize.libraries import pillow_bilinear


@pytest.fixture(scope="module")
def scenes():
    return [pillow_bilinear(scene(3, index).image, Size(208, 208)) for index in range(12)]


@pytest.fixture(scope="module")
def net():
    return open_features("signs")


def noisy(images, pixels, seed=0):
    rng = np.random.default_rng(seed)
    made = []
    for image in images:
        out = image.copy()
        flat = out.reshape(-1, 3)
        flat[rng.choice(len(flat), pixels, replace=False)] = rng.integers(0, 256, (pixels, 3))
        made.append(out)
    return made


def test_names():
    assert {"signs", "inception", "onnx"} <= set(names("features"))


def test_signs_has_a_name_a_hash_and_a_length(net, scenes):
    assert (net.name, net.dimensions) == ("FD-signs", 560)
    assert len(net.sha256) == 64
    assert net.sha256 == open_features("signs", threads=2).sha256
    found = net(scenes[:2])
    assert found.shape == (2, 560)
    assert found.dtype == np.float64
    assert net([]).shape == (0, 560)


def test_an_image_has_its_features_whatever_comes_with_it(net, scenes):
    together = net(scenes[:4])
    alone = np.concatenate([net([image]) for image in scenes[:4]])
    assert np.array_equal(together, alone)
    other = np.zeros((64, 100, 3), np.uint8)  # another size beside it
    assert np.array_equal(net([scenes[0], other])[0], alone[0])


def test_signs_is_the_trunk_of_the_classifier(net):
    """At the classifier's own size the means of the last map, through its last layer, are its logits."""
    from holdfast.graph.load import find_model
    from holdfast.graph.session import runtime

    path = find_model("signs-class")
    image = scene(1, 1).image[:64, :64]
    weights = {w.name: numpy_helper.to_array(w) for w in onnx.load(path).graph.initializer}
    last = next(node for node in onnx.load(path).graph.node if node.op_type == "Gemm")
    session = runtime().InferenceSession(str(path), providers=["CPUExecutionProvider"])
    logits = session.run(None, {"image": image.transpose(2, 0, 1)[None].astype(np.float32) / 255})[0][0]
    means = net([image])[0][120:280]
    mine = means @ weights[last.input[1]].T + weights[last.input[2]]
    np.testing.assert_allclose(mine, logits, atol=1e-3)


def test_distance_rises_with_pixels_and_amplitude(net, scenes):
    clean = net(scenes)
    assert frechet(clean, net(scenes)) <= 1e-9
    by_pixels = [frechet(clean, net(noisy(scenes, count))) for count in (25, 75, 250, 750)]
    assert by_pixels == sorted(by_pixels)
    assert by_pixels[0] > 1e-3  # 25 pixels of 43,264 are seen
    rng = np.random.default_rng(1)
    where = rng.random(scenes[0].shape[:2]) < 0.005
    by_step = [
        frechet(
            clean,
            net(
                [
                    np.where(where[..., None], np.clip(i.astype(int) + s, 0, 255), i).astype(np.uint8)
                    for i in scenes
                ]
            ),
        )
        for s in (4, 16, 64)
    ]
    assert by_step == sorted(by_step)
    assert by_step[0] > 0


def test_refused(net, tmp_path):
    with pytest.raises(UnknownName, match=r"unknown features 'sings'. Did you mean 'signs'"):
        open_features("sings")
    with pytest.raises(InputError, match="nothing after the name, got 'x'"):
        open_features("signs:x")
    with pytest.raises(InputError, match=r"uint8, got .* float64"):
        net([np.zeros((32, 32, 3))])
    with pytest.raises(InputError, match="16 pixels or more, got 8×20"):
        net([np.zeros((20, 8, 3), np.uint8)])
    with pytest.raises(InputError, match="onnx:FILE"):
        open_features("onnx")
    with pytest.raises(InputError, match="inception:FILE"):
        open_features("inception")
    with pytest.raises(ModelError, match=r"no.pth: cannot be read: No such file"):
        open_features(f"inception:{tmp_path / 'no.pth'}")
    broken = FeatureNet("FD-x", "0", 3, lambda image: np.array([1.0, np.nan, 2.0]))
    with pytest.raises(ImageError, match="3 finite features, got 3 with 1 that are not finite"):
        broken([np.zeros((4, 4, 3), np.uint8)])


def graph_of(path, shape, node="GlobalAveragePool", kind=TensorProto.FLOAT, **attributes):
    """An ONNX file of one node, or of a cast and a mean for uint8."""
    image = helper.make_tensor_value_info("x", kind, shape)
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    nodes = [helper.make_node(node, ["c" if kind != TensorProto.FLOAT else "x"], ["y"], **attributes)]
    if kind != TensorProto.FLOAT:
        nodes.insert(0, helper.make_node("Cast", ["x"], ["c"], to=TensorProto.FLOAT))
    graph = helper.make_graph(nodes, "g", [image], [out])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return f"onnx:{path}"


def test_any_onnx_file(tmp_path, scenes):
    expected = [image.mean(axis=(0, 1)) for image in scenes[:2]]
    free = open_features(graph_of(tmp_path / "free.onnx", ["n", 3, "h", "w"]))
    np.testing.assert_allclose(free(scenes[:2]) * 255, expected, rtol=2e-4)
    assert free.name.startswith("FD-free-")
    assert len(free.name) == len("FD-free-") + 8
    whole = open_features(graph_of(tmp_path / "maps.onnx", [1, 3, "h", "w"], "Relu"))  # maps are averaged
    np.testing.assert_allclose(whole(scenes[:2]) * 255, expected, rtol=2e-4)
    fixed = open_features(graph_of(tmp_path / "fixed.onnx", [1, 3, 32, 48]))
    small = pillow_bilinear(scenes[0], Size(48, 32)).mean(axis=(0, 1))
    np.testing.assert_allclose(fixed(scenes[:1])[0] * 255, small, rtol=2e-4)
    last = graph_of(
        tmp_path / "last.onnx", [1, 40, 24, 3], "ReduceMean", TensorProto.UINT8, axes=[1, 2], keepdims=0
    )
    small = pillow_bilinear(scenes[0], Size(24, 40)).mean(axis=(0, 1))
    np.testing.assert_allclose(open_features(last)(scenes[:1])[0], small, rtol=2e-4)
    assert len({one.sha256 for one in (free, whole, fixed)}) == 3


def test_onnx_files_that_are_no_feature_nets(tmp_path):
    with pytest.raises(ModelError, match="one image input of 4 dimensions, got x"):
        open_features(graph_of(tmp_path / "flat.onnx", [1, 12], "Relu"))
    with pytest.raises(ModelError, match="batch free or 1"):
        open_features(graph_of(tmp_path / "batch.onnx", [4, 3, 8, 8]))
    with pytest.raises(ModelError, match="no such model file"):
        open_features(f"onnx:{tmp_path / 'none.onnx'}")


# FID's Inception: every convolution as name:channels:height:width

A, B = (
    ("1x1:64:1:1", "5x5_1:48:1:1", "5x5_2:64:5:5"),
    ("3x3dbl_1:64:1:1", "3x3dbl_2:96:3:3", "3x3dbl_3:96:3:3"),
)
E = (
    "1x1:320:1:1", "3x3_1:384:1:1", "3x3_2a:384:1:3", "3x3_2b:384:3:1", "3x3dbl_1:448:1:1",
    "3x3dbl_2:384:3:3", "3x3dbl_3a:384:1:3", "3x3dbl_3b:384:3:1", "_pool:192:1:1",
)  # fmt: skip


def seven(c):
    line = [f"7x7_1:{c}:1:1", f"7x7_2:{c}:1:7", "7x7_3:192:7:1", f"7x7dbl_1:{c}:1:1", f"7x7dbl_2:{c}:7:1"]
    return (
        "1x1:192:1:1",
        *line,
        f"7x7dbl_3:{c}:1:7",
        f"7x7dbl_4:{c}:7:1",
        "7x7dbl_5:192:1:7",
        "_pool:192:1:1",
    )


D = (
    "3x3_1:192:1:1",
    "3x3_2:320:3:3",
    "7x7x3_1:192:1:1",
    "7x7x3_2:192:1:7",
    "7x7x3_3:192:7:1",
    "7x7x3_4:192:3:3",
)
BLOCKS = {
    "Mixed_5b": (192, (*A, *B, "_pool:32:1:1")), "Mixed_5c": (256, (*A, *B, "_pool:64:1:1")),
    "Mixed_5d": (288, (*A, *B, "_pool:64:1:1")), "Mixed_6a": (288, ("3x3:384:3:3", *B)),
    "Mixed_6b": (768, seven(128)), "Mixed_6c": (768, seven(160)), "Mixed_6d": (768, seven(160)),
    "Mixed_6e": (768, seven(192)), "Mixed_7a": (768, D), "Mixed_7b": (1280, E), "Mixed_7c": (2048, E),
}  # fmt: skip
STEM = ("1a_3x3:3:32:3", "2a_3x3:32:32:3", "2b_3x3:32:64:3", "3b_1x1:64:80:1", "4a_3x3:80:192:3")


def convolutions():
    """Every convolution of the checkpoint: its name and the shape of its kernel."""
    for text in STEM:
        name, source, target, side = text.split(":")
        yield f"Conv2d_{name}", (int(target), int(source), int(side), int(side))
    for block, (enter, steps) in BLOCKS.items():
        made = {}
        for text in steps:
            name, target, tall, wide = text.split(":")
            stem, _, number = name.rpartition("_")
            first = not number[:1].isdigit() or number[0] == "1" or not stem
            before = enter if first or "x" in number else made[stem, int(number[0]) - 1]
            if stem:
                made[stem, int(number[0]) if number[:1].isdigit() else 0] = int(target)
            yield f"{block}.branch{name}", (int(target), before, int(tall), int(wide))


def random_state(seed=0):
    """A state dictionary with the names and shapes of the canonical one, 566 entries, and random numbers."""
    torch = pytest.importorskip("torch", reason="writing a checkpoint needs torch")
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return rng.standard_normal(shape, np.float32)

    state = {}
    for name, shape in convolutions():
        state[f"{name}.conv.weight"] = normal(*shape) * np.float32((2 / np.prod(shape[1:])) ** 0.5)
        state[f"{name}.bn.weight"] = 1 + normal(shape[0]) / 8
        state[f"{name}.bn.bias"] = normal(shape[0]) / 10
        state[f"{name}.bn.running_mean"] = normal(shape[0]) / 3
        state[f"{name}.bn.running_var"] = 0.5 + rng.random(shape[0], np.float32)
        state[f"{name}.bn.num_batches_tracked"] = np.array(0)
    state["fc.weight"], state["fc.bias"] = np.zeros((1008, 2048), np.float32), np.zeros(1008, np.float32)
    return {name: torch.from_numpy(value) for name, value in state.items()}


def plain_forward(state, image):
    """The 2048 features, written down a second time in torch: resize, stem, eleven blocks, mean."""
    import torch
    from torch.nn import functional as f

    def conv(x, name, stride=1, pad=None):
        kernel = state[f"{name}.conv.weight"]
        tall, wide = kernel.shape[2] // 2, kernel.shape[3] // 2
        x = f.conv2d(x, kernel, stride=stride, padding=(tall, wide) if pad is None else pad)
        bn = [state[f"{name}.bn.{part}"] for part in ("running_mean", "running_var", "weight", "bias")]
        return f.relu(f.batch_norm(x, *bn, eps=1e-3))

    def chain(x, block, *names):
        for name in names:
            x = conv(x, f"{block}.branch{name}")
        return x

    def resized(x):
        """TensorFlow 1: sources at i · old/new, nothing centred."""
        for axis in (2, 3):
            place = torch.arange(299, dtype=torch.float64) * (x.shape[axis] / 299)
            low = place.long()
            high = (low + 1).clamp_max(x.shape[axis] - 1)
            part = (place - low).float().view((299, 1) if axis == 2 else (299,))
            x = x.index_select(axis, low) * (1 - part) + x.index_select(axis, high) * part
        return x

    x = (resized(torch.from_numpy(image.transpose(2, 0, 1)[None].astype(np.float32))) - 128) / 128
    x = conv(conv(x, "Conv2d_1a_3x3", 2, 0), "Conv2d_2a_3x3", 1, 0)
    x = f.max_pool2d(conv(x, "Conv2d_2b_3x3"), 3, 2)
    x = f.max_pool2d(conv(conv(x, "Conv2d_3b_1x1"), "Conv2d_4a_3x3", 1, 0), 3, 2)
    for name in ("Mixed_5b", "Mixed_5c", "Mixed_5d"):
        pooled = f.avg_pool2d(x, 3, 1, 1, count_include_pad=False)
        double = chain(x, name, "3x3dbl_1", "3x3dbl_2", "3x3dbl_3")
        x = torch.cat(
            [chain(x, name, "1x1"), chain(x, name, "5x5_1", "5x5_2"), double, chain(pooled, name, "_pool")], 1
        )
    double = conv(chain(x, "Mixed_6a", "3x3dbl_1", "3x3dbl_2"), "Mixed_6a.branch3x3dbl_3", 2, 0)
    x = torch.cat([conv(x, "Mixed_6a.branch3x3", 2, 0), double, f.max_pool2d(x, 3, 2)], 1)
    for name in ("Mixed_6b", "Mixed_6c", "Mixed_6d", "Mixed_6e"):
        pooled = f.avg_pool2d(x, 3, 1, 1, count_include_pad=False)
        double = chain(x, name, *(f"7x7dbl_{n}" for n in range(1, 6)))
        single = chain(x, name, "7x7_1", "7x7_2", "7x7_3")
        x = torch.cat([chain(x, name, "1x1"), single, double, chain(pooled, name, "_pool")], 1)
    single = conv(chain(x, "Mixed_7a", "3x3_1"), "Mixed_7a.branch3x3_2", 2, 0)
    long = conv(chain(x, "Mixed_7a", "7x7x3_1", "7x7x3_2", "7x7x3_3"), "Mixed_7a.branch7x7x3_4", 2, 0)
    x = torch.cat([single, long, f.max_pool2d(x, 3, 2)], 1)
    for name in ("Mixed_7b", "Mixed_7c"):
        average = f.avg_pool2d(x, 3, 1, 1, count_include_pad=False)
        pooled = average if name == "Mixed_7b" else f.max_pool2d(x, 3, 1, 1)
        single, double = chain(x, name, "3x3_1"), chain(x, name, "3x3dbl_1", "3x3dbl_2")
        forks = [chain(single, name, "3x3_2a"), chain(single, name, "3x3_2b")]
        forks += [chain(double, name, "3x3dbl_3a"), chain(double, name, "3x3dbl_3b")]
        x = torch.cat([chain(x, name, "1x1"), *forks, chain(pooled, name, "_pool")], 1)
    return x.mean((2, 3))[0].numpy()


@pytest.fixture(scope="module")
def state():
    return random_state()


def saved(state):
    """A checkpoint in the older form, as the canonical file has it."""
    import torch

    out = io.BytesIO()
    torch.save(state, out, _use_new_zipfile_serialization=False)
    return out.getvalue()


@pytest.fixture
def one_thread():
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_inception_is_the_network_of_fid(state, one_thread):
    from holdfast.stages.features.inception import net_of

    assert len(state) == 566
    net = net_of(saved(state), "random.pth", "FD-random", "00", 1)
    image = scene(2, 2).image[:200, :330]
    found = net([image])[0]
    assert found.shape == (2048,)
    np.testing.assert_allclose(found, plain_forward(state, image), rtol=1e-4, atol=1e-4)
    assert found.std() > 0.1


def test_another_file_is_not_called_fid(tmp_path):
    path = tmp_path / "weights.pth"
    path.write_bytes(b"something else")
    with pytest.raises(ModelError) as caught:
        open_features(f"inception:{path}")
    told = str(caught.value)
    assert "\n" not in told
    assert "expected 6726825d0af5f729cebd5821db510b11b1cfad8faad88a03f1befd49fb9129b2, got " in told
    assert told.endswith(hashlib.sha256(b"something else").hexdigest())


def test_a_checkpoint_with_something_missing(state):
    from holdfast.stages.features.inception import build

    arrays = {
        name: np.asarray(value) for name, value in state.items() if name != "Mixed_6c.branch1x1.bn.bias"
    }
    with pytest.raises(ModelError, match=r"w.pth: .*'Mixed_6c.branch1x1.bn.bias' is missing"):
        build(arrays, "w.pth")


class Evil:
    def __reduce__(self):
        return sys.exit, (3,)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "not a state dictionary saved by PyTorch"),
        (b"hello", "not a state dictionary saved by PyTorch"),
        (pickle.dumps({"a": 1}), "it does not begin as one"),
        (pickle.dumps(Evil()), "it names sys.exit"),
    ],
)
def test_what_is_no_checkpoint(data, told):
    from holdfast.stages.features.inception import read_checkpoint

    with pytest.raises(ModelError, match=told):
        read_checkpoint(data, "w.pth")


def test_checkpoint_values_and_views():
    torch = pytest.importorskip("torch", reason="writing a checkpoint needs torch")
    from holdfast.stages.features.inception import read_checkpoint

    base = torch.arange(24, dtype=torch.float64)
    state = {
        "view": base.view(4, 6).t()[1:3], "parameter": torch.nn.Parameter(torch.ones(2)),
        "number": torch.tensor(7), "half": torch.ones(3, dtype=torch.float16), "empty": torch.zeros(0, 3),
    }  # fmt: skip
    found = read_checkpoint(saved(state), "w.pth")
    assert list(found) == list(state)
    for name, value in state.items():
        assert np.array_equal(found[name], value.detach().numpy())
        assert found[name].dtype == value.detach().numpy().dtype
    with pytest.raises(ModelError, match="'a' is no tensor"):
        read_checkpoint(saved({"a": 3}), "w.pth")
    with pytest.raises(ModelError, match=r"it names sys\.exit"):
        read_checkpoint(saved({"a": Evil()}), "w.pth")

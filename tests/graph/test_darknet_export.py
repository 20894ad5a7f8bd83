"""Darknet to ONNX against an interpretation of its own, layer by layer.

A net is a plan: (section, options) pairs. The plan is written as text for the package and interpreted here,
with plain torch operations in double precision, by the rules of darknet's C code.
"""

import math
import struct

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.graph.darknet.convert import build, read_cfg, read_weights, trace
from holdfast.graph.darknet.nodes import ACTIVATE

ANCHORS = "10,13, 16,30, 33,23, 30,61, 62,45, 59,119, 116,90, 156,198, 373,326"


# --- plans


def conv(filters, size=3, stride=1, act="leaky", bn=1, **more):
    options = {
        "batch_normalize": bn,
        "filters": filters,
        "size": size,
        "stride": stride,
        "pad": 1,
        "activation": act,
    }
    return ("convolutional", options | more)


def head(mask, classes, total=9, **more):
    plain = conv(len(mask.split(",")) * (5 + classes), 1, act="linear", bn=0)
    anchors = ",".join(ANCHORS.split(",")[: 2 * total])
    return [plain, ("yolo", {"mask": mask, "anchors": anchors, "classes": classes, "num": total} | more)]


def residual(filters):
    return [conv(filters // 2, 1), conv(filters), ("shortcut", {"from": -3, "activation": "linear"})]


def lateral(filters, layer):
    up = [("route", {"layers": -4}), conv(filters, 1), ("upsample", {"stride": 2})]
    return [*up, ("route", {"layers": f"-1, {layer}"})]


def yolov3(divide=1, classes=80):
    """The plan of YOLOv3: darknet53 and three heads, its filters divided."""
    plan = [conv(32 // divide)]
    for filters, repeats in ((64, 1), (128, 2), (256, 8), (512, 8), (1024, 4)):
        plan.append(conv(filters // divide, 3, 2))
        plan += residual(filters // divide) * repeats
    for filters, mask, joined in ((512, "6,7,8", None), (256, "3,4,5", 61), (128, "0,1,2", 36)):
        plan += lateral(filters // divide, joined) if joined else []
        plan += [conv(filters // divide, 1), conv(2 * filters // divide)] * 3 + head(mask, classes)
    return plan


def tiny(divide=1, classes=80):
    """The plan of YOLOv3-tiny, with the max pool of size 2 and stride 1."""
    plan = []
    for filters in (16, 32, 64, 128, 256):
        plan += [conv(filters // divide), ("maxpool", {"size": 2, "stride": 2})]
    plan += [conv(512 // divide), ("maxpool", {"size": 2, "stride": 1}), conv(1024 // divide)]
    plan += [conv(256 // divide, 1), conv(512 // divide), *head("3,4,5", classes, 6)]
    return [*plan, *lateral(128 // divide, 8), conv(256 // divide), *head("0,1,2", classes, 6)]


def mixed():
    """What else is met: depthwise, SPP, groups of a route, squeeze and excite, and so on."""
    return [
        conv(8, 3, 2, "mish"),
        conv(8, 5, 1, "relu6", groups=8),
        ("dropout", {"probability": 0.1}),
        ("shortcut", {"from": "-3,0", "activation": "swish"}),
        ("route", {"layers": "-1,0", "groups": 2, "group_id": 1}),
        ("maxpool", {"size": 5, "stride": 1}),
        ("route", {"layers": -2}),
        ("maxpool", {"size": 3, "stride": 1}),
        ("route", {"layers": "-1,-3,4"}),
        conv(6, 3, 1, "logistic", dilation=2),
        ("shortcut", {"from": 3, "activation": "leaky"}),  # 6 channels + the first 6 of 8
        conv(12, 2, 1, "relu", bn=0, stride_x=2),
        ("batchnorm", {}),
        ("route", {"layers": -1, "groups": 3, "group_id": 2}),
        ("avgpool", {}),
        conv(4, 1, act="hardtan"),
        ("scale_channels", {"from": -3, "activation": "linear"}),
        ("activation", {"activation": "tanh"}),
        conv(4, 1, act="logistic"),
        ("sam", {"from": -2, "activation": "linear"}),
        ("upsample", {"stride": 3, "scale": 0.5}),
        ("maxpool", {"size": 2, "stride": 2}),  # an odd map
        conv(3, 4, 3, "linear", padding=3, pad=0),
        ("shortcut", {"from": -1, "activation": "linear"}),
        conv(5, 3),
        ("shortcut", {"from": -2, "activation": "linear"}),  # 5 channels + all 3
        *head("0,2", 2, scale_x_y=1.1),
    ]  # fmt: skip


def text(plan, width=64, height=64):
    lines = ["[net]", "batch=1", f"width={width}", f"height={height}", "channels=3", "learning_rate=.1"]
    for kind, options in plan:
        lines += ["", f"[{kind}]", *(f"{key}={value}" for key, value in options.items())]
    return "\n".join(lines) + "\n"


# --- the interpretation


def arrays_of(kind, options, channels, rng):
    """Random arrays of a layer, in the order of the file."""
    n = options.get("filters", channels)
    bias, scale = [("bias", rng.normal(0, 0.3, n))], ("scale", rng.uniform(0.4, 0.9, n))
    norm = [scale, ("mean", rng.normal(0, 0.1, n)), ("variance", rng.uniform(0.3, 2, n))]
    if kind == "batchnorm":
        return bias + norm
    if kind != "convolutional":
        return []
    shape = (n, channels // options.get("groups", 1), options["size"], options["size"])
    weights = [("weights", rng.normal(0, math.sqrt(1 / math.prod(shape[1:])), shape))]
    return bias + (norm if options["batch_normalize"] else []) + weights


def activated(torch, name, x):
    F = torch.nn.functional
    where = torch.where
    return {
        "elu": lambda: F.elu(x),
        "hardtan": lambda: F.hardtanh(x),
        "leaky": lambda: where(x > 0, x, 0.1 * x),
        "lhtan": lambda: where(x < 0, 0.001 * x, where(x > 1, 0.001 * (x - 1) + 1, x)),
        "linear": lambda: x,
        "loggy": lambda: 2 / (1 + torch.exp(-x)) - 1,
        "logistic": lambda: 1 / (1 + torch.exp(-x)),
        "mish": lambda: x * torch.tanh(torch.log1p(torch.exp(x))),
        "plse": lambda: where(x < -4, 0.01 * (x + 4), where(x > 4, 0.01 * (x - 4) + 1, 0.125 * x + 0.5)),
        "ramp": lambda: x * (x > 0) + 0.1 * x,
        "relie": lambda: where(x > 0, x, 0.01 * x),
        "relu": lambda: x * (x > 0),
        "relu6": lambda: x.clip(0, 6),
        "revleaky": lambda: where(x > 0, x, 0.1 * x),
        "selu": lambda: where(x >= 0, 1.0507 * x, 1.0507 * 1.6732 * (torch.exp(x) - 1)),
        "swish": lambda: x / (1 + torch.exp(-x)),
        "tanh": lambda: torch.tanh(x),
    }[name]()


def normalised(x, a):
    scale, mean, variance, bias = (
        a[name].view(1, -1, 1, 1) for name in ("scale", "mean", "variance", "bias")
    )
    return (x - mean) / (variance + 1e-5).sqrt() * scale + bias


def convolved(torch, x, o, a):
    pad, dilation = o["size"] // 2 if o["pad"] else o.get("padding", 0), o.get("dilation", 1)
    strides = (o.get("stride_y", o["stride"]), o.get("stride_x", o["stride"]))
    groups = o.get("groups", 1)
    y = torch.nn.functional.conv2d(x, a["weights"], None, strides, pad * dilation, dilation, groups)
    y = normalised(y, a) if o["batch_normalize"] else y + a["bias"].view(1, -1, 1, 1)
    return activated(torch, o["activation"], y)


def pooled(torch, x, o):
    """Darknet's loop: windows start at −pad/2, out = (w + pad − size) / stride + 1, outside is −infinity."""
    size, stride = o["size"], o["stride"]
    pad = o.get("padding", size - 1)
    h, w = ((side + pad - size) // stride + 1 for side in x.shape[2:])
    wide = torch.nn.functional.pad(x, (pad // 2, size + stride, pad // 2, size + stride), value=-math.inf)
    return wide.unfold(2, size, stride).unfold(3, size, stride).amax((-2, -1))[:, :, :h, :w]


def earlier(value, index):
    return [int(v) + (index if int(v) < 0 else 0) for v in str(value).split(",")]


def interpret(torch, plan, image, rng):
    """The maps of all layers and the bytes of the .weights file that go with them."""
    maps, data = [], [struct.pack("<3iQ", 0, 2, 5, 64000)]
    for index, (kind, o) in enumerate(plan):
        x = maps[-1] if maps else image
        arrays = arrays_of(kind, o, x.shape[1], rng)
        data += [value.astype("<f4").tobytes() for _, value in arrays]
        a = {name: torch.tensor(value.astype(np.float32)).double() for name, value in arrays}
        match kind:
            case "convolutional":
                x = convolved(torch, x, o, a)
            case "batchnorm":
                x = normalised(x, a)
            case "maxpool":
                x = pooled(torch, x, o)
            case "avgpool":
                x = x.mean((2, 3), keepdim=True)
            case "upsample":
                x = x.repeat_interleave(o["stride"], 2).repeat_interleave(o["stride"], 3) * o.get("scale", 1)
            case "route":
                groups, part = o.get("groups", 1), o.get("group_id", 0)
                x = torch.cat([maps[i].chunk(groups, 1)[part] for i in earlier(o["layers"], index)], 1)
            case "shortcut":
                x = x.clone()
                for i in earlier(o["from"], index):
                    shared = min(x.shape[1], maps[i].shape[1])
                    x[:, :shared] += maps[i][:, :shared]
                x = activated(torch, o["activation"], x)
            case "scale_channels" | "sam":
                x = activated(torch, o["activation"], maps[earlier(o["from"], index)[0]] * x)
            case "activation":
                x = activated(torch, o["activation"], x)
        maps.append(x)
    return [m.numpy() for m in maps], b"".join(data)


def check(folder, plan, width=64, height=64, seed=0, batch=2):
    """Every tensor of the exported graph equals the interpretation's map of that layer."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(seed)
    image = rng.random((batch, 3, height, width), np.float32)
    maps, data = interpret(torch, plan, torch.tensor(image).double(), rng)
    cfg, weights = folder / "net.cfg", folder / "net.weights"
    cfg.write_text(text(plan, width, height))
    weights.write_bytes(data)
    network = read_cfg(cfg)
    steps = trace(network)
    for step, wanted in zip(steps, maps, strict=True):
        assert tuple(step.shape) == wanted.shape[1:], step.layer.section
    model = build(steps, read_weights(weights, steps), network.size, "net")
    heads = {f"yolo{n}": i for n, i in enumerate(i for i, (kind, _) in enumerate(plan) if kind == "yolo")}
    made = {name for node in model.graph.node for name in node.output}
    wanted = heads | {f"layer{i}": i for i in range(len(plan)) if f"layer{i}" in made}
    for name in wanted.keys() - heads.keys():
        model.graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1  # the nets are too small for more
    session = ort.InferenceSession(model.SerializeToString(), options)
    for name, got in zip(wanted, session.run(list(wanted), {"images": image}), strict=True):
        expected = maps[wanted[name]]
        assert np.abs(got - expected).max() <= 1e-4 * max(1.0, np.abs(expected).max()), name
    return wanted


# --- whole networks


def test_yolov3_of_reduced_width(tmp_path):
    plan = yolov3(divide=8, classes=3)
    assert [i for i, (kind, _) in enumerate(plan) if kind == "yolo"] == [82, 94, 106]
    assert sum(kind == "convolutional" for kind, _ in plan) == 75
    compared = check(tmp_path, plan, 96, 64)
    assert len(compared) == 107 - 2 - 3  # the single routes are no node; a head's map is counted once


def test_yolov3_tiny_of_reduced_width(tmp_path):
    check(tmp_path, tiny(divide=8, classes=4), 64, 96)


def test_the_other_layers(tmp_path):
    for seed in range(3):
        check(tmp_path, mixed(), 50, 38, seed)


@pytest.mark.parametrize(("plan", "floats"), [(yolov3, 62_001_757), (tiny, 8_858_734)])
def test_the_full_networks_need_the_floats_of_the_published_files(tmp_path, plan, floats):
    (tmp_path / "net.cfg").write_text(text(plan(), 416, 416))
    steps = trace(read_cfg(tmp_path / "net.cfg"))
    assert (
        sum(math.prod(shape) for step in steps for shape in step.layer.blocks(step.inputs[0]).values())
        == floats
    )


@pytest.mark.parametrize("name", ACTIVATE)
def test_activations(tmp_path, name):
    wide = ("upsample", {"stride": 2, "scale": 8.0})  # so that every piece of it is met
    check(tmp_path, [conv(16, 3, 2, "linear"), wide, conv(8, 1, 1, name, bn=0), *head("0", 1)], 24, 24)


@settings(max_examples=25, deadline=None)
@given(
    size=st.integers(1, 5),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    pad=st.sampled_from(["half", 0, 1, 3]),
    groups=st.integers(1, 3),
    per_group=st.integers(1, 3),
    dilation=st.integers(1, 3),
    bn=st.integers(0, 1),
    width=st.integers(9, 20),
    height=st.integers(9, 20),
)
def test_convolutions(tmp_path_factory, size, strides, pad, groups, per_group, dilation, bn, width, height):
    if pad != "half" or size % 2 == 0 or size == 1:
        dilation = 1
    more = {"pad": 1} if pad == "half" else {"pad": 0, "padding": pad}
    layer = conv(3 * groups * per_group // math.gcd(3, groups), size, 1, bn=bn, **more)
    layer[1].update(stride_x=strides[0], stride_y=strides[1], groups=groups, dilation=dilation)
    plan = [conv(groups * 2, 1), layer, *head("1", 1)]
    check(tmp_path_factory.mktemp("conv"), plan, width, height, seed=size)


@settings(max_examples=25, deadline=None)
@given(data=st.data(), size=st.integers(1, 6), stride=st.integers(1, 4), side=st.integers(6, 17))
def test_max_pools(tmp_path_factory, data, size, stride, side):
    options = {"size": size, "stride": stride}
    if data.draw(st.booleans()):
        options["padding"] = data.draw(st.integers(0, size - 1))
    check(tmp_path_factory.mktemp("pool"), [("maxpool", options), *head("1", 1)], side, side + 1)


def test_one_map_for_two_heads(tmp_path):
    first = head("0", 1)
    check(tmp_path, [conv(4, 3, 2), *first, ("route", {"layers": 1}), first[1]])

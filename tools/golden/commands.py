"""The golden commands: every feature once, on small embedded data, in the order in which they run."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


@dataclass(frozen=True)
class Command:
    """One `holdfast` command line and the files it writes that are compared."""

    name: str
    line: str
    reads: tuple[str, ...] = ()

    @property
    def arguments(self) -> list[str]:
        """The command line as a list; `|` stands for a space inside an argument."""
        return [word.replace("|", " ") for word in self.line.split()]


def command(name: str, line: str, *reads: str) -> Command:
    """A Command, with the compared files as positional arguments."""
    return Command(name, line, reads)


HELP = (
    "", "audit", "run", "evaluate", "report", "compare", "demo", "doctor", "data", "data info", "data make",
    "data crop", "model", "model info", "model card", "model convert", "noise", "noise list", "noise combine",
    "noise show", "train", "train mix", "train tent", "train matrix", "train compare", "diagnose", "attack",
    "patch", "patch apply", "contest", "contest init", "contest validate", "contest pack", "contest score",
    "contest board", "contest rescore", "contest show", "verify", "serve", "patchbench", "patchbench make",
    "patchbench check", "patchbench evaluate", "vnncomp", "vnncomp run", "vnncomp score", "vnncomp instance",
    "vnncomp warm",
)  # fmt: skip

COMMANDS = (
    # data and models
    command("data-make", "data make signs scenes --images 6 --seed 1"),
    command("data-info", "data info scenes --json data.json", "data.json"),
    command("data-crop", "data crop scenes crops --size 64"),
    command("model-info", "model info signs-yolo --json model.json", "model.json"),
    command("model-guess", "model info guess.onnx"),
    command("model-card", "model card guess.onnx -o guess.toml", "guess.toml"),
    command("model-convert", "model convert tiny.cfg tiny.weights -o tiny.onnx", "tiny.toml"),
    # evaluation
    command("evaluate-detector", "evaluate signs-plain signs:0:24 --json detector.json", "detector.json"),
    command("evaluate-folder", "evaluate signs-plain scenes --rule voc --csv"),
    command("evaluate-files", "evaluate --truth truth.json --predictions predictions.json --markdown"),
    command("evaluate-explain", "evaluate --explain"),
    command("evaluate-classifier", "evaluate signs-class signs:0:30 --json classes.json", "classes.json"),
    command("evaluate-segmenter", "evaluate signs-seg signs:0:6"),
    command("evaluate-single", "evaluate signs-single signs:0:20"),
    command(
        "evaluate-against",
        "evaluate signs-plain signs:0:24 --stage resize=opencv-nearest "
        "--against holdfast-runs/signs-plain-on-signs-0-24",
    ),
    command("report", "report holdfast-runs/signs-plain-on-signs-0-24 -o report.html", "report.html"),
    command(
        "report-classifier", "report holdfast-runs/signs-class-on-signs-0-30 -o class.html", "class.html"
    ),
    # noise
    command(
        "noise",
        "noise signs-class signs:0:40 --only decode,resize,colour,precision --calibration signs:7:20 "
        "--json noise.json -o noise.html",
        "noise.json",
        "noise.html",
    ),
    command(
        "noise-detector",
        "noise signs-plain signs:0:8 --only resize,upsample,boxes --latex --json boxes.json",
        "boxes.json",
    ),
    command(
        "noise-combine",
        "noise combine signs-class signs:0:40 --only decode,resize,colour "
        "--json combine.json -o combine.html",
        "combine.json",
        "combine.html",
    ),
    command("noise-list", "noise list --csv"),
    command("noise-show", "noise show picture.jpg --only resize --folder shown -o show.html", "show.html"),
    command(
        "noise-language",
        "noise road-lm road-piqa --task language --images 40 --json language.json -o language.html",
        "language.json",
        "language.html",
    ),
    command(
        "noise-speech",
        "noise fast-speech clips --task speech --images 2 --json speech.json -o speech.html",
        "speech.json",
        "speech.html",
    ),
    command(
        "diagnose",
        "diagnose signs-plain signs:0:12 --deploy decode=ffmpeg,resize=opencv-nearest "
        "--json diagnose.json -o diagnose.html",
        "diagnose.json",
        "diagnose.html",
    ),
    command(
        "diagnose-dump", "diagnose signs-plain picture.jpg --input dump.npy --json dump.json", "dump.json"
    ),
    # attacks, contest
    command(
        "attack",
        "attack signs-plain signs:0:2 --pixels 300 --steps 15 --features none --out attacked",
        "attacked/attack.json",
        "attacked/images.csv",
        "attacked/report.html",
    ),
    command(
        "attack-black-box",
        "attack signs-plain signs:0:1 --pixels 400 --steps 60 --black-box --features none --out boxed",
        "boxed/attack.json",
    ),
    command("patch-apply", "patch apply attacked/patches/signs-0-000000.png picture.jpg -o laid.png"),
    command(
        "contest-init",
        "contest init contest --images 4 --members signs-free,signs-plain",
        "contest/rules.toml",
    ),
    command("contest-pack", "contest pack contest/images --team us --contest contest"),
    command(
        "contest-validate",
        "contest validate advimages_us.zip --contest contest --json valid.json",
        "valid.json",
    ),
    command(
        "contest-score", "contest score advimages_us.zip --contest contest --json score.json", "score.json"
    ),
    command("contest-board", "contest board --contest contest --html board.html", "board.html"),
    command("contest-show", "contest show advimages_us.zip --contest contest -o entry.html", "entry.html"),
    # proofs
    command("patchbench-make", "patchbench make bench --images 2 --patch 3"),
    command("patchbench-check", "patchbench check bench --json check.json", "check.json"),
    command(
        "patchbench-evaluate",
        "patchbench evaluate signs-single signs --images 1 --json positions.json -o positions.html",
        "positions.html",
    ),
    command("verify-holds", "verify net.onnx safe.vnnlib --json holds.json", "holds.json"),
    command("verify-violated", "verify net.onnx unsafe.vnnlib --witness witness.txt", "witness.txt"),
    command("verify-check", "verify --check net.onnx"),
    command("vnncomp-run", "vnncomp run bench -o results.csv --limit 60"),
    command(
        "vnncomp-score",
        "vnncomp score results.csv --json standings.json --report vnncomp.html",
        "standings.json",
    ),
    # training
    command("train-mix", "train mix signs-class signs:0:32 -o mixed.onnx --steps 2 --batch 8 --jobs 1 --csv"),
    command("train-tent", "train tent normed.onnx signs:0:24 --batch 12 --only resize --jobs 1 --csv"),
    command(
        "train-matrix",
        "train matrix signs-class signs:0:32 --with pillow-bilinear,opencv-nearest --steps 2 --batch 8 --csv",
    ),
    command(
        "train-compare",
        "train compare signs-class signs:0:32 --with standard,mix --only resize --steps 2 --batch 8 --csv",
    ),
    # everything together
    command(
        "audit",
        "audit signs-plain signs:0:24 --budget none --noise-images 6 --attack-images 2 --square-images 1 "
        "--places 9 --pixels 300 --steps 5 --fail-if noise.map50.points_lost|>|50 --json audit.json "
        "--junit audit.xml --sarif audit.sarif -o audit.html",
        "audit.json",
        "audit.xml",
        "audit.sarif",
        "audit.html",
    ),
    command(
        "compare",
        "compare holdfast-runs/signs-plain-on-signs-0-24 holdfast-runs/signs-free-on-signs-0-24 "
        "-o compare.html",
        "compare.html",
    ),
    command("run", "run experiment.toml --json run.json -o run.html", "run.json", "run.html"),
    command("run-schema", "run --schema"),
    # bad input
    command("no-such-file", "evaluate missing.onnx scenes"),
    command("no-such-option", "evaluate signs-plain scenes --ruel voc"),
    command("wrong-task", "evaluate signs-class scenes"),
    command("not-an-onnx", "model info experiment.toml"),
    command("bad-spec", "verify net.onnx experiment.toml"),
    command("bad-gate", "audit signs-plain signs:0:2 --fail-if noise.mapp.points_lost|>|10"),
    command("bad-experiment", "run bad.toml"),
    command("bad-zip", "contest validate truth.json --contest contest"),
)


def prepare(folder: Path) -> None:
    """Write the input files that the commands name."""
    from PIL import Image

    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)
    Image.fromarray(pixels).resize((416, 312), Image.Resampling.BICUBIC).save(
        folder / "picture.jpg", quality=90
    )
    np.save(folder / "dump.npy", rng.random((1, 3, 416, 416), dtype=np.float32))
    (folder / "truth.json").write_text(TRUTH)
    (folder / "predictions.json").write_text(PREDICTIONS)
    (folder / "experiment.toml").write_text(EXPERIMENT)
    (folder / "bad.toml").write_text('[[model]]\npath = "signs-yolo"\n[[condition]]\ndo = "evalute"\n')
    (folder / "tiny.cfg").write_text(DARKNET)
    weights = rng.uniform(0, 0.1, 8 * 4 + 8 * 27 + 21 + 21 * 8).astype(np.float32)
    header = np.array([0, 2, 0, 0, 0], np.int32).tobytes()  # version 0.2.0, images seen
    (folder / "tiny.weights").write_bytes(header + weights.tobytes())
    onnx.save(small_net(rng), folder / "net.onnx")
    onnx.save(detector_like(rng), folder / "guess.onnx")
    onnx.save(normalised_classifier(rng), folder / "normed.onnx")
    shipped = resources.files("holdfast").joinpath("models/signs-class.toml").read_text()
    (folder / "normed.toml").write_text(shipped)
    for name, threshold in (("safe", 100.0), ("unsafe", -100.0)):
        (folder / f"{name}.vnnlib").write_text(SPEC.format(threshold=threshold))


def small_net(rng: np.random.Generator) -> onnx.ModelProto:
    """A ReLU network with three inputs and two outputs."""
    weights = [rng.normal(0, 1, shape).astype(np.float32) for shape in ((3, 8), (8,), (8, 2), (2,))]
    nodes = [
        helper.make_node("Gemm", ["x", "w0", "w1"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "w2", "w3"], ["y"]),
    ]
    return _model(nodes, weights, [1, 3], [1, 2])


def detector_like(rng: np.random.Generator) -> onnx.ModelProto:
    """A file without a card whose output has the form of a YOLOX table of 20 classes."""
    strides = (8, 16, 32)
    weights = [rng.normal(0, 0.01, (25, 3, side, side)).astype(np.float32) for side in strides]
    nodes = []
    for n, side in enumerate(strides):
        nodes += [
            helper.make_node(
                "Conv", ["x", f"w{n}"], [f"c{n}"], strides=[side, side], kernel_shape=[side, side]
            ),
            helper.make_node("Reshape", [f"c{n}", "shape"], [f"r{n}"]),
        ]
    nodes += [
        helper.make_node("Concat", ["r0", "r1", "r2"], ["all"], axis=2),
        helper.make_node("Transpose", ["all"], ["y"], perm=[0, 2, 1]),
    ]
    model = _model(nodes, weights, [1, 3, 64, 64], [1, 84, 25])
    model.graph.initializer.append(numpy_helper.from_array(np.array([1, 25, -1], np.int64), "shape"))
    return model


def normalised_classifier(rng: np.random.Generator) -> onnx.ModelProto:
    """A classifier with a batch normalisation, for TENT."""
    shapes = ((8, 3, 8, 8), (8,), (8,), (8,), (8,), (8, 20), (20,))
    weights = [rng.uniform(0.01, 0.2, shape).astype(np.float32) for shape in shapes]
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c"], strides=[8, 8], kernel_shape=[8, 8]),
        helper.make_node("BatchNormalization", ["c", "w1", "w2", "w3", "w4"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "w5", "w6"], ["y"]),
    ]
    return _model(nodes, weights, [1, 3, 64, 64], [1, 20])


def _model(
    nodes: list[onnx.NodeProto], weights: list[np.ndarray], given: list[int], result: list[int]
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "golden",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, given)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, result)],
        [numpy_helper.from_array(w, f"w{n}") for n, w in enumerate(weights)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


SPEC = """(declare-const X_0 Real)
(declare-const X_1 Real)
(declare-const X_2 Real)
(declare-const Y_0 Real)
(declare-const Y_1 Real)
(assert (>= X_0 -1))
(assert (<= X_0 1))
(assert (>= X_1 -1))
(assert (<= X_1 1))
(assert (>= X_2 -1))
(assert (<= X_2 1))
(assert (>= Y_0 {threshold}))
"""

TRUTH = (
    '{"images": [{"id": 1, "width": 100, "height": 100, "file_name": "a.jpg"}, '
    '{"id": 2, "width": 100, "height": 100, "file_name": "b.jpg"}], '
    '"categories": [{"id": 0, "name": "stop"}, {"id": 1, "name": "yield"}], '
    '"annotations": [{"id": 1, "image_id": 1, "category_id": 0, '
    '"bbox": [10, 10, 20, 20], "area": 400, "iscrowd": 0}, '
    '{"id": 2, "image_id": 2, "category_id": 1, "bbox": [30, 30, 40, 20], "area": 800, "iscrowd": 0}]}'
)
PREDICTIONS = (
    '[{"image_id": 1, "category_id": 0, "bbox": [11, 10, 20, 20], "score": 0.9}, '
    '{"image_id": 2, "category_id": 1, "bbox": [30, 35, 40, 20], "score": 0.6}, '
    '{"image_id": 2, "category_id": 0, "bbox": [0, 0, 10, 10], "score": 0.5}]'
)
EXPERIMENT = """title = "golden"
seed = 0

[[model]]
path = "signs-plain"

[[data]]
path = "signs:0:6"

[[condition]]
name = "clean"
do = "evaluate"

[[condition]]
name = "resized"
do = "evaluate"
stage = ["resize=opencv-nearest"]

[[condition]]
name = "resizes"
do = "noise"
only = ["resize=opencv-nearest"]
"""
DARKNET = """[net]
width=64
height=64
channels=3

[convolutional]
batch_normalize=1
filters=8
size=3
stride=8
pad=1
activation=leaky

[convolutional]
filters=21
size=1
stride=1
pad=1
activation=linear

[yolo]
mask=0,1,2
anchors=10,14, 23,27, 37,58
classes=2
num=3
"""

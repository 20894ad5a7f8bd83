"""The Markdown files of the book: their blocks of code, their links, and a folder to run the blocks in."""

import json
import os
import re
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

import holdfast
from holdfast.cli import run

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FENCE = re.compile(
    r"(?:<!-- run: (?P<how>[^\n]*?) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)^```", re.S | re.M
)
PROPERTY = """
(declare-const X_0 Real) (declare-const X_1 Real) (declare-const Y_0 Real) (declare-const Y_1 Real)
(assert (>= X_0 0.4)) (assert (<= X_0 0.6)) (assert (>= X_1 0.1)) (assert (<= X_1 0.3))
(assert (>= Y_1 Y_0))
"""


@dataclass(frozen=True)
class Block:
    """A block of code of a page; `how` is the comment above it: how a test runs it."""

    page: str
    language: str
    text: str
    how: str

    @property
    def pace(self) -> str:
        """quick, slow or no."""
        return re.split(r"[; ]", self.how)[0]

    @property
    def miniature(self) -> str:
        """The text with the replacements that the comment asks for."""
        text = self.text
        for one in self.how.split("; ")[1:]:
            old, new = one.split(" => ")
            assert old in text, f"{self.page}: {old!r} is not in the block"
            text = text.replace(old, new)
        return text


def pages():
    """Every hand-written Markdown file of the book and the files next to it."""
    inside = [p for p in DOCS.rglob("*.md") if p.relative_to(DOCS).parts[0] not in ("reference", "_intro")]
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "examples" / "README.md", *sorted(inside)]


def blocks(page, languages=("sh", "python")):
    """The blocks of a page in these languages."""
    text = page.read_text("utf-8")
    found = [Block(page.name, m["language"], m["text"], m["how"] or "") for m in FENCE.finditer(text)]
    return [block for block in found if block.language in languages]


def commands(text):
    """Every line of a shell block that calls holdfast, continued lines joined and comments removed."""
    joined = re.sub(r"\\\n\s*", "", text)
    return [re.sub(r"\s+#.*", "", line) for line in joined.splitlines() if line.startswith("holdfast ")]


def furnish(folder):
    """Write the files that the blocks name: a model, a small network, a dataset, predictions, the command."""
    shipped = Path(holdfast.__file__).parent / "models"
    for end in ("onnx", "toml"):
        (folder / f"net.{end}").write_bytes((shipped / f"signs-yolo.{end}").read_bytes())
    assert run(["data", "make", "signs", str(folder / "data"), "--images", "4"]) == 0
    image = next((folder / "data").rglob("*.jpg"))
    (folder / "image.jpg").write_bytes(image.read_bytes())
    truth = json.loads((folder / "data" / "annotations.json").read_text())
    (folder / "gt.json").write_text(json.dumps(truth))
    scored = [
        {k: a[k] for k in ("image_id", "category_id", "bbox")} | {"score": 0.9} for a in truth["annotations"]
    ]
    (folder / "dt.json").write_text(json.dumps(scored))
    (folder / "prop.vnnlib").write_text(PROPERTY)
    onnx.save(small_network(), folder / "small.onnx")
    command = folder / "bin" / "holdfast"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m holdfast "$@"\n')
    command.chmod(command.stat().st_mode | stat.S_IXUSR)


def small_network():
    """A network of two inputs and two outputs, y = (x₀ + 1, x₁), for which the property above holds."""
    weights = numpy_helper.from_array(np.eye(2, dtype=np.float32), "w")
    bias = numpy_helper.from_array(np.array([1, 0], dtype=np.float32), "b")
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"])
    shape = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 2]) for name in "xy"]
    graph = helper.make_graph([node], "small", shape[:1], shape[1:], [weights, bias])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def run_block(block, folder):
    """Run one block in the folder and return the finished process; the first failure ends it."""
    words = ["bash", "-euc"] if block.language == "sh" else [sys.executable, "-P", "-c"]
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [*words, block.miniature],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
    )

"""The network of FID: Inception v3 as TensorFlow published it in 2015, built from its canonical weights.

The graph is the one whose pool3 features FID is defined on (not torchvision's: average pools do not count
their border, and the last block pools by maximum). It is made as ONNX from the user's weights, so that
neither PyTorch nor a download is needed, and nothing but the file with the right hash is called FID.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from holdfast.core.errors import InputError, ModelError
from holdfast.core.fingerprint import of, of_bytes
from holdfast.core.registry import stage
from holdfast.core.types import Image, Tensor
from holdfast.stages.features.checkpoint import read_checkpoint
from holdfast.stages.features.inception_graph import DIMENSIONS, build
from holdfast.stages.features.net import FeatureNet, open_graph, run_graph

WEIGHTS = "6726825d0af5f729cebd5821db510b11b1cfad8faad88a03f1befd49fb9129b2"
_NAMES = "pt_inception-2015-12-05-6726825d.pth (also weights-inception-2015-12-05-6726825d.pth)"
_VERSION = 1  # of the graph


@stage("features")
def inception(text: str = "", threads: int = 1) -> FeatureNet:
    """FID: pool3 of Inception v3 (d = 2048) from the canonical weights' file, which its hash must prove."""
    if not text:
        raise InputError(f"features 'inception': expected inception:FILE with {_NAMES}, got no file")
    path = Path(text)
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise ModelError(f"{path}: cannot be read: {problem.strerror}; expected {_NAMES}") from problem
    got = of_bytes(data)
    if got != WEIGHTS:  # before a byte of it is read as anything
        raise ModelError(
            f"{path}: not the canonical FID weights {_NAMES}: sha256 expected {WEIGHTS}, got {got}"
        )
    return net_of(data, str(path), "FID", got, threads)


def net_of(data: bytes, what: str, name: str, sha256: str, threads: int) -> FeatureNet:
    """The feature net of a checkpoint's bytes, whatever their hash."""
    session = open_graph(build(read_checkpoint(data, what), what), what, threads)

    def row(image: Image) -> Tensor:
        return run_graph(session, np.ascontiguousarray(image[None]))

    made_of = {"weights": sha256, "resize": "299, bilinear of TensorFlow 1", "version": _VERSION}
    return FeatureNet(name, of(made_of), DIMENSIONS, row)

"""Feature nets: an image becomes a feature vector, and the Fréchet distance of such sets measures stealth.

A part of kind `features` is a function of the text after the name and of a number of threads; it returns a
`FeatureNet`. `signs` comes with the package, `inception:FILE` is the network of FID, `onnx:FILE` any other.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from holdfast.core.errors import ImageError, InputError
from holdfast.core.registry import part
from holdfast.core.types import Floats, Image, Tensor
from holdfast.graph.session import condense

Row: TypeAlias = Callable[[Image], Tensor]  # one image -> its features (d,)


@dataclass(frozen=True, eq=False)
class FeatureNet:
    """A feature net: `name` is the name of its distance, `sha256` changes whenever its numbers could.

    Images are processed one by one: at the sizes of a contest a batch is no faster, and the features of an
    image never depend on the other images.
    """

    name: str
    sha256: str
    dimensions: int
    row: Row = field(repr=False)

    def __call__(self, images: Sequence[Image]) -> Floats:
        """The features (n, d) of the images, (h, w, 3) uint8 each."""
        rows = np.zeros((len(images), self.dimensions))
        for place, image in enumerate(images):
            if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
                got = f"{image.shape} {image.dtype.name}"
                raise InputError(f"{self.name}: expected images (h, w, 3) uint8, got {got}")
            features = np.asarray(self.row(image)).reshape(-1)
            if len(features) != self.dimensions or not np.isfinite(features).all():
                got = f"{len(features)} with {int((~np.isfinite(features)).sum())} that are not finite"
                raise ImageError(f"{self.name}: expected {self.dimensions} finite features, got {got}")
            rows[place] = features
        return rows


def open_features(text: str, threads: int = 1) -> FeatureNet:
    """The feature net of a text: "signs", "inception:FILE", "onnx:FILE", or a user-defined part."""
    name, _, rest = text.partition(":")
    net: FeatureNet = part("features", name).function(rest, threads)
    return net


def run_graph(session: Any, tensor: Tensor) -> Tensor:
    """The first output for one input tensor; raise ImageError if the network cannot run on it."""
    try:
        outputs = session.run([session.get_outputs()[0].name], {session.get_inputs()[0].name: tensor})
    except Exception as problem:
        raise ImageError(f"the feature network cannot run on it: {condense(problem, 300)}") from problem
    return np.asarray(outputs[0])

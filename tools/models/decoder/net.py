"""The restoring net, and how it becomes an ONNX file."""

import warnings
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from holdfast.stages.decode.learned import PLANES
from models.signs.export import OPSET

WIDTH = 24
BLOCKS = 3
SCALE = 0.1  # what is added is small: so are its steps in training


class Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """The features (n, width, h, w) after the block."""
        return functional.relu(x + self.second(functional.relu(self.first(x))))


class Restorer(nn.Module):
    """Planes (n, 19, h, w) of `stages.decode.learned` to pictures (n, 3, 2h, 2w) in 0..1.

    The net says what to add to the picture; untrained it adds nothing.
    """

    def __init__(self, width: int = WIDTH, blocks: int = BLOCKS) -> None:
        super().__init__()
        self.head = nn.Conv2d(PLANES, width, 3, padding=1)
        self.body = nn.Sequential(*(Block(width) for _ in range(blocks)))
        self.tail = nn.Conv2d(width, 12, 3, padding=1)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                nn.init.zeros_(module.bias)
        for block in self.body:
            nn.init.zeros_(block.second.weight)  # a block begins as its shortcut
        nn.init.zeros_(self.tail.weight)

    def forward(self, x: Tensor) -> Tensor:
        """The restored pictures."""
        added = self.tail(self.body(functional.relu(self.head(x))))
        return functional.pixel_shuffle(x[:, :12] + added * SCALE, 2)


def write(net: nn.Module, path: Path) -> None:
    """Write the net as ONNX with an input `planes` and an output `picture` of free batch and size."""
    import onnx

    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # as in train/export: the new one needs more
        torch.onnx.export(
            net.eval().to(memory_format=torch.contiguous_format),
            (torch.zeros(1, PLANES, 16, 16),),
            str(part),
            input_names=["planes"],
            output_names=["picture"],
            dynamic_axes={
                "planes": {0: "n", 2: "h", 3: "w"},
                "picture": {0: "n", 2: "height", 3: "width"},
            },
            opset_version=OPSET,
            dynamo=False,
        )
    model = onnx.load(str(part))
    for node in model.graph.node:
        node.doc_string = ""
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, str(part))
    part.replace(path)

"""ART's patch attacks on a holdfast victim: a thin estimator, and what ART needs of torchvision.

ART 1.20 has no estimator for an ONNX detector, so this one hands it the candidates of our importer: the loss
it maximises is the energy it must destroy, the same that our own attack drives down. AdversarialPatchPyTorch
calls torchvision's resize, pad, affine and perspective; torchvision has no build for every machine, so they
are written here in torch, as far as ART uses them for a patch at a fixed place.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from art.attacks.evasion import AdversarialPatchPyTorch, DPatch, RobustDPatch
from art.estimators.object_detection.object_detector import ObjectDetectorMixin
from art.estimators.pytorch import PyTorchEstimator
from torch import Tensor
from torch.nn import functional

from holdfast.attack.gradient.victim import Victim, overlap
from holdfast.attack.types import Target
from holdfast.core.types import Image


class ThinDetector(ObjectDetectorMixin, PyTorchEstimator):
    """Victims as ART wants them: pixels (n, 3, h, w) in 0..255, a loss of labels, and its gradient."""

    native_label_is_pytorch_format = True

    def __init__(self, victims: Sequence[Victim], size: tuple[int, int]) -> None:
        super().__init__(
            model=torch.nn.Identity(), clip_values=(0.0, 255.0), channels_first=True, device_type="cpu"
        )
        self.victims, self.shape = victims, (3, *size)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.shape

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def compute_loss(self, x: Tensor, y: Sequence[dict[str, Tensor]], **_: Any) -> Tensor:
        """To be maximised: minus the energy of every candidate of a label's class that overlaps it."""
        total = torch.zeros(())
        for victim in self.victims:
            found = victim.candidates(x.permute(0, 2, 3, 1).float())
            for i, labels in enumerate(y):
                for box, label in zip(labels["boxes"], labels["labels"], strict=True):
                    near = overlap(
                        found.boxes[i : i + 1], torch.tensor(np.array(box), dtype=torch.float32)[None]
                    )
                    energy = found.energy[i, :, int(label)]
                    live = (near[0, :, 0] >= 0.3) & (found.scores[i, :, int(label)] > 0.05)
                    total = total - torch.where(live, energy + 5.0, torch.zeros_like(energy)).sum()
        return total

    def compute_losses(self, x: Any, y: Any) -> dict[str, Any]:
        return {"total": self.compute_loss(x, y)}

    def loss_gradient(self, x: Any, y: Any, **_: Any) -> Any:
        pixels = torch.tensor(np.asarray(x), dtype=torch.float32, requires_grad=True)
        loss = self.compute_loss(pixels, y)
        if not loss.requires_grad:
            return np.zeros(pixels.shape, np.float32)
        loss.backward()
        return pixels.grad.numpy()

    def predict(self, x: Any, batch_size: int = 1, **_: Any) -> list[dict[str, Any]]:
        said = []
        for image in np.asarray(x):
            pixels = image.transpose(1, 2, 0).round().clip(0, 255).astype(np.uint8)
            found = self.victims[0].judge(pixels)
            said.append({"boxes": found.boxes, "labels": found.classes, "scores": found.scores})
        return said

    def fit(self, x: Any, y: Any, **_: Any) -> None:
        raise NotImplementedError

    def get_activations(self, x: Any, layer: Any, batch_size: int = 1, framework: bool = False) -> Any:
        raise NotImplementedError


def attacked_by_art(
    method: str, victims: Sequence[Victim], target: Target, pixels: int, steps: int, seed: int
) -> Image:
    """The image with ART's square patch of at most so many pixels on the largest target."""
    np.random.seed(seed)  # noqa: NPY002 - ART draws from the global generator
    torch.manual_seed(seed)
    image = target.image
    height, width = image.shape[:2]
    side = min(int(pixels**0.5), height, width)
    sides = target.boxes.xyxy[:, 2:] - target.boxes.xyxy[:, :2]
    x1, y1, x2, y2 = target.boxes.xyxy[int(sides.prod(axis=1).argmax())]
    # DPatch takes no centre that would let the patch touch the right or lower border
    left = int(np.clip(round((x1 + x2 - side) / 2), 0, width - side - 1))
    top = int(np.clip(round((y1 + y2 - side) / 2), 0, height - side - 1))
    estimator = ThinDetector(victims, (height, width))
    x = image.transpose(2, 0, 1)[None].astype(np.float32)
    y = [
        {
            "boxes": target.boxes.xyxy.astype(np.float32),
            "labels": np.array(target.boxes.classes),
            "scores": np.ones(len(target.boxes), np.float32),
        }
    ]
    out = np.array(image)
    if method == "art-dpatch":
        centre = np.zeros((1, height, width), bool)
        centre[0, top + side // 2, left + side // 2] = True
        dpatch = DPatch(estimator, (3, side, side), 5.0, steps, verbose=False)
        patch = dpatch.generate(x, y=y, mask=centre)
    elif method == "art-robust-dpatch":
        # Untargeted, it takes what the model says now for the labels at every step.
        robust = RobustDPatch(
            estimator, (3, side, side), (top, left), sample_size=1, max_iter=steps, verbose=False
        )
        patch = robust.generate(x)
    else:
        stand_in()
        whole = AdversarialPatchPyTorch(
            estimator, rotation_max=0.0, scale_min=side / max(height, width), scale_max=1.0,
            learning_rate=5.0, max_iter=steps, batch_size=1, patch_shape=(3, side, side),
            patch_location=(left, top), patch_type="square", targeted=False, verbose=False,
        )  # fmt: skip
        whole.generate(x, y=y)
        laid = whole.apply_patch(x, scale=side / max(height, width))
        return laid[0].transpose(1, 2, 0).round().clip(0, 255).astype(np.uint8)
    new = patch.transpose(1, 2, 0).round().clip(0, 255).astype(np.uint8)
    out[top : top + side, left : left + side] = new
    return out


def stand_in() -> None:
    """Nothing; `torchvision` is there as far as ART's patch needs it."""
    if "torchvision" in sys.modules:
        return
    vision, transforms, inner = (types.ModuleType(n) for n in ("torchvision", "transforms", "functional"))
    vision.__version__ = "0.20.0"  # type: ignore[attr-defined]
    inner.resize, inner.pad, inner.affine, inner.perspective = _resize, _pad, _affine, _perspective  # type: ignore[attr-defined]
    transforms.functional = inner  # type: ignore[attr-defined]
    transforms.InterpolationMode = types.SimpleNamespace(NEAREST="nearest", BILINEAR="bilinear")  # type: ignore[attr-defined]
    vision.transforms = transforms  # type: ignore[attr-defined]
    sys.modules.update({"torchvision": vision, "torchvision.transforms": transforms})


def _resize(img: Tensor, size: Any, interpolation: Any = None, **_: Any) -> Tensor:
    many = img if img.ndim == 4 else img[None]
    made = functional.interpolate(many.float(), size=tuple(size), mode="bilinear", align_corners=False)
    return made if img.ndim == 4 else made[0]


def _pad(img: Tensor, padding: Sequence[int], fill: float = 0, padding_mode: str = "constant") -> Tensor:
    left, top, right, bottom = padding
    return functional.pad(img, (left, right, top, bottom), value=fill)


def _affine(
    img: Tensor,
    angle: float,
    translate: Sequence[float],
    scale: float,
    shear: Any,
    interpolation: Any,
    fill: Any,
) -> Tensor:
    if angle or any(shear):
        raise NotImplementedError("only scale and place: the benchmark lays the patch at a fixed place")
    height, width = img.shape[-2:]
    ys, xs = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    x = ((xs + 0.5 - width / 2 - translate[0]) / scale) / (width / 2)
    y = ((ys + 0.5 - height / 2 - translate[1]) / scale) / (height / 2)
    many = img if img.ndim == 4 else img[None]
    grid = torch.stack((x, y), -1)[None].expand(len(many), -1, -1, -1).to(many.dtype)
    made = functional.grid_sample(many, grid, mode="nearest", padding_mode="zeros", align_corners=False)
    return made if img.ndim == 4 else made[0]


def _perspective(img: Tensor, startpoints: Any, endpoints: Any, **_: Any) -> Tensor:
    if startpoints != endpoints:
        raise NotImplementedError("no distortion: the benchmark lays the patch at a fixed place")
    return img

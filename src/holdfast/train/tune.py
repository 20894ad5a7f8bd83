"""Fine-tuning of an ONNX classifier: mix (SysNoise, Algorithm 1), augmented, adversarial; and TENT."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from holdfast.core import fingerprint
from holdfast.core.errors import DataError, InputError, ModelError
from holdfast.core.model import Card, Input, Model
from holdfast.core.registry import lookup
from holdfast.engine.executor import Progress, silent
from holdfast.train.adversarial import pgd_examples
from holdfast.train.augment.augmix import consistency
from holdfast.train.loop import Batch, Job, Say, Stage, checkpoint_of, fit
from holdfast.train.onnx import Trainable, export_trained, open_trainable
from holdfast.train.pictures import PreparedImages, Preprocessing

SAVE_EVERY = 100  # steps between checkpoints


@dataclass(frozen=True)
class Tuning:
    """The settings of fine-tuning; `mix` of one choice means no mixing.

    With `mix_per` "iteration" all images of a batch have the same preprocessing, drawn for each step as in
    Algorithm 1; with "image" each has its own.

    `rate` is the highest learning rate, reached after a tenth of the steps, followed by a cosine decay to a
    hundredth of it. `augment` names augmentations, applied in order; `shift` moves each image by up to this
    many pixels. `adversarial` is the largest change (0 to 255) of PGD examples, which replace the images; 0:
    none.
    """

    steps: int
    batch: int = 64
    rate: float = 1e-3
    mix: tuple[Preprocessing, ...] = (Preprocessing(),)
    augment: tuple[str, ...] = ()
    adversarial: float = 0.0
    shift: int = 0
    statistics: Literal["file", "moving"] = "moving"
    weight_decay: float = 0.02
    averaging: float = 0.997
    smoothing: float = 0.0
    adversarial_steps: int = 5
    mix_per: Literal["iteration", "image"] = "iteration"
    consistency: float = 0.0

    def check(self) -> None:
        """Raise InputError for an invalid value."""
        for name, least in {"steps": 1, "batch": 1, "shift": 0, "adversarial_steps": 1}.items():
            if getattr(self, name) < least:
                raise InputError(f"{name}: expected {least} or more, got {getattr(self, name)}")
        if not 0 < self.rate < 10:
            raise InputError(f"rate: expected a learning rate above 0 and below 10, got {self.rate}")
        if not 0 <= self.adversarial <= 255:
            raise InputError(f"adversarial: expected 0 to 255, got {self.adversarial}")
        if self.consistency and (self.adversarial or not self.augment):
            raise InputError(
                "consistency: expected together with an augmentation and without adversarial training"
            )
        if not self.mix:
            raise InputError("mix: expected at least one choice of decoder and resize, got none")
        for name in self.augment:
            lookup("augment", name)


def tune(
    model: Model,
    pictures: PreparedImages,
    tuning: Tuning,
    seed: int,
    checkpoint: Path,
    say: Say,
    progress: Progress = silent,
    name: str = "",
) -> Any:
    """Train the model on the images and return its ONNX graph; an interrupted run resumes.

    `say` reports progress under `name` (default: the model's). The file name of the checkpoint has a hash of
    everything that determines the weights: the same seed, images and number of threads give identical
    weights.
    """
    tuning.check()
    if len(pictures) < tuning.batch:
        raise DataError(
            f"expected at least one batch of images ({tuning.batch}), got {len(pictures)}; "
            "use more images or a smaller batch"
        )
    net = trainable_of(model).statistics(tuning.statistics)
    data_key = fingerprint.of([model.sha256, model.card.input, pictures.key, pictures.labels, tuning])
    steps, rate = tuning.steps, tuning.rate
    stage = Stage("tuning", steps, tuning.batch, size=0, high=rate, low=rate / 100, warmup=steps // 10)
    loss_of_batch = loss_of(model, tuning)

    def counted_loss(net: nn.Module, batch: Batch) -> Tensor:
        value = loss_of_batch(net, batch)
        progress(1, 0)
        return value

    draw, decay = draw_of(pictures, tuning, model), tuning.weight_decay
    job = Job(
        name or model.name,
        net,
        draw,
        counted_loss,
        (stage,),
        seed=seed,
        weight_decay=decay,
        averaging=tuning.averaging,
        data=data_key,
    )
    path = checkpoint.with_name(f"{checkpoint.stem}-{job.key()}.pt")
    try:
        state = checkpoint_of(path, job.key())
        done = 0 if state is None else int(state["done"])
    except Exception as problem:
        raise InputError(f"{path}: expected a checkpoint, got a damaged file; delete it") from problem
    progress(done, done)
    return export_trained(fit(job, path, say, SAVE_EVERY))


def trainable_of(model: Model, *, own: bool = False, proto: Any = None) -> Trainable:
    """The network of a classifier, of its file or of another graph (`proto`).

    Raise ModelError if it cannot be trained or lacks one score per class.
    """
    card = model.card
    if card.task != "classify":
        raise ModelError(f"{model.path}: expected a classifier, got a model with the task {card.task}")
    width, height = card.input.size
    shape = (3, height, width) if card.input.layout == "nchw" else (height, width, 3)
    names = card.head.options.get("outputs") or ("",)
    net = open_trainable(model.path if proto is None else proto, str(names[0]), shape, own=own)
    kind = torch.uint8 if card.input.dtype == "uint8" else torch.float32
    with torch.no_grad():
        scores = net(torch.zeros((1, *shape), dtype=kind)).shape[1]
    expected = len(card.classes) + skipped_outputs(model)
    if scores != expected:
        raise ModelError(f"{model.path}: expected {expected} scores, one per class, got {scores}")
    return net


def skipped_outputs(model: Model) -> int:
    """Number of leading outputs that are not classes."""
    return int(model.card.head.options.get("skip", 0))


def normalise_images(images: NDArray[np.uint8], card: Card) -> Tensor:
    """The network's input tensor of images (b, h, w, 3), in the card's colour order, layout and type."""
    network_input = card.input
    pixels = torch.from_numpy(np.array(images))
    pixels = pixels.flip(3) if network_input.colour == "bgr" else pixels
    if network_input.dtype != "uint8":
        gain, shift = gain_and_shift(network_input)
        pixels = pixels.to(torch.float32) * gain - shift
    return pixels.permute(0, 3, 1, 2) if network_input.layout == "nchw" else pixels


def gain_and_shift(network_input: Input) -> tuple[Tensor, Tensor]:
    """Factor and offset of the channels (3,): normalised = pixel · gain − shift."""
    std, mean = np.array([network_input.std, network_input.mean], np.float32)
    return torch.from_numpy(np.float32(network_input.scale) / std), torch.from_numpy(mean / std)


def draw_of(
    pictures: PreparedImages, tuning: Tuning, model: Model
) -> Callable[[Stage, np.random.Generator], Batch]:
    """A function that draws a batch, with a random preprocessing per iteration or per image."""
    choice_indices = np.array([pictures.place(choice) for choice in tuning.mix])
    augmentations = [lookup("augment", name) for name in tuning.augment]

    def draw(stage: Stage, rng: np.random.Generator) -> Batch:
        rows = rng.choice(len(pictures), stage.batch, replace=False)
        drawn = rng.integers(len(choice_indices), size=stage.batch if tuning.mix_per == "image" else 1)
        images = pictures.images[np.broadcast_to(choice_indices[drawn], stage.batch), rows]
        if tuning.shift:
            images = shift_images(images, rng.integers(-tuning.shift, tuning.shift + 1, (len(images), 2)))
        versions = [images, *(augmented(images, rng) for _ in range(2))] if tuning.consistency else []
        batch_images = np.concatenate(versions) if versions else augmented(images, rng)
        labels = torch.from_numpy(pictures.labels[rows] + skipped_outputs(model))
        return normalise_images(batch_images, model.card), labels, torch.tensor(int(rng.integers(2**62)))

    def augmented(images: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
        for augmentation in augmentations:
            images = augmentation(images, rng)
        return images

    return draw


def shift_images(images: NDArray[np.uint8], by: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Images (b, h, w, 3) moved by (dy, dx) pixels each; the border is repeated."""
    count, height, width = images.shape[:3]
    rows = np.clip(np.arange(height) - by[:, :1], 0, height - 1)
    columns = np.clip(np.arange(width) - by[:, 1:], 0, width - 1)
    index = np.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]
    shifted: NDArray[np.uint8] = images[index]
    return shifted


def loss_of(model: Model, tuning: Tuning) -> Callable[[nn.Module, Batch], Tensor]:
    """The loss function of a batch: cross-entropy, on adversarial examples if `adversarial` is set."""
    network_input = model.card.input
    shape = (1, 3, 1, 1) if network_input.layout == "nchw" else (1, 1, 1, 3)
    gain, shift = (v.reshape(shape) for v in gain_and_shift(network_input))
    size = 2.5 * tuning.adversarial / tuning.adversarial_steps
    ball: dict[str, Any] = {  # PGD within `adversarial` levels of every pixel
        "epsilon": tuning.adversarial * gain,
        "steps": tuning.adversarial_steps,
        "size": size * gain,
        "low": -shift,
        "high": 255 * gain - shift,
    }

    def loss(net: nn.Module, batch: Batch) -> Tensor:
        images, labels, seed = batch
        if tuning.adversarial:
            images = pgd_examples(net, images, labels, seed=int(seed), **ball)
        versions = net(images).chunk(3 if tuning.consistency else 1)
        clean_loss = functional.cross_entropy(versions[0], labels, label_smoothing=tuning.smoothing)
        return clean_loss + tuning.consistency * consistency(versions) if tuning.consistency else clean_loss

    return loss


def tent(
    net: Trainable, batches: Iterable[Tensor], rate: float, steps: int = 1, skip: int = 0
) -> NDArray[np.int64]:
    """The predicted classes (n,) of all batches in order; the network adapts from batch to batch.

    Batches are normalised by their own statistics; scale and bias of the normalising nodes take `steps` steps
    of Adam per batch. The prediction is that of the last forward pass, before its step, as in the authors'
    code. The first `skip` outputs are not classes. The network stays adapted: open it again to reset it, or
    pass a copy.
    """
    names = check_adaptable(net)
    before = net.mode, {name: value.requires_grad for name, value in net.weights.items()}
    net.eval().statistics("batch")
    for name, value in net.weights.items():
        value.requires_grad_(name in names)
    optimiser = torch.optim.Adam([net.weights[name] for name in names], lr=rate, betas=(0.9, 0.999))
    classes: list[NDArray[np.int64]] = []
    try:
        for batch in batches:
            for _ in range(steps):
                scores = net(batch)
                optimiser.zero_grad(set_to_none=True)
                entropy(scores).mean().backward()
                optimiser.step()
            classes.append(scores.detach().numpy()[:, skip:].argmax(1))
    finally:
        net.statistics(before[0])
        for name, value in net.weights.items():
            value.requires_grad_(before[1][name])
    return np.concatenate(classes) if classes else np.zeros(0, np.int64)


def check_adaptable(net: Trainable, name: str = "the model") -> tuple[str, ...]:
    """The names of the weights that TENT changes: scale and bias of normalising nodes, each once.

    Raise InputError if there are none.
    """
    pairs = [(normalisation.scale, normalisation.bias) for normalisation in net.normalisations]
    names = tuple(dict.fromkeys(name for pair in pairs for name in pair if name in net.weights))
    if not names:
        raise InputError(
            f"TENT adapts the scale and bias of normalisation layers, and {name} has none "
            "(they may have been folded into its convolutions); export it with its normalisation layers"
        )
    return names


def entropy(scores: Tensor) -> Tensor:
    """The entropy (n,) of the softmax of scores (n, k)."""
    return -(scores.softmax(1) * scores.log_softmax(1)).sum(1)

"""One image through the first stages of many pipelines, each distinct computation done once.

Pipelines with the same decoder share the decoded pixels. Two decoders that give the same pixels share
everything that follows, down to the input tensor. The result is the distinct input tensors of the image, each
with the pipelines that use it.
"""

import hashlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from holdfast.core.frame import Frame, place
from holdfast.core.model import Input
from holdfast.core.pipeline import Decode, Fit, Normalise, Recolour, Resize
from holdfast.core.types import Image, Sample, Tensor

A = TypeVar("A")
Errors = dict[int, Exception]  # pipeline -> why it has no tensor of this image
SPARSE = 16  # different pixels mostly differ in every 16th pixel of every 16th row


@dataclass(frozen=True)
class InputStages:
    """The stages of one pipeline before the network, and their names, which are equal for equal stages."""

    names: Mapping[str, str]
    decode: Decode
    colour: Recolour
    fit: Fit
    resize: Resize
    normalise: Normalise


@dataclass(frozen=True)
class InputTensor:
    """A distinct tensor (1, …) of an image, its hash, and the pipelines that use it, with their frames."""

    sample: Sample
    tensor: Tensor
    digest: str
    frames: dict[int, Frame]


@dataclass
class _Pixels:
    """Distinct pixels and the pipelines that use them, with their frames and inputs."""

    pixels: Image
    users: dict[int, tuple[Frame, Input]] = field(default_factory=dict)


_Distinct = dict[Hashable, list[_Pixels]]  # by a sample of the pixels


def digest_of(tensor: Tensor, pixels: Image, target: Input, normalise: str) -> str:
    """16 hex digits that are equal for equal inputs of the network.

    The card's normalisation maps different pixels to different tensors, so the pixels are hashed instead of
    the tensor, which is four times as large. With any other normalisation the tensor itself is hashed.
    """
    content, head = (pixels, _text(target)) if normalise == "card" else (tensor, "")
    digest = hashlib.sha256(f"{content.shape}{content.dtype.str}{head}".encode())
    digest.update(np.ascontiguousarray(content).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()[:16]


_text = lru_cache(maxsize=64)(str)


def distinct_tensors(
    stages: Mapping[int, InputStages], card: Input, sample: Sample, errors: Errors
) -> Iterator[InputTensor]:
    """The distinct tensors of one image. A pipeline that fails has none and is put into `errors`."""
    for small in _resized(stages, card, sample.data, errors):
        found: dict[str, InputTensor] = {}
        groups = grouped(small.users, lambda u: (small.users[u][1], stages[u].names["normalise"]))  # noqa: B023
        for (target, name), users in groups.items():
            normalise = stages[users[0]].normalise
            tensor = _attempt(errors, users, _normalised, normalise, small.pixels, target)
            if tensor is None:
                continue
            digest = digest_of(tensor, small.pixels, target, name)
            shared = found.setdefault(digest, InputTensor(sample, tensor, digest, {}))
            shared.frames.update({u: small.users[u][0] for u in users})
        yield from found.values()


def _resized(stages: Mapping[int, InputStages], card: Input, data: bytes, errors: Errors) -> list[_Pixels]:
    """The distinct pixels of the network's input size."""
    found: _Distinct = {}
    targets: dict[int, Input] = {}
    for users in grouped(stages, lambda u: stages[u].names["fit"]).values():
        target = _attempt(errors, users, stages[users[0]].fit, card)
        if target is not None:
            targets.update(dict.fromkeys(users, target))
    for decoded, by_decode in _split(list(targets), stages, "decode", data, errors):
        for coloured, by_colour in _split(by_decode, stages, "colour", decoded, errors):
            groups = grouped(by_colour, lambda u: (targets[u], stages[u].names["resize"]))
            for (target, _), users in groups.items():
                resize = stages[users[0]].resize
                placed = _attempt(errors, users, place, _given(resize, coloured), target, resize)
                if placed is not None:
                    _same_pixels(found, placed[0]).users.update(dict.fromkeys(users, (placed[1], target)))
    return [pixels for alike in found.values() for pixels in alike]


def _normalised(stage: Normalise, pixels: Image, target: Input) -> Tensor:
    tensor: Tensor = stage(_given(stage, pixels), target)[np.newaxis]
    return tensor


def _given(stage: Callable[..., Any], pixels: A) -> A:
    """The pixels, copied for a stage outside holdfast, which may write into them."""
    ours = str(getattr(stage, "__module__", "")).startswith("holdfast.")
    return pixels.copy() if isinstance(pixels, np.ndarray) and not ours else pixels


def _split(
    users: list[int], stages: Mapping[int, InputStages], kind: str, given: Any, errors: Errors
) -> list[tuple[Image, list[int]]]:
    """The distinct results of one stage, each with the pipelines that share it."""
    found: _Distinct = {}
    members: dict[int, tuple[Image, list[int]]] = {}
    for group in grouped(users, lambda u: stages[u].names[kind]).values():
        stage = getattr(stages[group[0]], kind)
        pixels = _attempt(errors, group, stage, _given(stage, given))
        if pixels is not None:
            shared = _same_pixels(found, pixels)
            members.setdefault(id(shared), (shared.pixels, []))[1].extend(group)
    return list(members.values())


def _same_pixels(found: _Distinct, pixels: Image) -> _Pixels:
    """The entry of `found` with these pixels, added if there is none."""
    sparse = (pixels.shape, pixels.dtype.str, pixels[::SPARSE, ::SPARSE].tobytes())
    alike = found.setdefault(sparse, [])
    for one in alike:
        if one.pixels is pixels or np.array_equal(one.pixels, pixels):
            return one
    alike.append(_Pixels(pixels))
    return alike[-1]


def grouped(users: Iterable[int], key: Callable[[int], Hashable]) -> dict[Any, list[int]]:
    """The users that have the same key, in order."""
    groups: dict[Any, list[int]] = {}
    for user in users:
        groups.setdefault(key(user), []).append(user)
    return groups


def attempt(function: Callable[..., Any], *given: Any) -> Any:
    """The result of the function, or the exception it raises."""
    try:
        return function(*given)
    except MemoryError:
        raise
    except Exception as problem:  # noqa: BLE001 - a stage may be the user's; its error is reported
        return problem


def _attempt(errors: Errors, users: list[int], function: Callable[..., Any], *given: Any) -> Any:
    """The result of the function; None if it fails, and then the users have that error."""
    result = attempt(function, *given)
    if isinstance(result, Exception):
        errors.update(dict.fromkeys(users, result))
        return None
    return result

"""One image through the first stages of many pipelines, each distinct piece of work done once.

Pipelines part and meet again: those with the same decoder share the decoded pixels, and two decoders that
give the same pixels share all that follows, down to the tensor. What comes out are the distinct tensors of
the image, each with the pipelines that want it run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, TypeVar

import numpy as np

from holdfast.core.frame import Frame, place
from holdfast.core.model import Input
from holdfast.core.pipeline import Decode, Fit, Normalise, Recolour, Resize
from holdfast.core.types import Image, Sample, Tensor

A = TypeVar("A")
Errors = dict[int, Exception]  # pipeline -> why it has no tensor of this image
SPARSE = 16  # pictures that differ are mostly told apart by every 16th pixel of every 16th row


@dataclass(frozen=True)
class Route:
    """The stages of one pipeline before the network, and the texts two equal stages have in common."""

    names: Mapping[str, str]
    decode: Decode
    colour: Recolour
    fit: Fit
    resize: Resize
    normalise: Normalise


@dataclass(frozen=True)
class Ready:
    """A tensor (1, …) of image number `image`, its hash, and the pipelines that want it: number -> frame."""

    image: int
    sample: Sample
    tensor: Tensor
    digest: str
    frames: dict[int, Frame]


@dataclass
class _Meeting:
    """Pixels laid into the network's input, and who arrived at them by what way."""

    pixels: Image
    users: dict[int, tuple[Frame, Input]] = field(default_factory=dict)


_Met = dict[Hashable, list[_Meeting]]  # by a glimpse of the pixels


def digest_of(tensor: Tensor, pixels: Image, target: Input, normalise: str) -> str:
    """16 hex digits that two inputs of the network share if they are equal.

    The card's normalisation maps different pixels to different tensors, so the pixels stand for the tensor,
    which is four times as large; of any other the tensor itself is hashed.
    """
    content, head = (pixels, _told(target)) if normalise == "card" else (tensor, "")
    made = hashlib.sha256(f"{content.shape}{content.dtype.str}{head}".encode())
    made.update(np.ascontiguousarray(content).reshape(-1).view(np.uint8).data)
    return made.hexdigest()[:16]


_told = lru_cache(maxsize=64)(str)


def tensors(
    routes: Mapping[int, Route], wanted: Input, image: int, sample: Sample, errors: Errors
) -> Iterator[Ready]:
    """The distinct tensors of one image; a pipeline that fails gets none and is put into `errors`."""
    for small in _smalls(routes, wanted, sample.data, errors):
        made: dict[str, Ready] = {}
        ways = grouped(small.users, partial(_way_on, routes, small))
        for (target, name), users in ways.items():
            work = partial(_normalised, routes[users[0]].normalise, small.pixels, target)
            tensor = _tried(errors, users, work)
            if tensor is None:
                continue
            digest = digest_of(tensor, small.pixels, target, name)
            ready = made.setdefault(digest, Ready(image, sample, tensor, digest, {}))
            ready.frames.update({u: small.users[u][0] for u in users})
        yield from made.values()


def _smalls(routes: Mapping[int, Route], card: Input, data: bytes, errors: Errors) -> list[_Meeting]:
    """The distinct pixels of the network's size."""
    found: _Met = {}
    wants: dict[int, Input] = {}
    for users in grouped(routes, lambda u: routes[u].names["fit"]).values():
        target = _tried(errors, users, partial(routes[users[0]].fit, card))
        if target is not None:
            wants.update(dict.fromkeys(users, target))
    for decoded, by_decode in _split(list(wants), routes, "decode", data, errors):
        for coloured, by_colour in _split(by_decode, routes, "colour", decoded, errors):
            ways = grouped(by_colour, lambda u: (wants[u], routes[u].names["resize"]))
            for (target, _), users in ways.items():
                stage = routes[users[0]].resize
                made = _tried(errors, users, partial(place, _given(stage, coloured), target, stage))
                if made is not None:
                    _meet(found, made[0]).users.update(dict.fromkeys(users, (made[1], target)))
    return [meeting for alike in found.values() for meeting in alike]


def _way_on(routes: Mapping[int, Route], small: _Meeting, user: int) -> Hashable:
    return small.users[user][1], routes[user].names["normalise"]


def _normalised(stage: Normalise, pixels: Image, target: Input) -> Tensor:
    tensor: Tensor = stage(_given(stage, pixels), target)[np.newaxis]
    return tensor


def _given(stage: Callable[..., Any], pixels: A) -> A:
    """The pixels, copied for a stage that is not ours: it may write into them, and others share them."""
    ours = str(getattr(stage, "__module__", "")).startswith("holdfast.")
    return pixels.copy() if isinstance(pixels, np.ndarray) and not ours else pixels


def _split(
    users: list[int], routes: Mapping[int, Route], kind: str, given: Any, errors: Errors
) -> list[tuple[Image, list[int]]]:
    """What the users' stages of one kind make of it, each distinct result once, with those who want it.

    A stage with a true attribute `first` runs before the others: they need not find out what it has.
    """
    met: _Met = {}
    members: dict[int, tuple[Image, list[int]]] = {}
    groups = [
        (getattr(routes[group[0]], kind), group)
        for group in grouped(users, lambda u: routes[u].names[kind]).values()
    ]
    for stage, group in sorted(groups, key=lambda found: not getattr(found[0], "first", False)):
        pixels = _tried(errors, group, partial(stage, _given(stage, given)))
        if pixels is not None:
            there = _meet(met, pixels)
            members.setdefault(id(there), (there.pixels, []))[1].extend(group)
    return list(members.values())


def _meet(met: _Met, pixels: Image) -> _Meeting:
    """The one among `met` with these pixels, added if there is none."""
    glimpse = (pixels.shape, pixels.dtype.str, pixels[::SPARSE, ::SPARSE].tobytes())
    alike = met.setdefault(glimpse, [])
    for meeting in alike:
        if meeting.pixels is pixels or np.array_equal(meeting.pixels, pixels):
            return meeting
    alike.append(_Meeting(pixels))
    return alike[-1]


def grouped(users: Iterable[int], key: Callable[[int], Hashable]) -> dict[Any, list[int]]:
    """The users that have the same key, in order."""
    groups: dict[Any, list[int]] = {}
    for user in users:
        groups.setdefault(key(user), []).append(user)
    return groups


def _tried(errors: Errors, users: list[int], work: Callable[[], A]) -> A | None:
    """What the work gives; None if it fails, and then the users have that error."""
    try:
        return work()
    except MemoryError:
        raise
    except Exception as problem:  # noqa: BLE001 - a stage may be the user's; it is told, not swallowed
        errors.update(dict.fromkeys(users, problem))
        return None

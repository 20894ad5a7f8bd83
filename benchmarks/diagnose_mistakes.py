"""The mistakes of `benchmarks/diagnose.py`: changes of a preprocessing, and the causes that name them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import cv2
import numpy as np

from diagnose_dumps import Chain, Pixels, dump, laid_out, network_input, normalised, source

Kinds = frozenset[str]
Constants = tuple[float, ...]  # of the three channels
FACING = frozenset({"flip", "orientation"})
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

# The preprocessing of each model, written from `holdfast model info` and the documentation of the model.
CLEAN = {
    "yolox_nano": Chain((416, 416), "letterbox", place="corner", truncated=True, order="bgr"),
    "efflite0": Chain(
        (224, 224), "crop", 256, truncated=True, filter="pillow bilinear", mean=(127.0,) * 3, std=(128.0,) * 3
    ),
    "signs-yolo": Chain((416, 416), filter="pillow bilinear", scale=1 / 255),
}


@dataclass(frozen=True)
class Mistake:
    """A change of the preprocessing, and the kinds of causes that a correct answer names.

    Each group of `needs` requires at least one of its kinds: two descriptions of one fact are equivalent.
    Kinds in `may` are correct in addition.
    """

    name: str
    needs: tuple[Kinds, ...]
    change: Callable[[Chain], Chain]
    may: Kinds = frozenset()

    @property
    def allowed(self) -> Kinds:
        """All kinds that are not a wrong accusation."""
        return self.may.union(*self.needs)

    def changed(self, clean: Chain) -> set[str]:
        """The fields of the chain that it changes."""
        new = self.change(clean)
        return {
            field.name for field in fields(Chain) if getattr(new, field.name) != getattr(clean, field.name)
        }


def mistake(name: str, needs: str, may: str = "", /, **values: Any) -> Mistake:
    """A mistake that sets fields; `needs` is written "kind|equivalent, kind", `may` "kind, kind"."""
    groups = tuple(frozenset(group.split("|")) for group in needs.split(", "))
    return Mistake(name, groups, lambda chain: replace(chain, **values), frozenset(may.split(", ")) - {""})


def both(first: Mistake, second: Mistake) -> Mistake:
    """Two mistakes at once."""
    groups = []
    for group in first.needs:
        facing = [other for other in second.needs if group & FACING and other & FACING]
        groups.append(group.union(*facing))  # two rotations and flips are one
    groups += [other for other in second.needs if not any(other <= group for group in groups)]
    if any("quantised" in group for group in groups):  # scale and zero point hide another gain and offset
        groups = [group | {"quantised"} if group == {"range", "colour"} else group for group in groups]
    return Mistake(
        f"{first.name}+{second.name}",
        tuple(groups),
        lambda chain: second.change(first.change(chain)),
        first.may | second.may,
    )


def facing() -> Iterator[Mistake]:
    """Rotations and flips."""
    for tag in (3, 6, 8):
        yield mistake(f"exif-{tag}-applied", "orientation", "flip" if tag == 3 else "", tag=tag, upright=True)
    yield mistake("rotated", "orientation", turn=1)
    yield mistake("mirrored", "flip", mirror="horizontal")
    yield mistake("upside-down", "flip", mirror="vertical")
    yield mistake("input-flipped-across", "flip", "geometry, shift", flip="horizontal")
    yield mistake("input-flipped-down", "flip", "geometry, shift", flip="vertical")


def colours() -> Iterator[Mistake]:
    """Channels, colour formats, decoders and gamma."""
    yield Mistake("red-blue-swapped", (frozenset({"channels"}),), swap)
    yield mistake("grey", "channels", grey=True)
    yield mistake("luma-decoded", "channels", "decode", decoder="cv2 grey")
    yield mistake("red-zero", "channels", "range", zeroed=0)
    yield mistake("green-zero", "channels", "range", zeroed=1)
    yield mistake("third-plane-zero", "channels", "range", blank=2)
    yield mistake("fast-dct", "decode", decoder="fastdct")
    yield mistake("plain-upsampling", "decode", decoder="fastupsample")
    yield mistake("yuv444", "colour", colour="yuv444")
    yield mistake("nv12", "colour", colour="nv12")
    yield mistake("nv12-bilinear", "colour", colour="nv12 linear")
    yield mistake("i420-opencv", "colour", colour="i420 cv2")
    yield mistake("limited-range", "range|colour", colour="limited")
    yield mistake("expanded-range", "range|colour", colour="expanded")
    yield mistake("gamma-2.2", "gamma", gamma=2.2)
    yield mistake("gamma-1/2.2", "gamma", gamma=1 / 2.2)
    yield mistake("gamma-after-resize", "gamma", gamma_after=1 / 2.2)


def swap(chain: Chain) -> Chain:
    """The other order of red and blue; the constants of the normalisation keep their places."""
    return replace(chain, order="rgb" if chain.order == "bgr" else "bgr")


def geometry() -> Iterator[Mistake]:
    """Where the image lies in the input, and how large the input is."""
    yield mistake("stretch", "geometry", policy="stretch")
    yield mistake("letterbox-centre", "geometry", "pad", policy="letterbox", place="centre")
    yield mistake("letterbox-corner", "geometry", "pad", policy="letterbox", place="corner")
    yield mistake("crop", "geometry", policy="crop", short=0)
    yield mistake("crop-at-corner", "geometry", policy="crop", window="corner")
    yield Mistake("stretch-then-crop", (frozenset({"geometry"}),), stretch_first)
    yield mistake("rounded-sides", "geometry", truncated=False)
    sizes: dict[str, Callable[[int], tuple[int, int]]] = {
        "smaller-input": lambda side: (side * 10 // 13 // 32 * 32,) * 2,
        "larger-input": lambda side: (side * 20 // 13 // 32 * 32,) * 2,
        "wide-input": lambda side: (side * 20 // 13 // 32 * 32, side * 10 // 13 // 32 * 32),
    }
    for name, size in sizes.items():
        yield Mistake(name, (frozenset({"size"}),), resized_to(size))
    for value in (0, 128, 255):
        yield mistake(f"pad-{value}", "pad", pad=value)
    yield mistake("one-pixel-right", "shift|geometry", shift=(1.0, 0.0))
    yield mistake("one-pixel-up", "shift|geometry", shift=(0.0, -1.0))
    yield mistake("half-pixel", "shift", "resize, twice, geometry", shift=(0.5, 0.5))
    yield mistake("half-pixel-down", "shift", "resize, twice, geometry", shift=(0.0, 0.5))


def stretch_first(chain: Chain) -> Chain:
    """A crop of the stretched image instead of the proportional one."""
    return replace(chain, policy="square") if chain.policy == "crop" else chain


def resized_to(size: Callable[[int], tuple[int, int]]) -> Callable[[Chain], Chain]:
    """A change to another input size; a crop keeps its share of the short side."""

    def change(chain: Chain) -> Chain:
        new = size(chain.size[0])
        return replace(chain, size=new, short=chain.short and round(chain.short * min(new) / chain.size[0]))

    return change


def resizes() -> Iterator[Mistake]:
    """Other filters, and resizing twice."""
    for name in ("nearest", "linear", "cubic", "area", "lanczos4"):
        yield mistake(f"cv2-{name}", "resize", filter=f"cv2 {name}")
    for name in ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"):
        yield mistake(f"pillow-{name}", "resize", filter=f"pillow {name}")
    yield mistake("no-half-pixel-centres", "resize|shift", "resize, shift", filter="asymmetric")
    yield mistake("twice-half", "twice", "resize", via=("times", 0.5, 0.5))
    yield mistake("twice-320", "twice", "resize, geometry", via=("to", 320, 320))
    yield mistake("twice-1280x720", "twice", "resize, geometry", via=("to", 1280, 720))


def ranges() -> Iterator[Mistake]:
    """Gain and offset of the normalisation."""
    none, ones = (0.0,) * 3, (1.0,) * 3
    mean, std = IMAGENET
    for name, values in {
        "range-0-255": (1.0, none, ones),
        "range-0-1": (1 / 255, none, ones),
        "divided-twice": (1 / 255**2, none, ones),
        "imagenet-mean-std": (1 / 255, mean, std),
        "imagenet-mean": (1 / 255, mean, ones),
        "imagenet-mean-255": (1.0, tuple(255 * m for m in mean), ones),
        "127.5": (1.0, (127.5,) * 3, (127.5,) * 3),
        "minus-half": (1 / 255, (0.5,) * 3, ones),
    }.items():
        yield Mistake(name, (frozenset({"range"}),), normalised_by(*values))
    yield Mistake("divided-after", (frozenset({"range"}),), divided_after)


def normalised_by(scale: float, mean: Constants, std: Constants) -> Callable[[Chain], Chain]:
    """A change to other constants, which are given for red, green and blue."""

    def change(chain: Chain) -> Chain:
        step = -1 if chain.order == "bgr" else 1
        return replace(chain, scale=scale, mean=mean[::step], std=std[::step])

    return change


def divided_after(chain: Chain) -> Chain:
    """The model's own normalisation, divided by 255."""
    return replace(chain, std=tuple(255 * s for s in chain.std))


def layouts() -> Iterator[Mistake]:
    """Axes, batch, type and quantisation."""
    yield mistake("nhwc", "layout", layout="nhwc")
    yield mistake("reinterpreted", "layout", layout="reinterpreted")
    yield mistake("width-before-height", "layout|orientation", layout="ncwh")
    yield mistake("no-batch-axis", "batch|layout", batch="none")
    yield mistake("batch-of-4-copies", "batch", batch="copies")
    yield mistake("batch-of-4-images", "batch", batch="four")
    yield mistake("float16", "dtype", dtype="float16")
    yield mistake("float64", "dtype", dtype="float64")
    pixels = {"scale": 1.0, "mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}
    yield mistake("uint8-pixels", "dtype|quantised", "range", dtype="uint8", **pixels)
    yield mistake("int8", "quantised", "dtype", quantised="int8")
    yield mistake("int8-symmetric", "quantised", "dtype", quantised="symmetric")
    yield mistake("uint8", "quantised|dtype", quantised="uint8")


PARTS = (facing, colours, geometry, resizes, ranges, layouts)
MISTAKES = {one.name: one for part in PARTS for one in part()}

# The model's own preprocessing, computed in other ways: "no difference" is the correct answer.
CONTROLS: dict[str, Callable[[Chain], Chain]] = {
    "clean": lambda chain: chain,
    "clean, decoded by OpenCV": lambda chain: replace(chain, decoder="cv2"),
    "clean, resized without rounding": lambda chain: replace(chain, filter=f"exact {chain.filter}"),
    "clean, EXIF orientation ignored": lambda chain: replace(chain, tag=6),
}


def vignette(pixels: Pixels) -> Pixels:
    """Corners at half the brightness."""
    height, width = pixels.shape[:2]
    y, x = np.linspace(-1, 1, height)[:, None], np.linspace(-1, 1, width)[None]
    return np.rint(pixels * (1 - (x**2 + y**2) / 4)[..., None]).astype(np.uint8)


def saturated(pixels: Pixels) -> Pixels:
    """Saturation times 1.5."""
    values = cv2.cvtColor(pixels, cv2.COLOR_RGB2HSV)
    values[..., 1] = np.minimum(values[..., 1] * 1.5, 255).astype(np.uint8)
    return cv2.cvtColor(values, cv2.COLOR_HSV2RGB)


def recompressed(pixels: Pixels) -> Pixels:
    """Through a JPEG of quality 15."""
    return cv2.imdecode(cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, 15])[1], cv2.IMREAD_COLOR)


def noisy(pixels: np.ndarray) -> np.ndarray:
    """Gaussian noise of 8 grey levels on every value."""
    return pixels + np.random.default_rng(0).normal(0, 8, pixels.shape)


def halves_swapped(pixels: np.ndarray) -> np.ndarray:
    """The right half of the input before the left half."""
    return np.roll(pixels, pixels.shape[1] // 2, axis=1)


def covered(pixels: np.ndarray) -> np.ndarray:
    """A black rectangle of a third of the sides."""
    out = pixels.copy()
    height, width = out.shape[0] // 3, out.shape[1] // 3
    out[height // 2 : height // 2 + height, width // 2 : width // 2 + width] = 0
    return out


# Causes that are not in the vocabulary: "unknown" is the correct answer. First of the decoded pixels, then of
# the network's input.
UNKNOWN_OF_IMAGE: dict[str, Callable[[Pixels], Pixels]] = {
    "vignette": vignette,
    "saturation": saturated,
    "blur": lambda pixels: cv2.GaussianBlur(pixels, (0, 0), 3),
    "recompressed": recompressed,
}
UNKNOWN_OF_INPUT: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "noise": noisy,
    "halves swapped": halves_swapped,
    "covered": covered,
}
ANOTHER = "another image"
UNKNOWN = (*UNKNOWN_OF_IMAGE, *UNKNOWN_OF_INPUT, ANOTHER)


def unknown_dump(name: str, chain: Chain, data: bytes, other: bytes) -> np.ndarray:
    """The dump of a clean chain with a change that is not in the vocabulary."""
    if name == ANOTHER:
        return dump(chain, other)
    pixels = UNKNOWN_OF_IMAGE.get(name, lambda pixels: pixels)(source(chain, data))
    placed = UNKNOWN_OF_INPUT.get(name, lambda placed: placed)(network_input(chain, pixels))
    return laid_out(chain, normalised(chain, placed), [])

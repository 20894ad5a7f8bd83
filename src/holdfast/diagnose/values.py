"""Causes in the values of an input: channels, gamma, normalisation, quantisation and padding."""

from collections.abc import Iterator

import numpy as np

from holdfast.core.pipeline import LETTERBOXES
from holdfast.core.types import Floats
from holdfast.diagnose.cause import Cause, Comparison
from holdfast.diagnose.preparation import GREY, GREY_709, Preparation, power_curve

RGB = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet
CAFFE = (123.0, 117.0, 104.0)


def value_causes(c: Comparison) -> Iterator[Cause]:
    """The causes in the values, in the order in which a repair undoes them."""
    prep, want = c.fit.preparation, c.expected
    yield from _channels(prep, want)
    if prep.expanded:
        yield Cause(
            "colour",
            "The target expands levels from 16 to 235 to the full range, as if the image had limited range.",
            "Convert colours at full range (as JPEG does), without clipping.",
        )
    if prep.gamma != 1.0:
        last = " after resizing" if prep.gamma_last else ""
        yield Cause(
            "gamma",
            f"The target applies a gamma curve with exponent {prep.gamma:.3g}{last}.",
            "Remove the gamma correction.",
            definite=False,
        )
    integer = np.dtype(c.dtype).kind in "iu" and c.spec.dtype != c.dtype
    if integer:
        yield from _integer(c)
    else:
        yield from _range(c)
    if c.dtype == "float64":
        yield Cause(
            "dtype",
            f"The target feeds float64; the model wants {c.spec.dtype}.",
            f"Convert to {c.spec.dtype}.",
        )
    if c.dtype == "float16" and c.spec.dtype == "float32":
        gain = max(float(np.abs(prep.gain).min()), 1e-30)
        yield Cause(
            "dtype",
            f"The target feeds float16, which rounds by up to {c.fit.target.rounding / gain:.2g} levels.",
        )
    yield from _pad(c)


def _channels(prep: Preparation, want: Preparation) -> Iterator[Cause]:
    fed, wanted = prep.channels, want.channels
    if fed == wanted:
        return
    constant = [k for k, source in enumerate(fed) if not any(source)]
    if constant:
        text = ", ".join(
            f"channel {k} ({_colour(wanted[k])}) is constant at {prep.offset[k] + 0.0:.4g}" for k in constant
        )
        yield Cause("channels", f"In the target {text}.", "Feed all three channels.")
        fed = tuple(w if not any(f) else f for f, w in zip(fed, wanted, strict=True))
        if fed == wanted:
            return
    if len(set(fed)) == 1 and len(fed) > 1:
        yield Cause(
            "channels",
            f"The target feeds a grey image ({_colour(fed[0])} in every channel); the model wants colour.",
            "Decode in colour.",
        )
    elif fed == wanted[::-1] and set(fed) == set(RGB):
        names = ("RGB", "BGR") if fed == RGB else ("BGR", "RGB")
        yield Cause(
            "channels",
            f"The target feeds {names[0]}; the model wants {names[1]}.",
            "Swap the first and the third channel.",
        )
    else:
        fed_text, want_text = (", ".join(_colour(s) for s in sources) for sources in (fed, wanted))
        yield Cause(
            "channels", f"The channels are {fed_text}; the model wants {want_text}.", "Reorder the channels."
        )


def _colour(source: tuple[float, float, float]) -> str:
    names = {RGB[0]: "red", RGB[1]: "green", RGB[2]: "blue", GREY: "luma", GREY_709: "luma (BT.709)"}
    return names.get(source, "the mean of the channels")


def normalisations() -> dict[str, tuple[Floats, Floats]]:
    """Usual normalisations: gain and offset for red, green and blue levels from 0 to 255."""
    mean, std, ones = np.array(MEAN), np.array(STD), np.ones(3)
    return {
        "pixel levels (0 to 255)": (ones, 0 * ones),
        "values divided by 255 (0 to 1)": (ones / 255, 0 * ones),
        "values divided by 255 twice": (ones / 255**2, 0 * ones),
        "(x − 127.5) / 127.5 (−1 to 1)": (ones / 127.5, -ones),
        "(x − 127) / 128": (ones / 128, -127 / 128 * ones),
        "(x − 128) / 128": (ones / 128, -ones),
        "values divided by 256": (ones / 256, 0 * ones),
        "x − 128": (ones, -128 * ones),
        "ImageNet mean and std (after ÷255)": (1 / 255 / std, -mean / std),
        "ImageNet mean and std in reversed channel order": (1 / 255 / std[::-1], -mean[::-1] / std[::-1]),
        "ImageNet mean and std without ÷255": (1 / std, -mean / std),
        "ImageNet mean without std": (ones / 255, -mean),
        "ImageNet std without mean": (1 / 255 / std, 0 * ones),
        "ImageNet mean and std after ÷255 twice": (1 / 255**2 / std, -mean / std),
        "levels minus the means 123, 117, 104": (ones, -np.array(CAFFE)),
        "levels minus the means 104, 117, 123": (ones, -np.array(CAFFE[::-1])),
    }


def _name_of(gain: Floats, offset: Floats, prep: Preparation, tolerance: float) -> str:
    """The usual normalisation within a tolerance in levels; empty if there is none."""
    planes = [k for k, source in enumerate(prep.channels) if any(source)]
    sources = [int(np.argmax(prep.channels[k])) for k in planes]
    best, nearest = "", tolerance
    for name, (gains, offsets) in normalisations().items():
        far = max(
            (
                abs((gain[k] - gains[s]) * level + offset[k] - offsets[s]) / abs(gain[k])
                for k, s in zip(planes, sources, strict=True)
                for level in (0.0, 255.0)
            ),
            default=np.inf,
        )
        if far < nearest:
            best, nearest = name, float(far)
    return best


def _formula(gain: Floats, offset: Floats) -> str:
    low, high = offset, 255.0 * gain + offset
    spans = dict.fromkeys(f"{a:.4g} to {b:.4g}" for a, b in zip(low, high, strict=True))
    return f"values from {', '.join(spans)}"


def _range(c: Comparison) -> Iterator[Cause]:
    prep, want = c.fit.preparation, c.expected
    planes = [k for k, source in enumerate(prep.channels) if any(source)]
    gain, offset = np.array(prep.gain), np.array(prep.offset)
    # The wanted normalisation is one of positions in the tensor, not of colours.
    wanted_gain, wanted_offset = np.array(want.gain), np.array(want.offset)
    far = [
        abs((gain[k] - wanted_gain[k]) * level + offset[k] - wanted_offset[k]) / abs(gain[k])
        for k in planes
        for level in (0.0, 255.0)
    ]
    if not planes or max(far) <= c.tolerance:
        return
    known = _name_of(gain, offset, prep, c.tolerance) or _twice(gain, offset, want, c.tolerance)
    fed = known or _formula(gain[planes], offset[planes])
    model = _name_of(wanted_gain, wanted_offset, want, 0.05) or _formula(wanted_gain, wanted_offset)
    yield Cause(
        "range",
        f"The target feeds {fed}; the model wants {model}.",
        f"Normalise to {model}.",
        definite=bool(known),
    )


def _twice(gain: Floats, offset: Floats, want: Preparation, tolerance: float) -> str:
    """Whether the model's own normalisation was applied twice."""
    own_gain, own_offset = np.array(want.gain), np.array(want.offset)
    far = np.abs(
        np.stack([gain - own_gain**2, (gain - own_gain**2) * 255])
        + (offset - own_gain * own_offset - own_offset)
    ) / np.abs(gain)
    return "values normalised twice" if float(far.max()) <= tolerance else ""


def _integer(c: Comparison) -> Iterator[Cause]:
    """Integers: pixel levels before normalisation, or a quantised input."""
    prep, want = c.fit.preparation, c.expected
    planes = [k for k, source in enumerate(prep.channels) if any(source)]
    if not planes:
        return
    gain, offset = np.array(prep.gain)[planes], np.array(prep.offset)[planes]
    scale = np.array(want.gain)[planes] / gain
    zero = offset - np.array(want.offset)[planes] / scale
    if max(abs(gain - 1).max() * 255, abs(offset).max()) <= c.tolerance:
        model = _name_of(np.array(want.gain), np.array(want.offset), want, 0.05) or "normalised values"
        same = bool(abs(scale - 1).max() < 0.01 and abs(zero).max() <= c.tolerance)
        repair = "" if same else f"Convert to {c.spec.dtype} and normalise."
        yield Cause(
            "dtype",
            f"The target feeds pixel levels as {c.dtype}; the model wants {model} as {c.spec.dtype}.",
            repair,
        )
        return
    if np.ptp(scale) <= 0.01 * abs(scale).max() and np.ptp(zero) <= 1.0 + 2 * c.tolerance * abs(gain).max():
        value = f"{scale.mean():.4g} · {_less('q', round(float(zero.mean())))}"
        yield Cause(
            "quantised",
            f"The target feeds {c.dtype} values q; {value} gives the model's input.",
            "Check that the model's input has this scale and zero point.",
        )
        return
    yield Cause("quantised", f"The target feeds {c.dtype} values.", definite=False)
    yield from _range(c)


def _less(name: str, value: int) -> str:
    return f"({name} {'−' if value >= 0 else '+'} {abs(value)})" if value else name


def _pad(c: Comparison) -> Iterator[Cause]:
    prep, want = c.fit.preparation, c.expected
    at, net = prep.placement.rounded(), c.fit.target.size
    rows, columns = at.inside((net.height, net.width))
    covered = (rows.stop - rows.start) * (columns.stop - columns.start)
    if c.spec.policy not in LETTERBOXES or covered > 0.99 * net.width * net.height:
        return
    planes = [k for k, source in enumerate(prep.channels) if any(source)]
    fed, wanted = np.array(prep.pad)[planes], np.array(want.pad)[planes]
    usual = [wanted, power_curve(wanted, prep.gamma)]
    if not planes or min(float(np.abs(fed - pad).max()) for pad in usual) <= 0.75 + c.tolerance:
        return
    if _same_padding(prep, want, planes):
        return
    values = ", ".join(dict.fromkeys(f"{value:.4g}" for value in np.round(fed, 1)))
    yield Cause(
        "pad",
        f"The target pads with level {values}; the model wants {c.spec.pad}.",
        f"Pad with {c.spec.pad}.",
    )


def _same_padding(prep: Preparation, want: Preparation, planes: list[int]) -> bool:
    """Whether the padding has the value that the model wants: the levels of the image alone are changed."""
    gain, offset, pad = (np.array(values)[planes] for values in (prep.gain, prep.offset, prep.pad))
    wanted_gain, wanted_offset, wanted_pad = (
        np.array(values)[planes] for values in (want.gain, want.offset, want.pad)
    )
    apart = gain * pad + offset - (wanted_gain * wanted_pad + wanted_offset)
    return bool((np.abs(apart) <= 0.75 * np.abs(wanted_gain)).all())

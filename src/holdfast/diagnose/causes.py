"""The causes of a difference, in words: what the target feeds, what the model wants, and the repair."""

from collections.abc import Iterator

from holdfast.core.model import Input
from holdfast.core.pipeline import LETTERBOXES
from holdfast.core.types import Size
from holdfast.diagnose.cause import Cause, Comparison
from holdfast.diagnose.geometry import Placement
from holdfast.diagnose.preparation import Preparation
from holdfast.diagnose.values import value_causes

TURNS = {
    2: "mirrored horizontally",
    3: "rotated by 180°",
    4: "flipped vertically",
    5: "transposed",
    6: "rotated by 90° clockwise",
    7: "transposed along the other diagonal",
    8: "rotated by 90° counterclockwise",
}
UNDONE = {6: 8, 8: 6}  # the orientation that undoes one; the others undo themselves


def causes_of(comparison: Comparison) -> list[Cause]:
    """The causes, those that concern the whole array first."""
    parts = (_layout, _orientation, _geometry, value_causes, _finer)
    return [cause for part in parts for cause in part(comparison)]


def _layout(c: Comparison) -> Iterator[Cause]:
    reading, wanted = c.fit.reading, c.spec.layout
    if reading.layout != wanted:
        shape, _, held = reading.layout.partition(" holding ")
        if held:
            yield Cause(
                "layout",
                f"The array has the shape of {shape.upper()}, but its values are in {held.upper()} order.",
                "Transpose the array instead of reshaping it.",
            )
        if shape != wanted:
            yield Cause(
                "layout",
                f"The target feeds {shape.upper()}; the model wants {wanted.upper()}.",
                "Transpose the axes.",
            )
    if not reading.batched:
        yield Cause("batch", "The array has no batch axis; the model wants one.", "Add an axis of size 1.")
    if reading.batch > 1:
        yield Cause("batch", f"The dump holds {reading.batch} images; image {reading.index + 1} is this one.")
    if c.fit.target.size != c.spec.size:
        fed, want = c.fit.target.size, c.spec.size
        yield Cause(
            "size",
            f"The target feeds {fed.width}×{fed.height} pixels; the model wants {want.width}×{want.height}.",
            f"Resize to {want.width}×{want.height}.",
        )


def _orientation(c: Comparison) -> Iterator[Cause]:
    turn = c.fit.preparation.orientation
    if turn == 1:
        return
    if c.train_exif and turn == UNDONE.get(c.exif, c.exif):
        yield Cause(
            "orientation",
            f"The target ignores the EXIF orientation {c.exif} of the file; the training applies it.",
            "Apply the EXIF orientation after decoding.",
        )
        return
    if c.exif == turn and not c.train_exif:
        yield Cause(
            "orientation",
            f"The target applies the EXIF orientation {c.exif} of the file; the training pipeline does not.",
            "Decode without applying the EXIF orientation; if the training applies it, use --train-exif.",
        )
        return
    kind = "flip" if turn in (2, 4) else "orientation"
    yield Cause(kind, f"The image is {TURNS[turn]} in the target.", "Remove this step.")


def _geometry(c: Comparison) -> Iterator[Cause]:
    prep, want = c.fit.preparation, c.expected
    if prep.through is not None:
        yield Cause(
            "twice",
            f"The target resizes twice: first to {prep.through.width}×{prep.through.height}, "
            f"then to {_whole(prep)}.",
            "Resize once, from the decoded image.",
            definite=False,
        )
    at, trained = prep.placement.rounded(), want.placement.rounded()
    if prep.sampling == "shift":
        x, y = prep.placement.left - trained.left, prep.placement.top - trained.top
        if (at.width, at.height) == (trained.width, trained.height) and max(abs(x), abs(y)) <= 2.5:
            yield Cause(
                "shift", f"The image is shifted by {_offset(x, y)}.", "Remove the shift.", definite=False
            )
            return
    if prep.sampling == "grid":
        yield Cause(
            "shift",
            f"The target samples at other positions, {_offset(*prep.shift)} from pixel centres.",
            "Use the resize of the training pipeline (half-pixel centres).",
            definite=False,
        )
    if prep.window is not None:
        left, top, right, bottom = prep.window
        yield Cause(
            "geometry",
            f"The target cuts out the window ({left}, {top}) to ({right}, {bottom}) and resizes it; "
            f"the model wants {_policy_name(c.spec)}.",
            f"Resize to {int(trained.width)}×{int(trained.height)} and place it at "
            f"({int(trained.left)}, {int(trained.top)}).",
        )
        return
    if at in (trained, _turned(trained, prep.orientation, c.fit.target.size)):
        return
    x, y = at.left - trained.left, at.top - trained.top
    if (at.width, at.height) == (trained.width, trained.height) and max(abs(x), abs(y)) <= 2:
        yield Cause("shift", f"The image is shifted by {_offset(x, y)}.", "Remove the shift.", definite=False)
        return
    apart = max(abs(a - b) for a, b in zip(vars(at).values(), vars(trained).values(), strict=True))
    yield Cause(
        "geometry",
        f"The target places the image by {policy_of(c)}; the model wants {_policy_name(c.spec)}.",
        f"Resize to {int(trained.width)}×{int(trained.height)} and place it at "
        f"({int(trained.left)}, {int(trained.top)}).",
        definite=prep.through is None and apart > 2,  # a blur looks like two resizes, noise like a pixel more
    )


def _turned(at: Placement, orientation: int, net: Size) -> Placement:
    """A placement after the whole network input is mirrored or rotated by 180°."""
    left = net.width - at.left - at.width if orientation in (2, 3) else at.left
    top = net.height - at.top - at.height if orientation in (3, 4) else at.top
    return Placement(left, top, at.width, at.height)


def _whole(prep: Preparation) -> str:
    at = prep.placement.rounded()
    return f"{int(at.width)}×{int(at.height)}"


def _offset(x: float, y: float) -> str:
    parts = []
    for value, name in ((x, "to the right"), (y, "down")):
        if value:
            opposite = {"to the right": "to the left", "down": "up"}
            unit = "pixel" if abs(value) <= 1 else "pixels"
            parts.append(f"{abs(value):g} {unit} {name if value > 0 else opposite[name]}")
    return " and ".join(parts) or "0 pixels"


def _policy_name(spec: Input) -> str:
    if spec.policy in LETTERBOXES:
        return f"a letterbox in the {'corner' if spec.place == 'corner' else 'centre'}"
    if spec.policy == "stretch":
        return f"stretching to {spec.size.width}×{spec.size.height}"
    return f"a centre crop of short side {spec.short_side or min(spec.size)}"


def policy_of(c: Comparison) -> str:
    """The name of the fitted placement, or its rectangle."""
    at, net = c.fit.preparation.placement.rounded(), c.fit.target.size
    image = c.fit.preparation.through or c.fit.turned
    if (at.left, at.top, at.width, at.height) == (0, 0, net.width, net.height):
        return f"stretching to {net.width}×{net.height}"
    trained = c.expected.placement.rounded()
    if max(abs(a - b) for a, b in zip(vars(at).values(), vars(trained).values(), strict=True)) <= 1:
        return f"rounding to {_whole(c.fit.preparation)} at ({int(at.left)}, {int(at.top)})"
    inside, cover = (pick(net.width / image.width, net.height / image.height) for pick in (min, max))
    for ratio, name in ((inside, "a letterbox"), (cover, "a crop")):
        if abs(at.width - image.width * ratio) <= 1 and abs(at.height - image.height * ratio) <= 1:
            return f"{name} {_corner(at, net)}".strip()
    ratio = at.width / image.width
    if (
        at.width >= net.width - 1
        and at.height >= net.height - 1
        and abs(at.height - image.height * ratio) <= 1.5
    ):
        return f"a crop of an image resized to {_whole(c.fit.preparation)}"
    return f"resizing to {_whole(c.fit.preparation)} at ({int(at.left)}, {int(at.top)})"


def _corner(at: Placement, net: Size) -> str:
    left, top, width, height = vars(at).values()
    spaces = net.width - width, net.height - height
    shares = {
        round(2 * start / space) / 2
        for start, space in zip((left, top), spaces, strict=True)
        if abs(space) > 1
    }
    names = {0.0: "in the corner", 0.5: "in the centre", 1.0: "at the right or bottom"}
    return names.get(shares.pop(), "") if len(shares) == 1 else ""


def _finer(c: Comparison) -> Iterator[Cause]:
    prep, want = c.fit.preparation, c.expected
    names = {"resize": "resizes", "decode": "decodes", "colour": "converts colours"}
    for kind, verb in names.items():
        fed, wanted = getattr(prep, kind), getattr(want, kind)
        if fed != wanted:
            yield Cause(
                kind,
                f"The target {verb} like {kind}={fed}; the model was trained with {kind}={wanted}.",
                f"Use {wanted}, or measure the loss with --deploy {kind}={fed}.",
                definite=False,
            )

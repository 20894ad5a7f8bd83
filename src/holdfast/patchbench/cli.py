"""`holdfast patchbench make` and `check`: the benchmark of a patch at any position."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.config.output import say
from holdfast.patchbench.options import CheckOptions, MakeOptions

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from holdfast.core.patch import Patch
    from holdfast.core.types import Size
    from holdfast.patchbench.make import Plan


def make(options: MakeOptions) -> None:
    """Make the benchmark: networks with the patch, the IoU and the class test inside, and specifications.

    The patch's left upper corner may be at any column and row at which it lies wholly in the picture.
    """
    from holdfast.data.open import open_dataset
    from holdfast.engine.progress import progress
    from holdfast.evaluate.classes import align
    from holdfast.graph.load import load_model
    from holdfast.patchbench.graph import check_single
    from holdfast.patchbench.make import BLACK, FREE, Plan
    from holdfast.patchbench.make import make as make_bench

    model = load_model(options.model, options.card)
    check_single(model)
    content = options.content
    patches = _patches(options.patch, content)
    data = open_dataset(options.data, task="single", format=options.format, split=options.split)
    common = options.classes == "common"
    plan = Plan(
        model=model,
        data=data,
        alignment=align(model.card.classes, data.classes, common=common, renames=options.map),
        patches=patches,
        told=content if content in (BLACK, FREE) else Path(content).name,
        images=options.images,
        seed=options.seed,
        strict=options.strict,
        held_out=options.held_out,
        places=_places(options.positions, content),
    )
    with progress("instances found", options.images) as step:
        manifest = make_bench(plan, options.folder, step)
    say(_summary(plan, manifest, options.folder))


def check(options: CheckOptions) -> int:
    """Check that networks, specifications, images and numpy agree, and say what a position really does.

    Exit code 0 means all is well, 1 that something was found, 2 bad input.
    """
    from holdfast.config.output import write_json
    from holdfast.engine.progress import progress
    from holdfast.patchbench.check import as_dict, check_bench
    from holdfast.patchbench.folder import listed

    bench = listed(options.folder)
    with progress("check", len(bench.rows)) as step:
        result = check_bench(bench, step)
    for fact in result.facts:
        say(fact)
    for finding in result.findings:
        say(f"FOUND  {finding}")
    say("all is well" if not result.findings else f"{len(result.findings)} findings")
    if options.json:
        write_json(options.json, as_dict(result))
    return 1 if result.findings else 0


def _patches(sides: tuple[int, ...], content: str) -> tuple[tuple[Size, Patch | None], ...]:
    """The size and the content of each patch; None: free."""
    from holdfast.core.errors import InputError
    from holdfast.core.types import Size
    from holdfast.patchbench.make import BLACK, FREE, black, scaled

    squares = [Size(side, side) for side in dict.fromkeys(sides or (3,))]
    if content == FREE:
        return tuple((size, None) for size in squares)
    if content == BLACK:
        return tuple((size, black(size)) for size in squares)
    patch = _read(content)
    if not patch.mask.any():
        raise InputError(f"--content: {content} is transparent everywhere; expected a patch that is seen")
    own = Size(patch.mask.shape[1], patch.mask.shape[0])
    return tuple((size, scaled(patch, size)) for size in squares) if sides else ((own, patch),)


def _read(content: str) -> Patch:
    """The patch of a file: a PNG's alpha is its mask, other pictures are solid."""
    import numpy as np

    from holdfast.core.errors import InputError
    from holdfast.core.patch import Patch
    from holdfast.data.patchfile import read_patch
    from holdfast.stages.decode.pillow import pillow

    path = Path(content)
    if not path.is_file():
        raise InputError(f"--content: expected black, free or the file of a picture, got {content!r}")
    if path.suffix.lower() in (".png", ".toml"):
        return read_patch(path)
    pixels = pillow(path.read_bytes())
    return Patch(pixels, np.ones(pixels.shape[:2], bool))


def _places(text: str | None, content: str) -> int | None:
    """How many places an image with free content has; None for all."""
    from holdfast.core.errors import InputError

    if text is None:
        return 4
    if content != "free":
        raise InputError("--positions says at how many places the content is free; add --content free")
    if text == "all":
        return None
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"--positions: expected a whole number from 1, or all, got {text!r}")
    return int(text)


def _summary(plan: Plan, manifest: Mapping[str, Any], folder: Path) -> str:
    selection, networks = manifest["selection"], manifest["networks"]
    count = sum(name.startswith("vnnlib/") for name in manifest["files"])
    lines = [
        f"{count} instances of {selection['images']} images written: {folder}",
        f"model      {plan.model.name}",
        f"test part  {selection['test_part']}",
        f"fitting    {selection['fitting']} of {selection['looked_at']} looked at: IoU > 0.5, right class",
    ]
    for name, facts in networks.items():
        (width, height), (_, last), (_, low) = facts["patch"], facts["columns"], facts["rows"]
        where = f"column 0 to {last}, row 0 to {low}"
        what = f"{width}×{height} {manifest['content']}"
        lines.append(
            f"{name}  {what}, {where}" + (", one instance a position" if manifest["free_places"] else "")
        )
    lines.append(f"rule       {manifest['rule']['text']}")
    return "\n".join(lines)

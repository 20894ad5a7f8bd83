"""`holdfast noise show`: what each noise does to one picture."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from holdfast.config import offers
from holdfast.config.args import Argument, Option
from holdfast.config.output import say
from holdfast.noise.cli import Only, Skip, Use, load_own, note_aliases, words_of
from holdfast.noise.output import check_file, check_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.noise.vision.show import Shown
    from holdfast.stages.families import Option as Choice


def show(
    image: Annotated[Path, Argument("A picture.")],
    model: Annotated[
        str | None, Option("Resize as this model is fed, and show its feature maps.", values=offers.models)
    ] = None,
    card: Annotated[Path | None, Option("The model's card, if it does not lie beside it.")] = None,
    calibration: Annotated[
        str | None, Option("Images to calibrate integer precisions on (else this one).", shown="DATA")
    ] = None,
    only: Only = (),
    skip: Skip = (),
    use: Use = (),
    folder: Annotated[Path | None, Option("Write every picture as PNG into this folder.")] = None,
    out: Annotated[Path, Option("The page to write.", short="-o")] = Path("noise.html"),
) -> int:
    """See what each noise does to a picture: before, after, and the difference stretched to 0 … 255."""
    from holdfast.core.errors import ImageError, InputError
    from holdfast.data.open import open_dataset
    from holdfast.graph.load import load_model
    from holdfast.noise.vision.choose import Wanted
    from holdfast.noise.vision.pictures import shown_table, write
    from holdfast.noise.vision.show import features, shown
    from holdfast.report.tables import to_text

    load_own(use)
    wanted = Wanted(words_of(only), words_of(skip))
    wanted.check()
    note_aliases((*wanted.only, *wanted.skip))
    check_file("--out", out, "noise.html")
    if folder:
        check_folder("--folder", folder)
    data = _read(image)
    loaded = load_model(model, card) if model else None
    try:
        made = list(shown(data, loaded, wanted))
    except ImageError as problem:
        raise InputError(f"{image}: {problem}") from problem
    images = open_dataset(calibration, images=100).entries if calibration else ()
    maps = list(features(loaded, data, wanted, images)) if loaded else []
    if not made and not maps:
        hint = "" if loaded else "; what changes the graph needs --model"
        raise InputError(f"nothing to show: no noise asked for changes a picture or a feature map{hint}")
    say(to_text(shown_table(made, maps)))
    if folder:
        _save(made, folder)
    command = shlex.join(["holdfast", *sys.argv[1:]])
    say(f"page: {write(made, maps, image.name, out, command).resolve()}")
    return 0


def _read(image: Path) -> bytes:
    from holdfast.core.errors import InputError

    try:
        return image.read_bytes()
    except OSError as problem:
        raise InputError(f"{image}: cannot be read: {problem.strerror}; expected a picture") from problem


def _save(made: Sequence[Shown | tuple[Choice, str]], folder: Path) -> None:
    import io

    from PIL import Image as Pillow

    from holdfast.engine.store import write_atomic

    for one in made:
        if isinstance(one, tuple):
            continue
        for what in ("original", "noised", "difference"):
            out = io.BytesIO()
            Pillow.fromarray(getattr(one, what)).save(out, "PNG")
            name = one.option.label.replace("=", "-")
            write_atomic(folder / f"{name}-{what}.png", out.getvalue(), durable=False)

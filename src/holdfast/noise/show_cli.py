"""`holdfast noise show`: what each noise does to one picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.config.output import check_outputs, say
from holdfast.config.parser import command_line
from holdfast.noise.cli import load_own, note_aliases
from holdfast.noise.options import ShowOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.noise.vision.show import Shown
    from holdfast.stages.families import Option as Choice


def show(options: ShowOptions) -> int:
    """See what each noise does to a picture: before, after, and the difference stretched to 0 … 255."""
    from holdfast.core.errors import ImageError, InputError
    from holdfast.data.open import open_dataset
    from holdfast.graph.load import load_model
    from holdfast.noise.vision.choose import Wanted
    from holdfast.noise.vision.show import features, shown, shown_table, write
    from holdfast.report.tables import to_text

    load_own(options.use)
    wanted = Wanted(options.only, options.skip)
    wanted.check()
    note_aliases((*wanted.only, *wanted.skip))
    check_outputs({"--out": options.out}, {"--folder": options.folder})
    image, data = options.image, _read(options.image)
    loaded = load_model(options.model, options.card) if options.model else None
    try:
        made = list(shown(data, loaded, wanted))
    except ImageError as problem:
        raise InputError(f"{image}: {problem}") from problem
    images = open_dataset(options.calibration, images=100).entries if options.calibration else ()
    maps = list(features(loaded, data, wanted, images)) if loaded else []
    if not made and not maps:
        hint = "" if loaded else "; what changes the graph needs --model"
        raise InputError(f"nothing to show: no noise asked for changes a picture or a feature map{hint}")
    say(to_text(shown_table(made, maps)))
    if options.folder:
        _save(made, options.folder)
    say(f"page: {write(made, maps, image.name, options.out, command_line(options)).resolve()}")
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

"""`holdfast patchbench evaluate`: the output at every position of a patch, and which are unsafe."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from holdfast.config import offers
from holdfast.config.args import Argument, Option
from holdfast.config.output import say

IMAGES = 16  # of a data set, unless told
if TYPE_CHECKING:
    from holdfast.core.patch import Patch
    from holdfast.patchbench.run import Result


def evaluate(
    subject: Annotated[
        str,
        Argument("A benchmark folder (with instances.csv), or a single-object model.", values=offers.models),
    ],
    data: Annotated[
        str | None, Argument("For a model: a data set, or signs, the embedded one.", values=offers.data_sets)
    ] = None,
    patch: Annotated[int | None, Option("For a model: rows and columns of the patch (3).", least=1)] = None,
    content: Annotated[
        str | None, Option("For a model: black, or a PNG (its alpha is the mask).", shown="black|FILE")
    ] = None,
    strict: Annotated[bool, Option("For a model: unsafe is below 0.5, not 0.5 itself.")] = False,
    card: Annotated[Path | None, Option("The model's card, if it does not lie beside it.")] = None,
    images: Annotated[int | None, Option("At most so many images (16) or instances (all).", least=1)] = None,
    out: Annotated[Path | None, Option("Write the maps as a page.", short="-o", shown="PAGE")] = None,
    json: Annotated[Path | None, Option("Write all maps to this JSON file.")] = None,
    jobs: Annotated[int, Option("Threads; 0: one a core.", least=0)] = 0,
) -> int:
    """Run a patch at every position, exactly: the output there, the unsafe ones, the robust area.

    The output is iou(prediction, target) × [class equal]; the target is what the model says without the
    patch. A folder's networks are run as they are; where their position does something else than place the
    patch, what is described is run as well.
    """
    from holdfast.core.errors import InputError
    from holdfast.engine.executor import cores

    for path in (out, json):
        if path is not None and path.is_dir():
            raise InputError(f"{path}: is a folder; give the name of a file in it")
    threads = jobs or cores()
    if (Path(subject) / "instances.csv").is_file():
        given = {
            "DATA": data,
            "--patch": patch,
            "--content": content,
            "--card": card,
            "--strict": strict or None,
        }
        if told := [name for name, value in given.items() if value is not None]:
            raise InputError(f"{', '.join(told)}: a benchmark folder says this itself; leave it out")
        result = _bench(Path(subject), images, threads)
    else:
        result = _model(
            subject, data, _patch(patch, content), content or "black", card, images, strict, threads
        )
    return _tell(result, out, json)


def _tell(result: Result, out: Path | None, json: Path | None) -> int:
    """The exit code after all was printed and written: 0 if there is a map, else 2."""
    from holdfast.patchbench.page import rule_of, summary, table_of, write
    from holdfast.report.tables import to_text

    say(to_text(table_of(result)))
    for kind in result.kinds:
        say(summary(result, kind))
    for one in result.pictures:
        if one.trouble:
            say(f"{one.name}: {one.trouble}")
    say(rule_of(result))
    if json is not None:
        from holdfast.config.output import write_json
        from holdfast.patchbench.run import as_dict

        write_json(json, as_dict(result))
    if out is not None:
        say(f"page: {write(result, out, shlex.join(['holdfast', *sys.argv[1:]])).resolve()}")
    return 0 if any(one.maps for one in result.pictures) else 2


def _bench(folder: Path, images: int | None, jobs: int) -> Result:
    from holdfast.engine.progress import progress
    from holdfast.patchbench.folder import open_bench
    from holdfast.patchbench.run import evaluate_bench

    bench = open_bench(folder)
    with progress("positions", min(len(bench.rows), images or len(bench.rows))) as step:
        return evaluate_bench(bench, images=images, jobs=jobs, step=step)


def _model(
    subject: str, data: str | None, patch: Patch, content: str, card: Path | None, images: int | None,
    strict: bool, jobs: int,
) -> Result:  # fmt: skip
    from holdfast.core.errors import InputError
    from holdfast.data.open import open_dataset
    from holdfast.engine.progress import progress
    from holdfast.graph.load import load_model
    from holdfast.patchbench.positions.sweep import Bar
    from holdfast.patchbench.run import evaluate_model

    if Path(subject).is_dir():
        raise InputError(
            f"{subject}: expected a benchmark folder with instances.csv in it, got none; make one: "
            "holdfast patchbench make DIR"
        )
    model = load_model(subject, card)
    if data is None:
        raise InputError(f"expected a data set behind {subject} (such as signs, the embedded one)")
    found = open_dataset(data, task="single", images=images)
    found = found if images else found.first(IMAGES)
    with progress("positions", len(found)) as step:
        named = f"{content} {patch.mask.shape[1]}×{patch.mask.shape[0]}"
        return evaluate_model(model, found, patch, bar=Bar(0.5, strict), jobs=jobs, content=named, step=step)


def _patch(side: int | None, content: str | None) -> Patch:
    """The patch: a black square of a size, or the PNG of one."""
    from holdfast.core.errors import InputError
    from holdfast.core.types import Size
    from holdfast.data.patchfile import read_patch
    from holdfast.patchbench.make import black

    if content in (None, "black"):
        return black(Size(side or 3, side or 3))
    if Path(str(content)).suffix.lower() not in (".png", ".toml"):
        raise InputError(f"--content: expected black or the PNG of a patch, got {content!r}")
    patch = read_patch(Path(str(content)))
    height, width = patch.mask.shape
    if side is not None and (side, side) != (height, width):
        raise InputError(f"--patch {side}: {content} is {width}×{height} pixels; leave --patch away")
    if not patch.mask.any():
        raise InputError(f"--content: {content} is transparent everywhere; expected a patch that is seen")
    return patch

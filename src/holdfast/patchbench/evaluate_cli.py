"""`holdfast patchbench evaluate`: the output at every position of a patch, and which are unsafe."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.config.options import changed, field_of
from holdfast.config.output import check_outputs, say
from holdfast.config.parser import command_line
from holdfast.patchbench.options import PositionOptions

IMAGES = 16  # of a dataset, unless --images says otherwise
MODEL_ONLY = ("data", "patch", "content", "card", "strict")  # what a benchmark folder says itself
if TYPE_CHECKING:
    from holdfast.core.patch import Patch
    from holdfast.patchbench.run import Result


def evaluate(options: PositionOptions) -> int:
    """Run a patch at every position, exactly: the output there, the unsafe ones, the robust area.

    The output is iou(prediction, target) × [class equal]; the target is what the model says without the
    patch. A folder's networks are run as they are; where their position does something else than place the
    patch, what is described is run as well.
    """
    from holdfast.core.errors import InputError

    check_outputs({"--out": options.out, "--json": options.json}, {})
    if (Path(options.subject) / "instances.csv").is_file():
        given = [field_of(PositionOptions, name).label for name in changed(options) if name in MODEL_ONLY]
        if given:
            raise InputError(f"{', '.join(given)}: a benchmark folder says this itself; leave it out")
        return _tell(_bench(options), options)
    return _tell(_model(options), options)


def _tell(result: Result, options: PositionOptions) -> int:
    """Print and write the result, and return the exit code: 0 if there is a map, else 2."""
    from holdfast.patchbench.page import rule_of, summary, table_of, write
    from holdfast.report.tables import to_text

    say(to_text(table_of(result)))
    for kind in result.kinds:
        say(summary(result, kind))
    for one in result.pictures:
        if one.trouble:
            say(f"{one.name}: {one.trouble}")
    say(rule_of(result))
    if options.json is not None:
        from holdfast.config.output import write_json
        from holdfast.patchbench.run import as_dict

        write_json(options.json, as_dict(result))
    if options.out is not None:
        say(f"page: {write(result, options.out, command_line(options)).resolve()}")
    return 0 if any(one.maps for one in result.pictures) else 2


def _bench(options: PositionOptions) -> Result:
    from holdfast.engine.executor import cores
    from holdfast.engine.progress import progress
    from holdfast.patchbench.folder import open_bench
    from holdfast.patchbench.run import evaluate_bench

    bench, images = open_bench(Path(options.subject)), options.images
    with progress("positions", min(len(bench.rows), images or len(bench.rows))) as step:
        return evaluate_bench(bench, images=images, jobs=options.jobs or cores(), step=step)


def _model(options: PositionOptions) -> Result:
    from holdfast.core.errors import InputError
    from holdfast.data.open import open_dataset
    from holdfast.engine.executor import cores
    from holdfast.engine.progress import progress
    from holdfast.graph.load import load_model
    from holdfast.patchbench.positions.sweep import Bar
    from holdfast.patchbench.run import evaluate_model

    subject, images = options.subject, options.images
    if Path(subject).is_dir():
        raise InputError(
            f"{subject}: expected a benchmark folder with instances.csv in it, got none; make one: "
            "holdfast patchbench make DIR"
        )
    patch = _patch(options.patch, options.content)
    model = load_model(subject, options.card)
    if options.data is None:
        raise InputError(f"expected a dataset after {subject} (such as signs, the embedded one)")
    found = open_dataset(options.data, task="single", images=images)
    found = found if images else found.first(IMAGES)
    with progress("positions", len(found)) as step:
        return evaluate_model(
            model,
            found,
            patch,
            bar=Bar(0.5, options.strict),
            jobs=options.jobs or cores(),
            content=f"{options.content or 'black'} {patch.mask.shape[1]}×{patch.mask.shape[0]}",
            step=step,
        )


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

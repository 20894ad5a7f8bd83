"""`holdfast patchbench`: create and check patch benchmarks, and run a patch at every position."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.config.options import changed, field_of
from holdfast.config.output import check_outputs, say
from holdfast.config.parser import command_line
from holdfast.core.errors import InputError
from holdfast.patchbench.options import (
    CertifyPositionsOptions,
    CheckOptions,
    MakeOptions,
    PositionOptions,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from typing import Any, TypeAlias

    from holdfast.core.patch import Patch
    from holdfast.core.types import Size
    from holdfast.engine.executor import Progress
    from holdfast.patchbench.certify import CertificationResult
    from holdfast.patchbench.run import PositionResult

    Watch: TypeAlias = Callable[..., AbstractContextManager[Progress]]

IMAGES = 16  # of a dataset, without --images
MODEL_ONLY = ("data", "patch", "content", "card", "strict")  # defined by a benchmark folder
PATCH_FILES = (".png", ".toml")


def make(options: MakeOptions) -> None:
    """Create a benchmark: networks that include the patch, the IoU and the class test, and specifications.

    The top left corner of the patch may be at any column and row where the patch is inside the image.
    """
    from holdfast.engine.executor import progress

    say(_summary(make_benchmark(options, progress), options.folder))


def make_benchmark(options: MakeOptions, watch: Watch) -> Mapping[str, Any]:
    """Make the benchmark and return its manifest."""
    from holdfast.data.open import open_dataset
    from holdfast.evaluate.classes import align
    from holdfast.graph.load import load_model
    from holdfast.patchbench.graph import check_single
    from holdfast.patchbench.make import BenchmarkPlan
    from holdfast.patchbench.make import make as make_bench

    model = load_model(options.model, options.card)
    check_single(model)
    patches = _patches(options.patch, options.content)
    data = open_dataset(options.data, task="single", format=options.format, split=options.split)
    common = options.classes == "common"
    alignment = align(model.card.classes, data.classes, common=common, renames=options.map)
    places: int | None = 4  # per image with free content; None: all
    if (text := options.positions) is not None:
        if options.content != "free":
            raise InputError("--positions needs --content free")
        if text != "all" and (not text.isdecimal() or int(text) < 1):
            raise InputError(f"--positions: expected an integer of 1 or more, or all, got {text!r}")
        places = None if text == "all" else int(text)
    plan = BenchmarkPlan(model, data, alignment, patches, options, places=places)
    with watch("instances found", options.images) as step:
        return make_bench(plan, step)


def check(options: CheckOptions) -> int:
    """Check that networks, specifications, images and NumPy agree, and report what a position does.

    Exit code 0: no problems. 1: problems found. 2: bad input.
    """
    from holdfast.config.output import write_json
    from holdfast.engine.executor import progress
    from holdfast.patchbench.check import as_dict, check_bench
    from holdfast.patchbench.folder import listed

    bench = listed(options.folder)
    with progress("check", len(bench.rows)) as step:
        result = check_bench(bench, step)
    for fact in result.facts:
        say(fact)
    for finding in result.findings:
        say(f"PROBLEM  {finding}")
    say(f"{len(result.findings)} problems" if result.findings else "no problems")
    if options.json:
        write_json(options.json, as_dict(result))
    return 1 if result.findings else 0


def evaluate(options: PositionOptions) -> int:
    """Run a patch at every position exactly: outputs, unsafe positions, robust area.

    The output is iou(prediction, target) × [class equal]; the target is the prediction without the patch.
    Networks of a benchmark folder run as they are. If their position input does not place the patch as
    described, the described patch is run as well.
    """
    from holdfast.config.output import write_json
    from holdfast.engine.executor import progress
    from holdfast.patchbench.page import page, rule_of, summary, table_of
    from holdfast.patchbench.run import as_dict
    from holdfast.report.html import document, write_page
    from holdfast.report.tables import to_text

    check_outputs({"--out": options.out, "--json": options.json}, {})
    result = evaluate_positions(options, progress)
    say(to_text(table_of(result)))
    for kind in result.kinds:
        say(summary(result, kind))
    for image in result.pictures:
        if image.trouble:
            say(f"{image.name}: {image.trouble}")
    say(rule_of(result))
    if options.json is not None:
        write_json(options.json, as_dict(result))
    if options.out is not None:
        html = document(page(result, command_line(options)))
        say(f"page: {write_page(html, options.out, 'positions.html').resolve()}")
    return 0 if any(image.maps for image in result.pictures) else 2


def certify(options: CertifyPositionsOptions) -> int:
    """Prove at every position of a patch that no content makes the detector lose the object.

    Bounds over all contents decide most positions of a network that was trained for it (signs-certified). An
    attack, and then splitting, decide others within the time. Each position ends as certified, violated (a
    content was replayed on the file) or unknown. Exit code 4: finished, but some images failed.
    """
    from holdfast.config.output import write_json
    from holdfast.core.extras import check as check_extra
    from holdfast.engine.executor import progress
    from holdfast.patchbench.certified_page import page, rule_of, summary, table_of
    from holdfast.patchbench.certify import as_dict
    from holdfast.report.html import document, write_page
    from holdfast.report.tables import to_text

    check_outputs({"--out": options.out, "--json": options.json}, {})
    check_extra("a proof", "torch", extra="verify")
    result = certify_subject(options, progress)
    failed = [image for image in result.images if image.trouble]
    if result.positions:
        say(to_text(table_of(result)))
        say(summary(result))
    for image in failed:
        say(f"{image.name}: {image.trouble}")
    say(rule_of(result))
    if options.json is not None:
        write_json(options.json, as_dict(result))
    if options.out is not None:
        html = document(page(result, command_line(options)))
        say(f"page: {write_page(html, options.out, 'certified.html').resolve()}")
    return 4 if failed else 0


def certify_subject(options: CertifyPositionsOptions, watch: Watch) -> CertificationResult:
    """Decide the positions of a benchmark folder, or of a model and a dataset."""
    from holdfast.core.property import Budget
    from holdfast.data.open import open_dataset
    from holdfast.engine.executor import cores
    from holdfast.graph.load import load_model
    from holdfast.patchbench.certify import CertificationPlan, certify_bench, certify_model
    from holdfast.patchbench.folder import open_benchmark
    from holdfast.patchbench.graph import check_single
    from holdfast.patchbench.positions.sweep import SafetyRule

    budget = Budget(options.seconds, jobs=options.jobs or cores(), seed=options.seed)
    rule = SafetyRule(0.5, options.strict)
    plan = CertificationPlan(options.patch, rule, budget, options.split_seconds)
    if Path(options.subject).is_dir():
        if options.data is not None or options.card is not None:
            raise InputError(
                f"{options.subject}: a benchmark folder defines its images; omit DATA and --card"
            )
        bench = open_benchmark(Path(options.subject))
        with watch("certify", min(len(bench.rows), options.images or len(bench.rows))) as step:
            return certify_bench(bench, plan, options.images, step)
    model = load_model(options.subject, options.card)
    check_single(model)
    if options.data is None:
        raise InputError(f"expected a dataset after {options.subject}, such as signs (embedded)")
    images = options.images
    data = open_dataset(
        options.data, task="single", format=options.format, split=options.split, images=images
    )
    data = data if images else data.first(IMAGES)
    with watch("certify", len(data)) as step:
        return certify_model(model, data, plan, step)


def evaluate_positions(options: PositionOptions, watch: Watch) -> PositionResult:
    """Run the patch at every position of a benchmark folder, or of a model and a dataset."""
    from holdfast.data.open import open_dataset
    from holdfast.engine.executor import cores
    from holdfast.graph.load import load_model
    from holdfast.patchbench.folder import open_benchmark
    from holdfast.patchbench.positions.sweep import SafetyRule
    from holdfast.patchbench.run import evaluate_bench, evaluate_model

    subject, images, jobs = options.subject, options.images, options.jobs or cores()
    if Path(subject).is_dir():
        bench = open_benchmark(Path(subject))
        labels = [field_of(PositionOptions, name).label for name in changed(options) if name in MODEL_ONLY]
        if labels:
            given = ", ".join(labels)
            raise InputError(f"{given}: not valid for a benchmark folder, which defines it; omit it")
        with watch("positions", min(len(bench.rows), images or len(bench.rows))) as step:
            return evaluate_bench(bench, images=images, jobs=jobs, step=step)
    patch = _patch(options.patch, options.content or "black")
    model = load_model(subject, options.card)
    if options.data is None:
        raise InputError(f"expected a dataset after {subject}, such as signs (embedded)")
    data = open_dataset(options.data, task="single", images=images)
    data = data if images else data.first(IMAGES)
    content = f"{options.content or 'black'} {patch.mask.shape[1]}×{patch.mask.shape[0]}"
    bar = SafetyRule(0.5, options.strict)
    with watch("positions", len(data)) as step:
        return evaluate_model(model, data, patch, bar=bar, jobs=jobs, content=content, step=step)


def _patch(side: int | None, content: str) -> Patch:
    """The patch of an evaluation: a black square of a size, or the PNG of one."""
    from holdfast.core.types import Size
    from holdfast.patchbench.make import BLACK, black

    if content == BLACK:
        return black(Size(side or 3, side or 3))
    if Path(content).suffix.lower() not in PATCH_FILES:
        raise InputError(f"--content: expected black or the PNG of a patch, got {content!r}")
    patch = _read(content)
    height, width = patch.mask.shape
    if side is not None and (side, side) != (height, width):
        raise InputError(f"--patch {side}: {content} is {width}×{height} pixels; omit --patch")
    return patch


def _patches(sides: tuple[int, ...], content: str) -> tuple[tuple[Size, Patch | None], ...]:
    """The size and the content of each patch of a benchmark; None: free."""
    from holdfast.core.types import Size
    from holdfast.patchbench.make import BLACK, FREE, black, scaled

    squares = [Size(side, side) for side in dict.fromkeys(sides or (3,))]
    if content in (BLACK, FREE):
        return tuple((size, black(size) if content == BLACK else None) for size in squares)
    if not Path(content).is_file():
        raise InputError(f"--content: expected black, free or an image file, got {content!r}")
    patch = _read(content)
    native = Size(patch.mask.shape[1], patch.mask.shape[0])
    return tuple((size, scaled(patch, size)) for size in squares) if sides else ((native, patch),)


def _read(content: str) -> Patch:
    """The patch of a file: a PNG's alpha is its mask, other pictures are solid."""
    import numpy as np

    from holdfast.core.patch import Patch
    from holdfast.data.patchfile import read_patch
    from holdfast.stages.decode.libjpeg import pillow

    path = Path(content)
    if path.suffix.lower() not in PATCH_FILES:
        pixels = pillow(path.read_bytes())
        return Patch(pixels, np.ones(pixels.shape[:2], bool))
    patch = read_patch(path)
    if not patch.mask.any():
        raise InputError(f"--content: {content} is completely transparent")
    return patch


def _summary(manifest: Mapping[str, Any], folder: Path) -> str:
    selection = manifest["selection"]
    count = sum(name.startswith("vnnlib/") for name in manifest["files"])
    per_position = ", one instance per position" if manifest["free_places"] else ""
    lines = [
        f"{count} instances of {selection['images']} images written: {folder}",
        f"model      {manifest['model']['name']}",
        f"test part  {selection['test_part']}",
        f"suitable   {selection['fitting']} of {selection['looked_at']} images: IoU > 0.5, right class",
    ]
    for name, facts in manifest["networks"].items():
        (width, height), (_, last), (_, low) = facts["patch"], facts["columns"], facts["rows"]
        patch = f"{width}×{height} {manifest['content']}"
        lines.append(f"{name}  {patch}, column 0 to {last}, row 0 to {low}{per_position}")
    return "\n".join([*lines, f"rule       {manifest['rule']['text']}"])

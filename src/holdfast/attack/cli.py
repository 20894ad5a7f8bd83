"""`holdfast attack` and `holdfast patch`: attack every image, and apply a patch to images."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.attack.options import ApplyOptions, AttackOptions, AttackSettings
from holdfast.config.options import carry
from holdfast.config.output import say
from holdfast.config.parser import command_line
from holdfast.core.errors import DataError, ImageError, InputError
from holdfast.evaluate.options import EvaluationOptions

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from holdfast.attack.plan import AttackPlan
    from holdfast.attack.result import AttackResult
    from holdfast.engine.executor import Progress
    from holdfast.evaluate.run import EvaluationPlan

    Watch = Callable[..., AbstractContextManager[Progress]]


def attack(options: AttackOptions) -> int:
    """Attack a detector by changing few pixels of every image; the model file is never changed.

    Writes images/ (attacked PNGs), patches/ (PNG + TOML), attack.json, images.csv and report.html to DIR.
    Run the same command again to resume. Exit code 4: some images could not be read.
    """
    from holdfast.attack.page import tables, write
    from holdfast.attack.plan import check_attack
    from holdfast.attack.run import as_plain, decoded
    from holdfast.config.output import write_json
    from holdfast.core.model import MODEL_KINDS
    from holdfast.engine.executor import progress
    from holdfast.evaluate.run import evaluation_plan
    from holdfast.graph.load import load_model
    from holdfast.report.tables import to_text

    task = load_model(options.model, options.card).card.task
    if task not in ("detect", "single"):  # before the dataset is read, which would be the wrong error
        raise InputError(f"{options.model}: expected a detector, got a {MODEL_KINDS[task]}")
    evaluation = evaluation_plan(carry(options, EvaluationOptions), command=command_line(options))
    plan = attack_plan(evaluation, options, options.out, options.seed)
    check_attack(plan)
    for reason in evaluation.model.guessed:
        sys.stderr.write(f"guessed  {reason}\n")
    outcome = run_attack(plan, options.contiguous, progress)
    if options.json:
        write_json(options.json, as_plain(outcome))
    say("\n\n".join(to_text(table) for table in tables(outcome)))
    if options.page:
        say(f"report: {write(outcome, decoded(evaluation), plan.out / 'report.html').resolve()}")
    for failure in outcome.failed[:20]:
        sys.stderr.write(f"failed   {failure}\n")
    sys.stderr.write(f"images   {plan.out / 'images'}\n")
    return 4 if outcome.failed else 0


def run_attack(plan: AttackPlan, contiguous: bool, watch: Watch) -> AttackResult:
    """Run the attack: first the universal patch, if any, and last the attack with contiguous squares."""
    from holdfast.attack.plan import is_scattered
    from holdfast.attack.run import add_contiguous
    from holdfast.attack.run import attack as run
    from holdfast.attack.universal import make_universal

    patch, images = None, len(plan.plan.dataset)
    if plan.universal != "none":
        with watch("universal patch", plan.limits.steps * plan.limits.restarts, "steps") as step:
            patch = make_universal(plan, step)
    with watch("attack", images) as step:
        result = run(plan, step, patch)
    if contiguous and is_scattered(plan):
        with watch("contiguous squares", images) as step:
            result = add_contiguous(result, plan, step)
    return result


def attack_plan(plan: EvaluationPlan, options: AttackSettings, out: Path, seed: int) -> AttackPlan:
    """The plan of an attack on the model and dataset of `plan`."""
    from holdfast.attack.plan import AttackPlan
    from holdfast.attack.types import Limits, Method, Rule
    from holdfast.graph.load import load_model

    return AttackPlan(
        plan,
        out,
        method=Method(
            mask=options.mask,
            inside=not options.anywhere,
            goal=options.goal,
            black_box=options.black_box,
            shrink=options.shrink,
            transforms=options.transform,
            diversity=options.diverse,
            rule=Rule(options.score, options.iou, options.nms_iou),
        ),
        limits=Limits(**{field.name: getattr(options, field.name) for field in dataclasses.fields(Limits)}),
        seed=seed,
        surrogates=tuple(map(load_model, options.surrogate)),
        deployments=options.deployment,
        unseen=tuple(map(load_model, options.unseen)),
        features=options.features,
        universal=options.universal,
    )


def apply(options: ApplyOptions) -> None:
    """Apply a patch to an image or to every image of a folder; the result is lossless PNG."""
    import numpy as np

    from holdfast.core.patch import OnBoxes, Position, changed_pixels
    from holdfast.core.patch import apply as apply_patch
    from holdfast.data.patchfile import png_of, read_patch
    from holdfast.engine.store import write_atomic
    from holdfast.stages.decode.libjpeg import pillow

    boxes = np.array([_numbers(box, 4, "--box") for box in options.box]).reshape(-1, 4)
    patch = read_patch(options.patch)
    if options.at is not None:
        x, y = _numbers(options.at, 2, "--at")
        patch = dataclasses.replace(patch, where=Position(round(x), round(y)))
    if isinstance(patch.where, OnBoxes) and not len(boxes):
        raise InputError(
            "this patch is applied to boxes: give --box X1,Y1,X2,Y2, or --at X,Y to apply it at one position"
        )
    if len(boxes) and not isinstance(patch.where, OnBoxes):
        raise InputError("--box: this patch has a fixed position; omit --box")
    lines = []
    for path, target in _pairs(options.image, options.out):
        try:
            clean = pillow(path.read_bytes())
        except ImageError as problem:
            raise DataError(f"{path}: {problem}") from problem
        image = apply_patch(clean, patch, boxes)
        write_atomic(target, png_of(image), durable=False)
        lines.append(f"{target}: {changed_pixels(clean, image)} pixels changed")
    say("\n".join(lines))


def _pairs(source: Path, out: Path) -> list[tuple[Path, Path]]:
    from holdfast.data.images import SUFFIXES

    if source.is_file():
        if out.suffix.lower() != ".png":
            raise InputError(f"--out {out}: expected the name of a PNG file, which is lossless")
        return [(source, out)]
    if not source.is_dir():
        raise DataError(f"{source}: no such image or folder")
    paths = sorted(p for p in source.iterdir() if p.suffix.lower() in SUFFIXES and p.is_file())
    if not paths:
        raise DataError(f"{source}: expected images, found none")
    return [(path, out / f"{path.stem}.png") for path in paths]


def _numbers(text: str, count: int, option: str) -> tuple[float, ...]:
    try:
        values = tuple(float(word) for word in text.split(","))
    except ValueError:
        values = ()
    if len(values) != count or not all(abs(v) < 1e9 for v in values):
        raise InputError(f"{option}: expected {count} comma-separated numbers, got {text!r}")
    return values

"""`holdfast attack` and `holdfast patch`: few pixels on every image, and a patch over images."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.attack.options import ApplyOptions, AttackOptions, AttackSettings
from holdfast.config.options import carry
from holdfast.config.output import say
from holdfast.config.parser import command_line
from holdfast.evaluate.options import EvaluationOptions

if TYPE_CHECKING:
    from holdfast.attack.plan import AttackPlan
    from holdfast.attack.result import Outcome
    from holdfast.evaluate.run import Plan


def attack(options: AttackOptions) -> int:
    """Attack a detector with few pixels on every image; the model itself is never changed.

    DIR gets images/ (attacked PNGs), patches/ (PNG + TOML), attack.json, images.csv and report.html.
    Runs are resumable: the same command continues. Exit code 4: some images could not be read.
    """
    from holdfast.evaluate.cli import plan_of

    _check_detector(options.model, options.card)
    plan = plan_of(carry(options, EvaluationOptions), command=command_line(options))
    wanted = attack_plan(plan, options, options.out, options.seed)
    return _show(run_attack(wanted), wanted, options)


def attack_plan(plan: Plan, options: AttackSettings, out: Path, seed: int) -> AttackPlan:
    """The plan of an attack on what `plan` evaluates."""
    from holdfast.attack.plan import AttackPlan
    from holdfast.attack.types import Limits, Method, Rule
    from holdfast.graph.load import load_model

    method = Method(
        mask=options.mask,
        inside=not options.anywhere,
        goal=options.goal,
        black_box=options.black_box,
        shrink=options.shrink,
        transforms=options.transform,
        diversity=options.diverse,
        rule=Rule(options.score, options.iou, options.nms_iou),
    )
    limits = Limits(**{field.name: getattr(options, field.name) for field in dataclasses.fields(Limits)})
    return AttackPlan(
        plan,
        out,
        method=method,
        limits=limits,
        seed=seed,
        surrogates=tuple(map(load_model, options.surrogate)),
        deployments=options.deployment,
        unseen=tuple(map(load_model, options.unseen)),
        features=options.features,
        universal=options.universal,
    )


def _check_detector(model: str, card: Path | None) -> None:
    from holdfast.core.errors import InputError
    from holdfast.graph.load import load_model

    task = load_model(model, card).card.task
    if task not in ("detect", "single"):  # before the data is looked at: that would be the wrong complaint
        raise InputError(f"{model}: expected a detector, got a model to {task}")


def run_attack(wanted: AttackPlan) -> Outcome:
    """The outcome, with progress on standard error; a universal patch is searched first."""
    from holdfast.attack.plan import check_attack
    from holdfast.attack.run import attack as run
    from holdfast.attack.universal import make_universal
    from holdfast.engine.progress import progress

    check_attack(wanted)
    for reason in wanted.plan.model.guessed:
        sys.stderr.write(f"guessed  {reason}\n")
    patch = None
    if wanted.universal != "none":
        with progress("universal patch", wanted.limits.steps * wanted.limits.restarts, "steps") as step:
            patch = make_universal(wanted, step)
    with progress("attack", len(wanted.plan.dataset)) as step:
        return run(wanted, step, patch)


def _show(found: Outcome, wanted: AttackPlan, options: AttackOptions) -> int:
    from holdfast.attack.page import tables, write
    from holdfast.attack.run import as_plain, decoded
    from holdfast.config.output import write_json
    from holdfast.report.tables import to_text

    if options.json:
        write_json(options.json, as_plain(found))
    say("\n\n".join(to_text(table) for table in tables(found)))
    if options.page:
        say(f"report: {write(found, decoded(wanted.plan), wanted.out / 'report.html').resolve()}")
    for failure in found.failed[:20]:
        sys.stderr.write(f"failed   {failure}\n")
    sys.stderr.write(f"images   {wanted.out / 'images'}\n")
    return 4 if found.failed else 0


def apply(options: ApplyOptions) -> None:
    """Lay a patch over an image or over every image of a folder; the result is PNG, without any loss."""
    from holdfast.attack.lay import lay
    from holdfast.data.patchfile import read_patch

    boxes = tuple(_numbers(box, 4, "--box") for box in options.box)
    at = None
    if options.at is not None:
        x, y = _numbers(options.at, 2, "--at")
        at = round(x), round(y)
    written = lay(read_patch(options.patch), options.image, options.out, boxes, at)
    say("\n".join(f"{path}: {pixels} pixels changed" for path, pixels in written))


def _numbers(text: str, count: int, option: str) -> tuple[float, ...]:
    from holdfast.core.errors import InputError

    try:
        values = tuple(float(word) for word in text.split(","))
    except ValueError:
        values = ()
    if len(values) != count or not all(abs(v) < 1e9 for v in values):
        raise InputError(f"{option}: expected {count} numbers with commas between them, got {text!r}")
    return values

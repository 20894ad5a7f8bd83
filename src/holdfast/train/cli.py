"""`holdfast train mix` and `tent`: classifiers made robust against system noise, or tried to."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.config.options import carry
from holdfast.config.output import say, write_json
from holdfast.config.parser import command_line
from holdfast.evaluate.cli import tell_about
from holdfast.evaluate.options import EvaluationOptions, SubjectOptions
from holdfast.noise.options import NoiseOptions
from holdfast.train.options import MixOptions, TentOptions

if TYPE_CHECKING:
    from holdfast.evaluate.run import Plan
    from holdfast.report.tables import Table
    from holdfast.train.run import Mixed, MixPlan
    from holdfast.train.shown import Choice


def mix(options: MixOptions) -> int:
    """Fine-tune a classifier on several decoders and resizes at once, drawn for each image (mix training).

    Without --decode and --resize three classes of decoders and the paper's six resizes are mixed; with one
    of them only that one. The graph stays as it is, its weights become others; MODEL is never changed.
    """
    from holdfast.core.errors import InputError
    from holdfast.data.open import open_dataset
    from holdfast.train.run import MixPlan, as_plain

    options.check_output()
    if options.steps and options.epochs:
        raise InputError("expected --steps or --epochs, not both")
    check_torch()
    from holdfast.train.tune import Tuning

    plan = _plan(options, command_line(options))
    mixed, reported = _choices(plan, options.decode, options.resize)
    tuning = Tuning(
        steps=options.steps or 300,
        batch=options.batch,
        rate=options.rate,
        mix=mixed,
        augment=options.augment,
        adversarial=options.adversarial,
        shift=options.shift,
        statistics=options.statistics,
        label_smoothing=options.smoothing,
        consistency=options.consistency,
    )
    test = options.test
    found = _trained(
        MixPlan(
            plan,
            options.out,
            tuning=tuning,
            reported=reported,
            work=options.work,
            seed=options.seed,
            held_out=options.held_out,
            test=open_dataset(test, task="classify", images=options.images) if test else None,
            epochs=options.epochs,
        )
    )
    if options.json:
        write_json(options.json, as_plain(found))
    options.print_table(mix_table(found))
    _ending(found, options)
    return 4 if found.left_out else 0


def tent(options: TentOptions) -> int:
    """Measure what TENT does to a classifier under noise of decoder, resize and colour (the paper's Table 6).

    TENT lowers the entropy of the model's own answers, batch by batch, by its normalisation layers. MODEL is
    as in its file before each option.
    """
    import os

    from holdfast.train.mitigate.adapt import FAMILIES, Adaptation, adapt, as_plain
    from holdfast.train.tables import tent_csv, tent_table

    options.check_output()
    check_torch()
    from holdfast.train.loop import threads
    from holdfast.train.tune import check_adaptable, trainable_of

    plan = _plan(options, command_line(options))
    over = options.only or FAMILIES
    _check_families(over, FAMILIES)
    check_adaptable(trainable_of(plan.model), plan.model.name)
    how = Adaptation(options.batch, options.rate, options.steps, options.seed)
    with threads(options.jobs):
        jobs = options.jobs or os.cpu_count() or 1
        found = adapt(plan.model, plan.dataset, options.work, how, _told, jobs, over)
    if options.json:
        write_json(options.json, as_plain(found))
    options.print_table(tent_csv([found]) if options.csv else tent_table([found]))
    return 0


def mix_table(found: Mixed) -> Table:
    """Accuracy under each choice before and after, the mean and the standard deviation."""
    from holdfast.report.tables import Column, Table

    rows: list[list[str | float]] = [[o.choice, o.before, o.after, o.gain] for o in found.lines]
    means, stds = zip(found.spread("before"), found.spread("after"), strict=True)
    rows += [["mean", *means, means[1] - means[0]], ["std", *stds, stds[1] - stds[0]]]
    caption = (
        f"top-1 in % on {found.tested_on} images of {found.tested} that were not trained on; trained for "
        f"{found.steps} steps on {found.trained_on}. Δ = after − before: higher is better"
    )
    columns: list[Column | str] = ["decode + resize", *(Column(name, 2) for name in ("before", "after", "Δ"))]
    return Table(columns, rows, caption)


def check_torch() -> None:
    """Raise MissingExtra if torch is not installed."""
    import importlib.util

    from holdfast.core.errors import MissingExtra

    if importlib.util.find_spec("torch") is None:
        raise MissingExtra("training", "torch", "torch")


def _plan(options: SubjectOptions, command: str) -> Plan:
    """The plan; a model that is no classifier is reported before the data is opened."""
    from holdfast.core.errors import InputError
    from holdfast.evaluate.cli import plan_of
    from holdfast.graph.load import load_model

    model = load_model(options.model, options.card)
    task = model.card.task
    if task != "classify":
        raise InputError(
            f"{options.model}: expected a classifier, got a model of the task {task!r}; "
            "only classifiers are trained"
        )
    return plan_of(carry(options, EvaluationOptions), model, command=command)


def _check_families(over: tuple[str, ...], known: tuple[str, ...]) -> None:
    from holdfast.core.errors import UnknownName
    from holdfast.stages.families import option

    for word in over:
        if word.split("=")[0] not in known:
            raise UnknownName("family of noise before the network", word.split("=")[0], known)
        if "=" in word:
            option(word)


def _choices(
    plan: Plan, decode: tuple[str, ...], resize: tuple[str, ...]
) -> tuple[tuple[Choice, ...], tuple[Choice, ...]]:
    """Every pair of a decoder and a resize that are mixed, and those that accuracy is reported under."""
    from holdfast.core.registry import lookup
    from holdfast.train.mitigate.rows import DECODERS, RESIZES
    from holdfast.train.shown import Choice

    card = plan.model.card
    if not decode and not resize:
        decode, resize = DECODERS, RESIZES
    decode, resize = decode or (card.decode,), resize or (card.resize,)
    for kind, names in (("decode", decode), ("resize", resize)):
        for name in names:
            lookup(kind, name)
    every = tuple(Choice(d, r) for d in decode for r in resize)
    alone = (*(Choice(d, card.resize) for d in decode), *(Choice(card.decode, r) for r in resize))
    return every, every if len(every) <= len(alone) else alone


def _trained(wanted: MixPlan) -> Mixed:
    from holdfast.train.run import mix as run

    tell_about(wanted.plan)
    return run(wanted, _told, _watch)


@contextmanager
def _watch(what: str, total: int, unit: str) -> Iterator[Callable[[int, int], None]]:
    from holdfast.engine.progress import progress

    with progress(what, total, unit) as step:
        yield step


def _told(text: str) -> None:
    if not sys.stderr.isatty():  # a terminal has the bar
        say(text, sys.stderr)


def _ending(found: Mixed, options: MixOptions) -> None:
    """Print what was trained and what to do next."""
    kept = f"; {len(found.kept)} other float constants are as they were" if found.kept else ""
    sys.stderr.write(f"trained  {found.numbers:,} numbers in {found.weights} weights{kept}\n")
    for failure in found.left_out[:20]:
        sys.stderr.write(f"failed   {failure}\n")
    sys.stderr.write(f"model    {found.new} ({Path(found.new).with_suffix('.toml')} is its card)\n")
    models, test = (options.model, found.new), options.test
    say(f"next: {command_line(NoiseOptions(models_data=(*models, test or options.data)))}")
    unseen = found.held_out or ("" if test else _other_seed(options.data))
    if unseen:
        command = command_line(NoiseOptions(models_data=(*models, unseen)))
        say(f"on images it was not trained on: {command}")


def _other_seed(data: str) -> str:
    """Embedded data of the next seed; empty for other data."""
    from holdfast.data.embedded import NAMES

    name, *numbers = data.split(":")
    seed = int(numbers[0]) if numbers else 0
    return ":".join([name, str(seed + 1), *numbers[1:]]) if name in NAMES else ""

"""`holdfast train`: train classifiers against system noise, and compare mitigations."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.config.options import carry
from holdfast.config.output import say
from holdfast.config.parser import command_line
from holdfast.core.dataset import Dataset
from holdfast.core.errors import InputError, UnknownName
from holdfast.core.extras import check
from holdfast.core.model import Card, Model
from holdfast.core.registry import lookup
from holdfast.data.embedded import NAMES
from holdfast.data.open import open_dataset
from holdfast.engine.executor import progress
from holdfast.evaluate.cli import print_data_notes
from holdfast.evaluate.options import EvaluationOptions
from holdfast.evaluate.run import EvaluationPlan, evaluation_plan
from holdfast.graph.load import load_model
from holdfast.noise.cli import models_and_data
from holdfast.noise.options import NoiseOptions
from holdfast.noise.suite import NoiseSelection
from holdfast.noise.vision.result import as_plain as suite_as_plain
from holdfast.stages.families import option
from holdfast.train.mitigate import rows
from holdfast.train.options import MatrixOptions, MitigateOptions, MitigationOptions, MixOptions, TentOptions
from holdfast.train.pictures import Preprocessing

if TYPE_CHECKING:
    from holdfast.train.mitigate.training import Training

HELD_OUT = 4  # every fourth image is a test image if no test data is given


def mix(options: MixOptions) -> int:
    """Fine-tune a classifier on several decoders and resizes, drawn at random (mix training).

    By default three decoders and the paper's six resizes are mixed; with --decode or --resize only those.
    Only weights change, the graph stays the same. The file MODEL is not modified.
    """
    options.check_output()
    if options.steps and options.epochs:
        raise InputError("expected --steps or --epochs, not both")
    check_torch()
    from holdfast.train import run
    from holdfast.train.tables import mix_table

    plan = _plan(options)
    mixed, reported = _choices(plan.model.card, options.decode, options.resize)
    print_data_notes(plan)
    result = run.mix(plan, options, mixed, reported, _say_unless_bar, progress)
    options.write_json(run.as_plain(result))
    options.print_table(mix_table(result))
    unchanged = f"; {len(result.kept)} other float constants are unchanged" if result.kept else ""
    sys.stderr.write(f"trained  {result.numbers:,} parameters in {result.weights} tensors{unchanged}\n")
    for failure in result.left_out[:20]:
        sys.stderr.write(f"failed   {failure}\n")
    sys.stderr.write(f"model    {result.new} (card: {Path(result.new).with_suffix('.toml')})\n")
    models, test = (options.model, result.new), options.test
    say(f"Next: {command_line(NoiseOptions(models_data=(*models, test or options.data)))}")
    if unseen := result.held_out or ("" if test else other_seed(options.data)):
        command = command_line(NoiseOptions(models_data=(*models, unseen)))
        say(f"On images it was not trained on: {command}")
    return 4 if result.left_out else 0


def tent(options: TentOptions) -> int:
    """Measure TENT on classifiers under decode, resize and colour noise (the paper's Table 6).

    TENT minimises the entropy of the model's predictions batch by batch, through its normalisation layers.
    Each option starts from the weights of the model. Batch normalisation that was folded into convolutions is
    restored.
    """
    options.check_output()
    check_torch()
    from holdfast.train.loop import threads
    from holdfast.train.mitigate.adapt import FAMILIES, Adaptation, adapt, as_plain
    from holdfast.train.tables import tent_csv, tent_table

    models, data = models_and_data(options, "MODEL… DATA: one classifier or more, then the dataset")
    families = options.only or FAMILIES
    for word in families:
        if word.split("=")[0] not in FAMILIES:
            raise UnknownName("noise family before the network", word.split("=")[0], FAMILIES)
        if "=" in word:
            option(word)
    adaptation = Adaptation(options.batch, options.rate, options.steps, options.seed)
    plans = [_plan(options, model=model, data=data, card=card) for model, card in models]
    with threads(options.jobs):
        results = [
            adapt(plan.model, plan.dataset, options.work, adaptation, _say_unless_bar, options.jobs, families)
            for plan in plans
        ]
    plain = [as_plain(result) for result in results]
    options.write_json(plain[0] if len(plain) == 1 else {"holdfast": 1, "kind": "tent", "models": plain})
    options.print_table(tent_csv(results) if options.csv else tent_table(results))
    for result in results:
        for note in result.notes:
            sys.stderr.write(f"note     {result.model}: {note}\n")
    return 0


def matrix(options: MatrixOptions) -> int:
    """Train a model on each decoder or resize and on their mix, test each on all: the paper's Tables 7 and 8.

    Every row starts from the weights of MODEL. A robust row has a low standard deviation over its cells.
    """
    options.check_output()
    training, tested = _training(options)
    from holdfast.train.mitigate import matrix as matrices
    from holdfast.train.mitigate.training import train, training_jobs
    from holdfast.train.tables import matrix_csv, matrix_table

    names = options.with_ or (rows.RESIZES if options.over == "resize" else rows.PAPER_DECODERS)
    recipes = rows.matrix_rows(training.model, options.over, names, names)
    models = train(training, training_jobs(recipes, range(options.seed, options.seed + options.seeds)), _say)
    result = matrices.matrix(training, tested, options.over, models, names, _say)
    options.write_json(matrices.as_plain(result))
    options.print_table(matrix_csv(result) if options.csv else matrix_table(result))
    if not options.csv:
        say(matrices.verdict(result))
    return 0


def compare(options: MitigateOptions) -> int:
    """Train a model with each mitigation and measure the points lost by every noise family: Fig. 4.

    Standard, AugMix, APR-SP, DeepAugment alone and with both, adversarial and mix training, each starting
    from the weights of MODEL, followed by the noise suite.
    """
    options.check_output()
    NoiseSelection(options.only).check()
    training, tested = _training(options)
    from holdfast.train.mitigate.matrix import FAMILIES, families
    from holdfast.train.mitigate.training import train, training_jobs
    from holdfast.train.tables import families_csv, families_table

    recipes = rows.mitigations(training.model, options.with_)
    models = train(training, training_jobs(recipes, (options.seed,)), _say)
    result = families(training, models, tested, options.work, options.only or FAMILIES, progress)
    options.write_json(suite_as_plain(result))
    name = training.model.name
    options.print_table(families_csv(result, name) if options.csv else families_table(result, name))
    if options.out:
        from holdfast.train.page import write

        written = write(result, name, options.out, command_line(options))
        sys.stderr.write(f"report   {written.resolve()}\n")
    return 0


def check_torch() -> None:
    """Raise MissingExtra if PyTorch or OpenCV is not installed."""
    check("training", "torch", "cv2", extra="train")


def _classifier(options: EvaluationOptions | MitigationOptions, hint: str = "") -> Model:
    model = load_model(options.model, options.card)
    task = model.card.task
    if task != "classify":
        raise InputError(f"{options.model}: expected a classifier, got a model with the task {task!r}{hint}")
    return model


def _plan(options: MixOptions | TentOptions, **subject: Any) -> EvaluationPlan:
    """The plan; a model that is not a classifier is reported before the data is opened.

    `subject` has model, data and card of options that name several models.
    """
    evaluation = carry(options, EvaluationOptions, **subject)
    model = _classifier(evaluation, "; only classifiers can be trained")
    return evaluation_plan(evaluation, model, command=command_line(options))


def _training(options: MitigationOptions) -> tuple[Training, Dataset]:
    """The training, and the test images, which are not trained on."""
    check_torch()
    from holdfast.train.mitigate.training import Training

    model = _classifier(options)
    trained = rows.subset(open_dataset(options.data, task="classify"), options.images)
    if options.test is None:
        trained, tested = rows.held_out(trained, HELD_OUT)
    else:
        tested = rows.subset(open_dataset(options.test, task="classify"), options.images)
        rows.check_apart(trained, tested)
    settings = {name: getattr(options, name) for name in ("steps", "batch", "rate", "shift", "jobs")}
    return Training(model, trained, options.work, **settings), tested


def _choices(
    card: Card, decode: tuple[str, ...], resize: tuple[str, ...]
) -> tuple[tuple[Preprocessing, ...], tuple[Preprocessing, ...]]:
    """The decoder and resize pairs that are mixed, and those that accuracy is reported for."""
    if not decode and not resize:
        decode, resize = rows.DECODERS, rows.RESIZES
    decode, resize = decode or (card.decode,), resize or (card.resize,)
    for kind, names in (("decode", decode), ("resize", resize)):
        for name in names:
            lookup(kind, name)
    pairs = tuple(Preprocessing(d, r) for d in decode for r in resize)
    single_changes = (
        *(Preprocessing(d, card.resize) for d in decode),
        *(Preprocessing(card.decode, r) for r in resize),
    )
    return pairs, pairs if len(pairs) <= len(single_changes) else single_changes


def _say(text: str) -> None:
    say(text, sys.stderr)


def _say_unless_bar(text: str) -> None:
    if not sys.stderr.isatty():  # a terminal has the bar
        _say(text)


def other_seed(data: str) -> str:
    """Embedded data of the next seed; empty for other data."""
    name, *numbers = data.split(":")
    seed = int(numbers[0]) if numbers else 0
    return ":".join([name, str(seed + 1), *numbers[1:]]) if name in NAMES else ""

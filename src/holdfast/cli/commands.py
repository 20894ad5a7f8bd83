"""`holdfast report`, `data` and `model`."""

import sys
from dataclasses import fields

from holdfast.cli import options as cli
from holdfast.config.output import say, write_json
from holdfast.core.errors import CardError, UnknownName
from holdfast.core.extras import check
from holdfast.core.types import Size
from holdfast.data import crop, info
from holdfast.data.open import open_dataset
from holdfast.engine.executor import progress
from holdfast.engine.store import write_atomic
from holdfast.graph.card import write_card
from holdfast.graph.darknet.convert import convert
from holdfast.graph.load import describe, find_model, load_model, shipped, write_guess


def report(options: cli.ReportOptions) -> None:
    """Write the report of a run as one self-contained HTML page."""
    from holdfast.audit.result import PAGE, open_audit
    from holdfast.report.html import write_page
    from holdfast.web.run_page import PAGES

    run, out = options.run, options.out
    fitting = (kind for kind, (file, _, _) in PAGES.items() if run.name == file or (run / file).exists())
    kind = next(fitting, "evaluation")
    _, page, name = PAGES[kind]
    if kind == "audit":
        run = run if run.is_dir() else run.parent
    if kind == "audit" and (run / PAGE).is_file():  # it has all pictures; one from the numbers has not
        open_audit(run)
        write_atomic(out, (run / PAGE).read_bytes())
    else:
        write_page(page(run), out, name)
    say(f"report: {out.resolve()}")


def data_info(options: cli.DataInfoOptions) -> None:
    """Detect the format of a dataset and print counts, classes, sizes and problems."""
    facts = info.describe(open_dataset(options.path, format=options.format, split=options.split))
    say(info.text(facts))
    if options.json:
        write_json(options.json, info.as_dict(facts))


def data_make(options: cli.DataMakeOptions) -> None:
    """Write the embedded dataset as JPEG files with COCO annotations and masks."""
    if options.what != "signs":
        raise UnknownName("dataset", options.what, ["signs"])
    check("drawing the embedded scenes", "cv2")
    from holdfast.data.signs.scene import make as make_signs

    with progress("signs", options.images) as step:
        path = make_signs(options.folder, options.images, options.seed, progress=lambda done: step(1, 0))
    say(f"{options.images} scenes written: {path}")


def data_crop(options: cli.CropOptions) -> None:
    """Cut a detection dataset into small square crops with one target each.

    The folder is a dataset: holdfast evaluate signs-single OUT, holdfast patchbench make DIR
    --data OUT.
    """
    reading = {"format": options.format, "split": options.split}
    dataset = open_dataset(options.data, task="detect", images=options.images, **reading)
    settings = crop.CropSettings(**{f.name: getattr(options, f.name) for f in fields(crop.CropSettings)})
    with progress("crop", len(dataset)) as step:
        crops = crop.crop(dataset, options.out, settings, step)
    say(f"{crops.pictures:,} crops of {crops.targets:,} targets written: {crops.folder} ({crops.format})")
    for why, count in sorted(crops.skipped.items(), key=lambda pair: -pair[1]):
        say(f"skipped  {count:,}: {why}")
    if crops.unreadable:
        sys.stderr.write(f"{len(crops.unreadable)} images could not be read, first: {crops.unreadable[0]}\n")


def model_info(options: cli.ModelInfoOptions) -> None:
    """Print inputs, outputs, operators and how holdfast reads the model, with reasons."""
    facts = describe(options.path, options.card)
    say(facts.text())
    if options.json:
        write_json(options.json, facts.to_dict())


def model_card(options: cli.ModelCardOptions) -> None:
    """Guess the model card from the graph, print the reasons, and write it."""
    target, reasons = write_guess(find_model(options.path), options.out, force=options.force)
    for reason in reasons:
        say(f"guessed  {reason}")
    say(f"card written: {target}; check the guesses before you evaluate")


def model_check(options: cli.ModelCheckOptions) -> int:
    """Try other readings of a detector's outputs and input on labelled images.

    Box orders, units, class lists, channel orders and ranges of values are compared by their AP at IoU
    0.5. Exit code 1: the model's reading is near 0, and another one meets the ground truth.
    """
    from holdfast.evaluate.readings import check_readings, table
    from holdfast.report.tables import to_text

    model = load_model(options.path, options.card)
    dataset = open_dataset(options.data, task=model.card.task, format=options.format, split=options.split)
    check = check_readings(model, dataset, renames=options.map, images=options.images)
    say(to_text(table(check)))
    say(check.conclusion())
    if options.json:
        write_json(options.json, check.to_dict())
    return int(check.is_wrong)


def model_list(_options: cli.ModelListOptions) -> None:
    """List the shipped models."""
    for name in shipped():
        model = load_model(name)
        size = model.card.input.size
        about = f"{model.card.task}, {size.width}×{size.height}, {len(model.card.classes)} classes"
        say(f"{name:14} {about}, {model.path.stat().st_size / 1e6:.1f} MB")


def model_convert(options: cli.ModelConvertOptions) -> None:
    """Convert a darknet YOLO network to ONNX and write its card."""
    out, size = options.out, options.size
    if out.with_suffix(".toml").exists() and not options.force:
        raise CardError(f"{out.with_suffix('.toml')}: the card already exists; use --force to overwrite it")
    card = convert(options.cfg, options.weights, out, options.names, Size(size, size) if size else None)
    write_card(card, out.with_suffix(".toml"))
    say(f"written: {out} and {out.with_suffix('.toml')}")

"""`holdfast report`, `doctor`, `data` and `model`."""

from __future__ import annotations

import sys
from dataclasses import fields
from pathlib import Path

from holdfast.cli.options import (
    CropOptions,
    DataInfoOptions,
    DataMakeOptions,
    DoctorOptions,
    ModelCardOptions,
    ModelConvertOptions,
    ModelInfoOptions,
    ModelListOptions,
    ReportOptions,
)
from holdfast.config.output import say, write_json
from holdfast.core.errors import CardError, UnknownName


def report(options: ReportOptions) -> None:
    """Write a run as one self-contained HTML page."""
    from holdfast.audit.result import MANIFEST as AUDIT
    from holdfast.noise.vision.result import MANIFEST

    run, out = options.run, options.out
    if run.name == AUDIT or (run / AUDIT).exists():
        return _audit(run if run.is_dir() else run.parent, out)
    if run.name == MANIFEST or (run / MANIFEST).exists():
        from holdfast.noise.vision.page import write as write_noise
        from holdfast.noise.vision.result import open_suite

        return say(f"report: {write_noise(open_suite(run), out).resolve()}")
    from holdfast.noise.language.result import MANIFEST as LANGUAGE

    if run.name == LANGUAGE or (run / LANGUAGE).exists():
        from holdfast.noise.language.page import write as write_language
        from holdfast.noise.language.result import open_suite as open_language_suite

        return say(f"report: {write_language(open_language_suite(run), out).resolve()}")
    from holdfast.noise.speech.result import MANIFEST as SPEECH

    if run.name == SPEECH or (run / SPEECH).exists():
        from holdfast.noise.speech.cli import report as report_speech

        return report_speech(run, out)
    from holdfast.evaluate.page import pictures, write
    from holdfast.evaluate.result import open_run

    evaluation = open_run(run)
    return say(f"report: {write(evaluation, out, pictures(evaluation)).resolve()}")


def _audit(run: Path, out: Path) -> None:
    """Write the page of an audit: with all pictures as it was written, otherwise from its numbers."""
    from holdfast.audit.page import write
    from holdfast.audit.result import PAGE, open_audit
    from holdfast.engine.store import write_atomic

    found = open_audit(run)
    if (run / PAGE).is_file():
        write_atomic(out, (run / PAGE).read_bytes())
    else:
        write(found, out)
    say(f"report: {out.resolve()}")


def doctor(_options: DoctorOptions) -> int:
    """Print versions, extras and CPU features, what is missing and the pip line for it."""
    from holdfast.engine.doctor import diagnose
    from holdfast.report.tables import Table, to_text

    findings = list(diagnose())
    rows = [[f.topic, f.name, f.state, f.remedy] for f in findings]
    say(to_text(Table(["", "what", "state", "remedy"], rows)))
    broken = [f for f in findings if f.topic == "library" and f.remedy]
    return 2 if broken else 0


def data_info(options: DataInfoOptions) -> None:
    """Recognise the format and print counts, classes, sizes and every problem found."""
    from holdfast.data.info import as_dict, describe, text
    from holdfast.data.open import open_dataset

    facts = describe(open_dataset(options.path, format=options.format, split=options.split))
    say(text(facts))
    if options.json:
        write_json(options.json, as_dict(facts))


def data_make(options: DataMakeOptions) -> None:
    """Write the embedded data set as JPEG files with COCO annotations and masks."""
    from holdfast.data.signs import make as make_signs
    from holdfast.engine.progress import progress

    if options.what != "signs":
        raise UnknownName("data set", options.what, ["signs"])
    with progress("signs", options.images) as step:
        path = make_signs(options.folder, options.images, options.seed, progress=lambda done: step(1, 0))
    say(f"{options.images} scenes written: {path}")


def data_crop(options: CropOptions) -> None:
    """Cut a detection data set into small square pictures of one target each.

    The folder can be read as a data set: holdfast evaluate signs-single OUT, holdfast patchbench make DIR
    --data OUT.
    """
    from holdfast.data.crop import Cut
    from holdfast.data.crop import crop as cut_out
    from holdfast.data.open import open_dataset
    from holdfast.engine.progress import progress

    found = open_dataset(
        options.data, task="detect", format=options.format, split=options.split, images=options.images
    )
    cut = Cut(**{field.name: getattr(options, field.name) for field in fields(Cut)})
    with progress("crop", len(found)) as step:
        crops = cut_out(found, options.out, cut, step)
    say(f"{crops.pictures:,} pictures of {crops.targets:,} targets written: {crops.folder} ({crops.format})")
    for why, count in sorted(crops.skipped.items(), key=lambda pair: -pair[1]):
        say(f"left out  {count:,}: {why}")
    if crops.unreadable:
        sys.stderr.write(f"{len(crops.unreadable)} images could not be read, first: {crops.unreadable[0]}\n")


def model_info(options: ModelInfoOptions) -> None:
    """Print inputs, outputs, operators and how holdfast would read the model, with reasons."""
    from holdfast.graph.load import describe

    facts = describe(options.path, options.card)
    say(facts.text())
    if options.json:
        write_json(options.json, facts.to_dict())


def model_card(options: ModelCardOptions) -> None:
    """Inspect the graph, guess how to feed and read it, say why, and write the card."""
    from holdfast.graph.guess import write_guess

    target, reasons = write_guess(options.path, options.out, force=options.force)
    for reason in reasons:
        say(f"guessed  {reason}")
    say(f"card written: {target}; check the guesses, then evaluate")


def model_list(_options: ModelListOptions) -> None:
    """Print the models that come with holdfast."""
    from holdfast.graph.load import load_model, shipped

    for name in shipped():
        model = load_model(name)
        size = model.card.input.size
        about = f"{model.card.task}, {size.width}×{size.height}, {len(model.card.classes)} classes"
        say(f"{name:14} {about}, {model.path.stat().st_size / 1e6:.1f} MB")


def model_convert(options: ModelConvertOptions) -> None:
    """Turn a darknet YOLO network into ONNX and a card; every float of the weights must be used."""
    from holdfast.core.types import Size
    from holdfast.graph.card import write_card
    from holdfast.graph.darknet.convert import convert as convert_darknet

    out, size = options.out, options.size
    if out.with_suffix(".toml").exists() and not options.force:
        raise CardError(f"{out.with_suffix('.toml')}: there is a card already; --force overwrites it")
    written = convert_darknet(
        options.cfg, options.weights, out, options.names, Size(size, size) if size else None
    )
    write_card(written, out.with_suffix(".toml"))
    say(f"written: {out} and {out.with_suffix('.toml')}")

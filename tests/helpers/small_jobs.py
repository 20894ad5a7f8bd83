"""A small job of every kind of work that keeps results, and a trace of the modules it runs through."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from helpers import classifiers as training
from helpers import language as texting
from helpers import models as making
from helpers import speech as speaking
from helpers import squares as squaring
from helpers import tiny_contest as staging
from helpers.squares import squares
from holdfast.attack.plan import AttackPlan, apart
from holdfast.attack.run import attack
from holdfast.attack.types import Limits, Method
from holdfast.audit.recheck import recheck
from holdfast.audit.squares import SquaresPlan
from holdfast.audit.threats import patched_dataset
from holdfast.certify.run import CertifyPlan, certify
from holdfast.contest.run import score
from holdfast.core import sources
from holdfast.core.patch import Patch, Position
from holdfast.core.pipeline import pipeline_of
from holdfast.data.embedded import EmbeddedEntry
from holdfast.data.open import open_dataset
from holdfast.evaluate.run import EvaluationPlan, alignment_of, evaluate
from holdfast.graph.load import load_model
from holdfast.noise.language import run as language_run
from holdfast.noise.language.open import language_subject
from holdfast.noise.language.questions import open_text
from holdfast.noise.speech import options
from holdfast.noise.speech import run as speech
from holdfast.noise.speech.card import load_speech
from holdfast.noise.speech.clips import open_clips
from holdfast.noise.speech.spectrum import Vocoder
from holdfast.stages.defence import MaskDefence
from holdfast.stages.deployed import Calibration, DeployedInference
from holdfast.stages.masks import HalfPlanes, PatchSize, SquareMasks

HOME = str(sources.PACKAGE) + os.sep


def evaluated(folder):
    """An evaluation of a detector on two cells of images."""
    model = load_model(making.detector(folder))
    data = open_dataset(making.blob_coco(folder / "data", 30))
    return lambda runs: evaluate(EvaluationPlan(model, data, runs=runs)).result["metrics"]


def certified(folder):
    """Certificates for a detector on two cells of images."""
    model = load_model(making.detector(folder))
    data = open_dataset(making.blob_coco(folder / "data", 2))
    defence = MaskDefence((HalfPlanes(2), SquareMasks(PatchSize(8), 2)), alpha=0.3, beta=0.0)

    def run(runs):
        plan = CertifyPlan(EvaluationPlan(model, data, runs=runs), PatchSize(8), defence, calibrate=False)
        return certify(plan).rows

    return run


def certificates_attacked(folder):
    """Attacks on the wrapped detector at certified and at other places."""
    model = load_model(making.detector(folder))
    data = open_dataset(making.blob_coco(folder / "data", 1))
    defence = MaskDefence((HalfPlanes(2),), alpha=0.3, beta=0.0)

    def run(runs):
        plan = EvaluationPlan(model, data, runs=runs)
        return certify(CertifyPlan(plan, PatchSize(8), defence, calibrate=False, attack=1)).attacked

    return run


def segmented(folder):
    """An evaluation of embedded images by the shipped segmenter."""
    data = open_dataset("signs:0:2", task="segment")
    return lambda runs: evaluate(EvaluationPlan(load_model("signs-seg"), data, runs=runs)).result["metrics"]


def patched(folder):
    """An image with a patch on it."""
    data = open_dataset(making.blob_coco(folder / "data", 2))
    patch = Patch(np.zeros((8, 8, 3), np.uint8), np.ones((8, 8), bool), Position(3, 3))
    return lambda runs: patched_dataset(data, {"000.jpg": patch}, "pillow").entries[0].load().data


def drawn(folder):
    """Embedded images in every view."""
    views = [EmbeddedEntry("signs", 0, 1, task) for task in ("detect", "classify", "single", "segment")]
    return lambda runs: [entry.load().data for entry in (*views, EmbeddedEntry("far", 0, 1, "classify"))]


def attacked(folder):
    """An attack without gradients on two scenes."""
    model = load_model(squaring.pixel_detector(folder))
    data = open_dataset(squaring.scenes(folder / "data", 2))

    def run(runs):
        plan = EvaluationPlan(model, data)
        given = AttackPlan(plan, runs / "attack", Method(black_box=True), Limits(pixels=60, steps=20))
        found = attack(apart(given, alignment_of(plan)))
        return [(a.name, a.pixels, a.image_sha256) for a in found.attempts]

    return run


def squared(folder):
    """Black squares over two scenes, rechecked at another precision."""
    model = load_model(squaring.pixel_detector(folder))
    data = open_dataset(squaring.scenes(folder / "data", 2))

    def run(runs):
        plan = SquaresPlan(
            EvaluationPlan(model, data, runs=runs), pipeline_of(model.card), share=0.4, most=20
        )
        maps = squares(plan)
        half = plan.pipeline.replace(infer=DeployedInference(("fp16",), folder=runs / "rewritten"))
        return [m.scores.tolist() for m in maps], recheck(plan, maps, {"fp16": half})

    return run


def contested(folder):
    """A contest made and an entry scored."""
    source = staging.materials(folder)

    def run(runs):
        place = runs / "contest"
        if not place.exists():
            staging.made(place, source)
            staging.entry(runs, "dark", staging.darkened(place, {1, 2}))
        return score(place, runs / "advimages_dark.zip", jobs=1).scenarios

    return run


def asked(folder):
    """A language model at another precision on questions."""
    lm = language_subject(texting.language_model(folder))
    text = open_text(texting.piqa(folder / "p.jsonl", 30))

    def run(runs):
        plan = language_run.LanguagePlan((lm,), (text,), runs, precisions=("fp16",))
        return language_run.measure(language_run.prepare(plan)).models[0].sets[0].rules

    return run


def spoken(folder):
    """A speech model at another precision on clips."""
    speaking.write_parallel(folder / "m")
    clips = open_clips(speaking.write_clips(folder / "clips"))
    wanted = options.NoiseSelection(only=("precision=fp16", "stft=power-2"))

    def run(runs):
        model = load_speech(folder / "m" / "fast.onnx")
        plan = speech.SpeechPlan(model, clips, wanted, runs=runs, vocoder=Vocoder(iterations=2))
        return speech.measure(speech.prepare(plan)).rows

    return run


def tuned(folder):
    """Two trained classifiers and what they get right."""
    mitigate, matrix, rows = (
        importlib.import_module(f"holdfast.train.mitigate.{n}") for n in ("training", "matrix", "rows")
    )
    model = load_model(training.normalised_classifier(folder))
    data = open_dataset(making.image_folder(folder / "data", 24, size=40))
    names = ("pillow-bilinear", "opencv-nearest")
    orders = mitigate.training_jobs(rows.matrix_rows(model, "resize", names, names), (0,))

    def run(runs):
        job = mitigate.Training(model, data, runs, steps=2, batch=8)
        models = mitigate.train(job, orders, lambda text: None)
        return matrix.matrix(job, data, "resize", models, names, lambda text: None).lines

    return run


def rewritten(folder):
    """A graph in 8 bits, calibrated on images, and one in 16 bits, and what they say."""
    model = load_model(making.classifier(folder))
    entries = open_dataset(making.image_folder(folder / "images", 6)).entries
    calibration = Calibration(entries, pipeline_of(model.card))
    tensor = np.random.default_rng(0).random((1, 3, 16, 16)).astype(np.float32)

    def run(runs):
        both = [DeployedInference((name,), calibration=calibration, folder=runs) for name in ("int8", "fp16")]
        return [deployed(model, 1)(tensor)["y"].tolist() for deployed in both]

    return run


CELLS = "engine.cells:CellTask.process"
# Kind of work -> a small job of that kind, and the functions inside which its results are made.
JOBS = {
    "evaluate": (evaluated, (CELLS,)),
    "evaluate, segments": (segmented, (CELLS,)),
    "patched": (patched, ("audit.threats:PatchedEntry.load",)),
    "signs": (drawn, ("data.embedded:EmbeddedEntry.load",)),
    "certify": (certified, (CELLS,)),
    "certify attack": (certificates_attacked, (CELLS,)),
    "attack": (attacked, (CELLS,)),
    "squares": (squared, (CELLS,)),
    "contest": (contested, (CELLS,)),
    "language": (asked, (CELLS, "noise.language.cells:_rewrite")),
    "speech": (spoken, (CELLS, "noise.speech.cells:_rewrite")),
    "train": (tuned, (CELLS,)),
    "rewrite": (rewritten, ("stages.deployed:rewritten",)),
}


def code_in(place):
    module, _, name = place.partition(":")
    found = importlib.import_module(f"holdfast.{module}")
    for part in name.split("."):
        found = getattr(found, part)
    return found.__code__


@contextmanager
def traced(roots):
    """The modules of ours whose functions are called, by any thread, while one of the roots runs."""
    inside, called = [0], set()

    def note(frame, event, _argument):
        code = frame.f_code
        if code in roots and event in ("call", "return"):
            inside[0] += 1 if event == "call" else -1
        is_function = code.co_flags & 1  # not the body of a module or class, which an import runs
        if event == "call" and inside[0] and is_function and code.co_filename.startswith(HOME):
            called.add(code.co_filename)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield called
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def undeclared(kind, called):
    names = {Path(f).relative_to(HOME).with_suffix("").as_posix().replace("/", ".") for f in called}
    declared = sources.SOURCES[kind]
    return sorted(n for n in names if not any(n == d or n.startswith(f"{d}.") for d in declared))

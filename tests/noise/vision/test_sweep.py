"""Sweeps: what is shared is done once, and every cell is the one a plain evaluation writes."""

import dataclasses
import multiprocessing
import sys
from pathlib import Path

import numpy as np
import pytest

from helpers import models as making
from holdfast.core import registry
from holdfast.core.errors import ImageError, InputError
from holdfast.core.pipeline import pipeline_of
from holdfast.core.registry import load_parts, lookup
from holdfast.core.types import Detections
from holdfast.data.open import open_dataset
from holdfast.engine.cells import cell_key
from holdfast.engine.records import FailedImage
from holdfast.evaluate.run import EvaluationPlan, evaluate
from holdfast.graph.load import load_model
from holdfast.noise.vision.sweep import SweepPlan, Variant, same_inputs, steps, sweep
from holdfast.stages.deployed import DeployedInference
from holdfast.stages.post import BoxPostProcessing

IMAGES = 30  # two shards
RESIZES = ("pillow-bilinear", "pillow-nearest", "opencv-nearest", "opencv-bilinear", "opencv-area")


def nothing(done, found):
    """No progress."""


class Counted:
    """A stage that counts its calls; two of them are different stages."""

    def __init__(self, stage, name=""):
        self.stage, self.name, self.calls = stage, name, 0

    def fingerprint(self):
        return self.name

    def __call__(self, *given):
        self.calls += 1
        return self.stage(*given)


class CountedInfer(Counted):
    """An infer stage that counts runs and openings."""

    opened = 0

    def __call__(self, model, threads=0):
        self.opened += 1
        run = self.stage(model, threads)

        def counted(tensor):
            self.calls += 1
            return run(tensor)

        return counted


@pytest.fixture(autouse=True)
def no_files_left(monkeypatch):
    monkeypatch.setattr(registry, "_FILES", {})


@pytest.fixture
def plan(tmp_path):
    making.classifier(tmp_path)
    making.image_folder(tmp_path / "data", IMAGES)
    model = load_model(tmp_path / "tiny.onnx")
    clean = pipeline_of(model.card)
    variants = (
        Variant("clean", clean),
        Variant("opencv", clean.replace(decode="opencv")),
        Variant("nearest", clean.replace(resize="opencv-nearest")),
        Variant("both", clean.replace(decode="opencv", resize="opencv-nearest")),
    )
    return SweepPlan(model, open_dataset(tmp_path / "data"), variants=variants, runs=tmp_path / "runs")


@pytest.fixture
def detecting(tmp_path):
    making.detector(tmp_path)
    making.blob_coco(tmp_path / "data", 6)
    model = load_model(tmp_path / "blobs.onnx")
    return SweepPlan(model, open_dataset(tmp_path / "data"), runs=tmp_path / "runs")


def variants_of(plan, **pipelines):
    made = tuple(Variant(name, pipeline) for name, pipeline in pipelines.items())
    return dataclasses.replace(plan, variants=made)


def cells(folder):
    return {p.name: p.read_bytes() for p in folder.glob("cells/*/*.json")}


def one_by_one(plan, folder):
    for variant in plan.variants:
        evaluate(EvaluationPlan(plan.model, plan.dataset, variant.pipeline, runs=folder))
    return cells(folder)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_sweep_writes_the_cells_of_evaluations_one_by_one(plan, tmp_path, jobs):
    found = sweep(dataclasses.replace(plan, jobs=jobs), nothing)
    assert list(found) == ["clean", "opencv", "nearest", "both"]
    wanted = one_by_one(plan, tmp_path / "others")
    assert len(wanted) == 4 * IMAGES
    assert cells(plan.runs) == wanted
    assert [r.name for r in found["both"].read().records] == [e.name for e in plan.dataset.entries]


def test_a_detectors_sweep_writes_the_cells_of_evaluations_one_by_one(detecting, tmp_path):
    clean = pipeline_of(detecting.model.card)
    plan = variants_of(detecting, clean=clean, offset=clean.replace(post=BoxPostProcessing(offset=1.0)))
    found = sweep(plan, nothing)
    assert cells(plan.runs) == one_by_one(plan, tmp_path / "others")
    assert same_inputs(found["clean"].read().inputs, found["offset"].read().inputs) == (6, 6)


def test_evaluations_and_sweeps_find_each_others_cells(plan):
    steps_of = []

    def watch(done, found):
        steps_of.append((done, found))

    evaluate(EvaluationPlan(plan.model, plan.dataset, plan.variants[2].pipeline, runs=plan.runs))
    sweep(plan, watch)
    assert steps_of == [(100, 25), (20, 5)]
    assert sum(done for done, _ in steps_of) == steps(plan)
    steps_of.clear()
    for variant in plan.variants:
        evaluate(EvaluationPlan(plan.model, plan.dataset, variant.pipeline, runs=plan.runs), watch)
    assert steps_of == [(25, 25), (5, 5)] * 4


def test_every_stage_is_run_once_for_all_that_share_it(plan):
    clean = plan.variants[0].pipeline
    decode = Counted(lookup("decode", "pillow"), "a")
    twin = Counted(lookup("decode", "pillow"), "b")  # another stage with the same pixels
    resize = Counted(lookup("resize", "pillow-bilinear"))
    normalise = Counted(lookup("normalise", "card"))
    infer = CountedInfer(lookup("infer", "onnxruntime"))
    base = clean.replace(decode=decode, resize=resize, normalise=normalise, infer=infer)
    plan = variants_of(
        plan,
        clean=base,
        twin=base.replace(decode=twin),
        nearest=base.replace(resize="opencv-nearest"),
        twin_nearest=base.replace(decode=twin, resize="opencv-nearest"),
        square=base.replace(fit="square"),  # which changes nothing under policy "stretch"
    )
    sweep(plan, nothing)
    assert decode.calls == twin.calls == resize.calls == IMAGES
    assert normalise.calls == infer.calls == 2 * IMAGES
    assert infer.opened == 1


def test_equal_tensors_of_other_pixels_share_one_inference(plan):
    clean = plan.variants[0].pipeline
    infer = CountedInfer(lookup("infer", "onnxruntime"))
    flat = clean.replace(infer=infer, normalise=lambda image, wanted: np.zeros((3, 16, 16), np.float32))
    plan = variants_of(plan, one=flat, other=flat.replace(resize="opencv-nearest"))
    found = sweep(plan, nothing)
    assert infer.calls == IMAGES
    assert found["one"].read().inputs == found["other"].read().inputs


def test_raw_outputs_are_shared_by_post_processings_which_may_write_into_them(detecting):
    def spoiling(raw, frame, card):
        for value in raw.values():
            value[:] = 0
        return Detections([], [], [])

    clean = pipeline_of(detecting.model.card)
    infer = CountedInfer(lookup("infer", "onnxruntime"))
    base = clean.replace(infer=infer)
    found = sweep(variants_of(detecting, spoiled=base.replace(post=spoiling), clean=base), nothing)
    assert infer.calls == 6
    assert [len(r.detections.boxes) > 0 for r in found["clean"].read().records] == [True] * 6
    assert [len(r.detections.boxes) for r in found["spoiled"].read().records] == [0] * 6


def test_a_stage_of_ones_own_may_write_into_its_pixels(plan, tmp_path):
    def blackens(image):
        image[:] = 0
        return image

    clean = plan.variants[0].pipeline
    both = variants_of(plan, black=clean.replace(colour=blackens), clean=clean)
    found = sweep(both, nothing)
    assert {r.top[0] for r in found["black"].read().records} == {0}
    alone = sweep(variants_of(dataclasses.replace(plan, runs=tmp_path / "b"), clean=clean), nothing)
    assert found["clean"].read().inputs == alone["clean"].read().inputs


def test_only_unfinished_cells_are_worked_on(plan):
    infer = CountedInfer(lookup("infer", "onnxruntime"))
    clean = plan.variants[0].pipeline.replace(infer=infer)
    plan = variants_of(plan, clean=clean, nearest=clean.replace(resize="opencv-nearest"))
    found = sweep(plan, nothing)
    whole = cells(plan.runs)
    infer.calls = 0
    for name, damage in (("nearest", Path.unlink), ("clean", lambda path: path.write_bytes(b"damaged"))):
        held = found[name].cells
        damage(held.store.path(cell_key(held.setup, held.items[1])))
    told = []
    sweep(plan, lambda *step: told.append(step))
    assert infer.calls == 2
    assert told == [(50, 48), (10, 10)]
    assert cells(plan.runs) == whole


def test_images_a_variant_goes_without(plan):
    names = [e.name for e in plan.dataset.entries]
    clean = plan.variants[0].pipeline
    less = dataclasses.replace(
        plan,
        variants=(
            Variant("clean", clean),
            Variant("some", clean.replace(resize="opencv-area"), frozenset(names[:3])),
            Variant("few", clean.replace(resize="opencv-bilinear"), frozenset(names[25:])),
        ),
    )
    told = []
    found = sweep(less, lambda *step: told.append(step))
    assert [r.name for r in found["some"].read().records] == names[3:]
    assert [r.name for r in found["few"].read().records] == names[:25]
    assert [len(s.cells) for s in found.values()] == [30, 27, 25]
    assert sum(done for done, _ in told) == steps(less) == 30 + 27 + 25
    assert found["some"].read().inputs.keys() == set(names[3:])


BROKEN = """
from holdfast import stage
from holdfast.core import registry
from holdfast.core.errors import ImageError, ModelError


@stage("infer")
def unopenable(model, threads=0):
    raise ModelError("node 7: cannot follow")


@stage("colour")
def unexpected(image):
    raise ZeroDivisionError("by nought")


@stage("colour")
def broken_on_some(image):
    if image.mean() < 60:
        raise ImageError("too dark")
    return image
"""


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_variant_that_cannot_run_does_not_stop_the_others(plan, tmp_path, jobs):
    (tmp_path / f"broken{jobs}.py").write_text(BROKEN.replace("def ", f"def j{jobs}_"))
    load_parts(tmp_path / f"broken{jobs}.py")
    clean = plan.variants[0].pipeline
    plan = variants_of(
        dataclasses.replace(plan, jobs=jobs),
        model=clean.replace(infer=f"j{jobs}-unopenable"),
        again=clean.replace(infer=f"j{jobs}-unopenable"),
        unforeseen=clean.replace(colour=f"j{jobs}-unexpected"),
        unknown=clean.replace(infer=DeployedInference(rewrites=("no-such-rewrite",))),
        clean=clean,
        dark=clean.replace(colour=f"j{jobs}-broken-on-some"),
    )
    told = []
    found = sweep(plan, lambda *step: told.append(step))
    assert found["model"].problem == found["again"].problem == "node 7: cannot follow"
    assert found["unforeseen"].problem.startswith(f"ZeroDivisionError: by nought (broken{jobs}.py:")
    assert "unknown rewrite 'no-such-rewrite'" in found["unknown"].problem
    assert all(found[n].cells is None for n in ("model", "again", "unforeseen", "unknown"))
    assert len(cells(plan.runs)) == 2 * IMAGES
    assert found["clean"].problem == found["dark"].problem == ""
    records = found["dark"].read().records
    failed = [r for r in records if isinstance(r, FailedImage)]
    assert 0 < len(failed) < IMAGES
    assert {f.reason for f in failed} == {"too dark"}
    assert len(found["dark"].read().inputs) == IMAGES - len(failed)
    assert sum(done for done, _ in told) == steps(plan)


def test_an_image_that_cannot_be_read_fails_in_every_variant_and_ends_a_strict_sweep(plan, tmp_path):
    victim = plan.dataset.entries[26]
    (tmp_path / "data" / victim.name).write_bytes(b"no image")
    found = sweep(plan, nothing)
    for swept in found.values():
        assert [r.name for r in swept.read().records if isinstance(r, FailedImage)] == [victim.name]
    assert cells(plan.runs) == one_by_one(plan, tmp_path / "others")
    with pytest.raises(ImageError, match=victim.name):
        sweep(dataclasses.replace(plan, strict=True), nothing)


def test_two_variants_of_one_name_are_refused(plan):
    with pytest.raises(InputError, match="'clean' twice"):
        sweep(dataclasses.replace(plan, variants=plan.variants + plan.variants[:1]), nothing)


def test_tensors_do_not_pile_up(plan):
    alive = most = 0

    class Watched(np.ndarray):
        def __del__(self):
            nonlocal alive
            alive -= 1

    def normalise(image, wanted):
        nonlocal alive, most
        made = lookup("normalise", "card")(image, wanted).view(Watched)
        alive += 1
        most = max(most, alive)
        return made

    clean = plan.variants[0].pipeline.replace(normalise=normalise)
    sweep(variants_of(plan, **{name: clean.replace(resize=name) for name in RESIZES}), nothing)
    assert 0 < most <= 40  # views count, of 4 tensors ahead and two at work; all images have 150 tensors


PART = '''
from holdfast import stage


@stage("colour")
def my_dim(image):
    """The pixels, darker."""
    return image // {by}


def brighter(image):
    """The pixels, not named."""
    return image | 1
'''


def test_parts_from_a_file_run_in_every_process_and_their_source_names_the_cells(plan, tmp_path):
    file = tmp_path / "my_noise.py"
    keys = []
    for by in (2, 100):
        file.write_text(PART.format(by=by))
        (part,) = load_parts(file)
        clean = plan.variants[0].pipeline
        own = variants_of(
            dataclasses.replace(plan, jobs=2),
            named=clean.replace(colour="my-dim"),
            passed=clean.replace(colour=sys.modules[part.function.__module__].brighter),
        )
        found = sweep(own, nothing)
        assert not found["named"].problem
        assert not found["passed"].problem
        keys.append(found["named"].cells.setup)
    assert keys[0] != keys[1]
    assert {r.top[0] for r in found["named"].read().records} == {0}
    assert multiprocessing.active_children() == []

"""Double masking on a classifier that obeys whoever controls a visible pixel of the patch."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast as hf
from helpers import models as making
from holdfast.certify.classify import ClassPlan, masks_cover
from holdfast.certify.classify_result import CLASSIFIED
from holdfast.core.errors import InputError, ModelError
from holdfast.core.model import Card, Head, Input, Model
from holdfast.core.pipeline import load_pipeline, pipeline_of
from holdfast.core.types import Scores, Size
from holdfast.evaluate.options import EvaluationOptions
from holdfast.evaluate.run import evaluation_plan
from holdfast.stages import double_masking, masks
from holdfast.stages.double_masking import DoubleMasking, MaskedViews, all_pairs_agree, decide, majority
from holdfast.stages.masks import PatchSize, SquareMasks
from holdfast.web.run_page import PAGES

TRIGGER, CLASSES = 255, 4


def classifier(image, needed):
    """The class of an image: its pixel value, if enough of it is visible, else class 0."""

    def predict(raw, frame, card):
        pixels = raw["pixels"][0]
        found = np.argwhere(pixels[..., 0] == TRIGGER)
        if len(found):
            return Scores(np.eye(CLASSES)[pixels[tuple(found[0])][1]])
        count = int((pixels[..., 0] == image[..., 0].max()).sum())
        return Scores(np.eye(CLASSES)[1 if count >= needed else 0])

    height, width = image.shape[:2]
    card = Card("classify", Input(Size(width, height)), Head("classifier"), tuple("abcd"))
    model = Model("visible", Path("visible.onnx"), card, "")
    pipeline = pipeline_of(card).replace(
        resize=lambda pixels, size: pixels, normalise=lambda pixels, spec: pixels,
        infer=lambda model, threads: lambda tensor: {"pixels": tensor}, post=predict,
    )  # fmt: skip
    return load_pipeline(pipeline, model)


def violations(image, needed, defence, side):
    """Yield places and answers of an attacker that change the certified answer."""
    machine = classifier(image, needed)
    clean = MaskedViews(defence, machine, image)
    if not all_pairs_agree(clean):
        return
    answer = decide(clean)
    height, width = image.shape[:2]
    for x in range(width - side + 1):
        for y in range(height - side + 1):
            for attack in range(CLASSES):
                patched = image.copy()
                patched[y : y + side, x : x + side] = (TRIGGER, attack, 0)
                if decide(MaskedViews(defence, machine, patched)) != answer:
                    yield x, y, attack


def image_of(width, height):
    image = np.zeros((height, width, 3), np.uint8)
    image[1:-1, 1:-1] = 200
    return image


@settings(max_examples=15, deadline=None)
@given(st.integers(5, 9), st.integers(5, 9), st.integers(1, 3), st.integers(2, 3), st.integers(1, 12))
def test_no_patch_changes_a_certified_answer(width, height, side, per_axis, needed):
    defence = DoubleMasking(SquareMasks(PatchSize(side), per_axis))
    assert list(violations(image_of(width, height), needed, defence, side)) == []


def short_spans(side, patch, count):
    return [(low, high - 1) for low, high in SPANS(side, patch, count)]


def no_second_round(views):
    return majority(views.labels)


def any_minority(views):
    most = majority(views.labels)
    return next((label for label in views.labels if label != most), most)


SPANS = masks._spans


def all_violations():
    """A small patch that most masks show, and one that most masks hide."""
    for patch, side in ((2, 2), (5, 1)):
        yield from violations(image_of(9, 9), 1, DoubleMasking(SquareMasks(PatchSize(patch), 3)), side)


def test_the_unchanged_code_has_no_violation():
    assert list(all_violations()) == []


@pytest.mark.parametrize(
    ("module", "name", "mutant"),
    [
        (masks, "_spans", short_spans),
        (double_masking, "decide", no_second_round),
        (double_masking, "decide", any_minority),
    ],
    ids=["short_spans", "no_second_round", "any_minority"],
)
def test_mutants_are_caught(monkeypatch, module, name, mutant):
    monkeypatch.setattr(module, name, mutant)
    if name == "decide":
        monkeypatch.setitem(globals(), "decide", mutant)
    assert next(all_violations(), None) is not None


def test_a_defence_is_written_as_it_is_read():
    text = "squares=3,patch=5,widen=0,where=input"
    assert str(DoubleMasking.parse(text)) == text
    assert DoubleMasking.parse(str(DoubleMasking())) == DoubleMasking()
    with pytest.raises(InputError, match="unknown setting of a defence 'lines'"):
        DoubleMasking.parse("lines=3")
    with pytest.raises(InputError, match="squares of at least 1"):
        DoubleMasking.parse("squares=0")


@pytest.fixture(scope="module")
def subject(tmp_path_factory):
    from PIL import Image as Pillow

    folder = tmp_path_factory.mktemp("subject")
    model, rng = hf.load(making.classifier(folder)), np.random.default_rng(0)
    for number in range(8):
        label = ("dark", "bright")[number % 2]
        place = folder / "data" / label
        place.mkdir(parents=True, exist_ok=True)
        centre = 225 if number % 2 else 20 if number else 110
        pixels = rng.integers(centre - 10, centre + 10, (32, 32, 3)).astype(np.uint8)
        Pillow.fromarray(pixels).save(place / f"{number}.png")
    return model, folder / "data", folder / "runs"


@pytest.fixture(scope="module")
def result(subject):
    model, data, runs = subject
    return hf.certify(model, data, runs=runs, patch="6", squares=3)


def test_accuracies_are_ordered_and_count_what_the_images_say(result):
    numbers = result.accuracy
    assert numbers.images == 8
    assert numbers.two_rounds <= numbers.one_round <= numbers.vanilla
    assert numbers.two_rounds > 0
    assert numbers.two_rounds == np.mean([image.two_rounds for image in result.images])
    certified = [image for image in result.images if image.two_rounds]
    assert {image.passes for image in certified} == {9 + 36 + 1}
    assert all(image.wrapped == image.label for image in certified)


def test_a_result_is_saved_opened_and_shown(result, tmp_path):
    assert CLASSIFIED.open(result.folder).accuracy == result.accuracy
    page = result.save(tmp_path / "page.html").read_text()
    assert "Certified accuracy" in page
    assert "replaces pixels of the decoded image" in page
    assert PAGES["certify-classes"][1](result.folder) == page


def test_the_wrapped_classifier_is_evaluated_with_the_same_answers(subject, result):
    model, data, runs = subject
    wrapped = model.defended(squares=3, patch="6")
    named = hf.evaluate(model, data, runs=runs, defend="masks:squares=3,patch=6")
    assert hf.evaluate(wrapped, data, runs=runs).top1 == named.top1 == result.accuracy.wrapped
    saved = hf.evaluate(model, data, runs=runs, defend=str(result.folder))
    assert saved.about.pipeline == named.about.pipeline


def test_masks_that_do_not_hide_what_a_patch_spreads_to_certify_nothing(subject, result):
    model, data, runs = subject
    plan = evaluation_plan(EvaluationOptions(model="m", data="d", runs=runs), model, hf.dataset(data))
    whole = ClassPlan(plan, DoubleMasking(SquareMasks(PatchSize(6), 3)))
    cell = {"masks": SquareMasks(PatchSize(6), 3).masks(Size(32, 32)).tolist(), "encoding": [8, 8, 0]}
    assert masks_cover(whole, Size(32, 32), cell)
    assert not masks_cover(replace(whole, threat="scene"), Size(32, 32), cell)
    cell["masks"] = SquareMasks(PatchSize(6), 3, widen=14).masks(Size(32, 32)).tolist()
    assert masks_cover(replace(whole, threat="scene"), Size(32, 32), cell)
    assert not masks_cover(replace(whole, threat="scene"), Size(32, 32), {**cell, "encoding": None})


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"alpha": 0.5}, "--alpha: only detectors have it"),
        ({"patch": "33"}, "--patch: expected a patch that fits"),
    ],
)
def test_options_that_cannot_be_are_one_line(subject, options, problem):
    model, data, runs = subject
    with pytest.raises(InputError, match=problem):
        hf.certify(model, data, runs=runs, **options)


def test_a_detector_of_one_object_has_an_exact_command_of_its_own(tmp_path):
    with pytest.raises(ModelError, match="holdfast patchbench certify decides it exactly"):
        hf.certify("signs-single", "signs:0:1", runs=tmp_path)


def test_a_segmenter_is_refused(tmp_path):
    with pytest.raises(ModelError, match="expected a detector or a classifier, got a segmenter"):
        hf.certify("signs-seg", "signs:0:1", runs=tmp_path)

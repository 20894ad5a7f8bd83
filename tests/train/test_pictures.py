"""Pictures are those of the pipeline, made once, finished after a kill, and without what cannot be read."""

import dataclasses

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from helpers.classifiers import normalised_classifier  # noqa: E402
from helpers.models import image_folder  # noqa: E402
from holdfast.core.errors import DataError, InputError, OutputError  # noqa: E402
from holdfast.core.pipeline import open_preparation, pipeline_of  # noqa: E402
from holdfast.core.types import Size  # noqa: E402
from holdfast.data.open import open_dataset  # noqa: E402
from holdfast.graph.load import load_model  # noqa: E402
from holdfast.train import pictures as module  # noqa: E402
from holdfast.train.pictures import Preprocessing, prepare_images  # noqa: E402
from holdfast.train.tune import normalise_images  # noqa: E402

CHOICES = (
    Preprocessing(),
    Preprocessing("ffmpeg", "opencv-nearest"),
    Preprocessing(colour="nv12"),
    Preprocessing(fit="square"),
)


@pytest.fixture
def model(tmp_path):
    return load_model(normalised_classifier(tmp_path))


@pytest.fixture
def data(tmp_path):
    return open_dataset(image_folder(tmp_path / "data", 70, size=40), task="classify")


@pytest.mark.parametrize("change", [{}, {"layout": "nhwc", "colour": "bgr"}, {"policy": "letterbox"}])
def test_pictures_normalised_are_the_tensors_of_the_pipeline(model, data, tmp_path, change):
    wanted = dataclasses.replace(model.card.input, size=Size(12, 16), std=(0.2, 0.3, 0.4), **change)
    model = dataclasses.replace(model, card=dataclasses.replace(model.card, input=wanted))
    few = data.first(4)
    made = prepare_images(model, few, CHOICES, tmp_path / "work", 1, len)
    assert made.images.shape == (4, 4, 16, 12, 3)
    for place, choice in enumerate(CHOICES):
        stages = {
            "decode": choice.decode,
            "resize": choice.resize,
            "colour": choice.colour,
            "fit": choice.fit,
        }
        prepare = open_preparation(pipeline_of(model.card).replace(**stages), model)
        tensors = normalise_images(made.images[place], model.card)
        for at, entry in enumerate(few.entries):
            assert np.array_equal(tensors[at].numpy(), prepare(entry.load().data).tensor[0])


def test_labels_are_the_models_numbers(model, data, tmp_path):
    made = prepare_images(model, data, CHOICES[:1], tmp_path / "work", 1, len)
    swapped = prepare_images(model, data, CHOICES[:1], tmp_path / "work", 1, len, places=(1, 0))
    assert sorted(set(made.labels)) == [0, 1]
    assert np.array_equal(made.labels, 1 - swapped.labels)
    with pytest.raises(DataError, match="expected classes 0 to 1, as the model has, got 4 to 5"):
        prepare_images(model, data, CHOICES[:1], tmp_path / "work", 1, len, places=(4, 5))


def test_made_once_and_finished_after_a_kill(model, data, tmp_path, monkeypatch):
    def made(work):
        steps = []
        found = prepare_images(
            model, data, CHOICES[:2], work, 1, len, progress=lambda done, reused: steps.append((done, reused))
        )
        return found, steps

    whole, steps = made(tmp_path / "whole")
    assert steps == [(32, 0), (32, 0), (6, 0)]
    assert made(tmp_path / "whole")[1] == [(32, 32), (32, 32), (6, 6)]
    shown = module.ImageWork.preprocessed

    def killed(work, entry):
        if entry is data.entries[37]:
            raise KeyboardInterrupt
        return shown(work, entry)

    monkeypatch.setattr(module.ImageWork, "preprocessed", killed)
    with pytest.raises(KeyboardInterrupt):
        made(tmp_path / "cut")
    monkeypatch.undo()
    again, steps = made(tmp_path / "cut")
    assert steps == [(32, 32), (32, 5), (6, 0)]  # only what is missing is made
    assert np.array_equal(again.images, whole.images)
    assert np.array_equal(again.labels, whole.labels)


def test_other_images_choices_or_sizes_have_other_files(model, data, tmp_path):
    keys = {
        prepare_images(model, data.first(n), choices, tmp_path / "work", 1, len).key
        for n, choices in ((3, CHOICES[:1]), (4, CHOICES[:1]), (3, CHOICES[:2]))
    }
    assert len(keys) == 3


def test_two_processes_make_the_same(model, data, tmp_path):
    one = prepare_images(model, data, CHOICES[:2], tmp_path / "one", 1, len)
    two = prepare_images(model, data, CHOICES[:2], tmp_path / "two", 2, len)
    assert np.array_equal(one.images, two.images)


def test_images_that_cannot_be_read_are_left_out_and_said(model, data, tmp_path):
    whole = prepare_images(model, data.first(10), CHOICES[:2], tmp_path / "whole", 1, len)
    broken = tmp_path / "data" / data.entries[3].name
    broken.write_bytes(broken.read_bytes()[:60])
    said = []
    fresh = open_dataset(tmp_path / "data", task="classify").first(10)
    for _ in range(2):  # a second time from disk
        made = prepare_images(model, fresh, CHOICES[:2], tmp_path / "work", 1, said.append)
        assert len(made) == 9
        assert made.names[3] == data.entries[9].name
        assert np.array_equal(made.images[:, 3], whole.images[:, 9])
        assert np.array_equal(made.images[:, 4], whole.images[:, 4])
        assert said[-1].startswith(
            f"skipped 1 of 10 images that cannot be read, first {data.entries[3].name}: "
        )


def test_nothing_readable_and_what_is_no_classification_is_told(model, data, tmp_path):
    for entry in data.first(2).entries:
        (tmp_path / "data" / entry.name).write_bytes(b"\xff\xd8\xff nothing")
    with pytest.raises(DataError, match="none of the 2 images can be read; first"):
        prepare_images(model, data.first(2), CHOICES[:1], tmp_path / "work", 1, len)
    with pytest.raises(DataError, match="expected a dataset for classification, got one for the task detect"):
        prepare_images(model, open_dataset("signs:0:2"), CHOICES[:1], tmp_path / "work", 1, len)
    with pytest.raises(DataError, match="the dataset is empty"):
        prepare_images(model, dataclasses.replace(data, entries=()), CHOICES[:1], tmp_path / "work", 1, len)


def test_a_disk_that_is_too_small_is_told_before_it_is_full(model, data, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "RESERVE", 1 << 60)
    with pytest.raises(OutputError, match=r"the images need 0\.0 GB, .* GB are free; mix fewer"):
        prepare_images(model, data, CHOICES, tmp_path / "work", 1, len)


def test_a_choice_no_pictures_were_made_for(model, data, tmp_path):
    made = prepare_images(model, data.first(2), CHOICES[:1], tmp_path / "work", 1, len)
    with pytest.raises(InputError, match=r"no images for ffmpeg \+ opencv-nearest; expected one of"):
        made.place(CHOICES[1])

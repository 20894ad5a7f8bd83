"""With and without TENT: which options are told apart, what each costs, the layout of Table 6."""

import numpy as np
import pytest

from helpers.classifiers import normalised_classifier
from helpers.models import classifier, image_folder
from holdfast.core.errors import InputError
from holdfast.data.open import open_dataset
from holdfast.graph.load import load_model
from holdfast.report.tables import to_csv, to_text
from holdfast.train.mitigate.adapt import (
    Adaptation,
    TentLoss,
    TentResult,
    adapt,
    as_plain,
    distinct_choices,
    noises,
)
from holdfast.train.mitigate.rows import TrainingRecipe
from holdfast.train.mitigate.training import Training, TrainingJob, train
from holdfast.train.pictures import Preprocessing
from holdfast.train.tables import tent_csv, tent_table

HOW = Adaptation(batch=16)


def quiet(text):
    return None


def test_choices_of_the_families():
    found = dict(noises(Preprocessing(), ("decode", "colour")))
    assert found["decode", "ffmpeg"] == Preprocessing(decode="ffmpeg")
    assert found["colour", "nv12"] == Preprocessing(colour="nv12")
    assert ("decode", "pillow") not in found  # the usual one
    assert ("decode", "learned") not in found  # on demand only
    assert set(dict(noises(Preprocessing(), ("resize=opencv-area",)))) == {("resize", "opencv-area")}


def test_alike_pictures_count_once():
    images = np.zeros((4, 2, 3, 3, 3), np.uint8)
    images[1] = 7
    images[3, 1, 0] = 1
    assert distinct_choices(images) == (0, 1, 3)


def test_a_model_with_and_without(tmp_path):
    data = open_dataset(image_folder(tmp_path / "data", 48, size=40))
    fresh = load_model(normalised_classifier(tmp_path / "model"))
    training = Training(fresh, data, tmp_path, steps=40, batch=16, rate=5e-3)
    (model,) = train(training, [TrainingJob(TrainingRecipe("usual", (Preprocessing(),)), 0)], quiet).values()
    said = []
    found = adapt(model, data, tmp_path, HOW, said.append, over=("decode", "resize=opencv-nearest"))
    assert found.images == 48
    assert {drop.family for drop in found.drops} == {"decode", "resize"}
    assert any("resize=opencv-nearest" in line for line in said)
    assert any(line.startswith(f"{model.name}: clean: ") for line in said)
    assert found == adapt(model, data, tmp_path, HOW, quiet, over=("decode", "resize=opencv-nearest"))
    # No rate, no adaptation: what is left of TENT is the statistics of the batch.
    still = adapt(model, data, tmp_path, Adaptation(16, 1e-12), quiet, over=("resize=pillow-box",))
    moved = adapt(model, data, tmp_path, Adaptation(16, 0.5, 3), quiet, over=("resize=pillow-box",))
    assert still.clean == moved.clean
    assert (still.clean_adapted, still.drops) != (moved.clean_adapted, moved.drops)
    assert as_plain(found)["kind"] == "tent"


def test_a_model_without_normalisation_and_a_batch_of_one(tmp_path):
    data = open_dataset(image_folder(tmp_path / "data", 16))
    with pytest.raises(InputError, match="normalisation layers"):
        adapt(load_model(classifier(tmp_path)), data, tmp_path, HOW, quiet, over=("resize=pillow-box",))
    model = load_model(normalised_classifier(tmp_path / "model"))
    with pytest.raises(InputError, match="2 or more images"):
        adapt(model, data, tmp_path, Adaptation(1), quiet, over=("resize=pillow-box",))


def test_the_table():
    drops = (
        TentLoss("decode", "a", 1.0, 4.0),
        TentLoss("decode", "b", 2.0, 6.0),
        TentLoss("colour", "c", 0.5, 3.0),
    )
    found = [TentResult("net", "data", 100, 90.0, 88.0, drops)]
    lines = to_text(tent_table(found)).splitlines()
    without, adapted = lines[-2].split("  "), lines[-1].split("  ")
    assert [word.strip() for word in without if word.strip()] == [
        "net (w/o TENT)", "90.00", "90.00", "1.50 (2.00)", "–", "0.50",
    ]  # fmt: skip
    assert [word.strip() for word in adapted if word.strip()] == [
        "net (w/ TENT)", "90.00", "88.00", "5.00 (6.00)", "–", "3.00",
    ]  # fmt: skip
    assert to_csv(tent_csv(found)).count("\n") == 4

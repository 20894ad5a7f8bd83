"""The train × test matrix: the paper's std, intervals, and a miniature of the whole from files to table."""

import numpy as np
import pytest

from helpers.classifiers import normalised_classifier
from helpers.models import image_folder
from holdfast.core.errors import DataError, InputError, UnknownName
from holdfast.core.pipeline import load_pipeline
from holdfast.data.open import open_dataset
from holdfast.graph.load import load_model
from holdfast.report.tables import to_csv, to_latex, to_markdown, to_text
from holdfast.train.mitigate import training as module
from holdfast.train.mitigate.matrix import Matrix, MatrixRow, as_plain, matrix, matrix_row, verdict
from holdfast.train.mitigate.rows import check_apart, held_out, matrix_rows, mitigations, subset
from holdfast.train.mitigate.training import (
    Training,
    TrainingJob,
    correct_predictions,
    places_of,
    predicted_classes,
    train,
    training_jobs,
)
from holdfast.train.pictures import Preprocessing, prepare_images
from holdfast.train.tables import matrix_csv, matrix_table

# Rows of the paper's Tables 7 and 8 with the mean and std it prints.
PAPER = [
    ((76.572, 72.168, 76.512, 72.090, 75.346, 74.072), 74.460, 2.02),
    ((74.872, 75.988, 75.548, 75.970, 76.002, 76.056), 75.739, 0.463),
    ((76.154, 75.876, 76.344, 75.786, 76.444, 76.330), 76.156, 0.270),
    ((76.430, 76.426, 75.310), 76.055, 0.645),
    ((76.53, 76.524, 76.414), 76.489, 0.0653),
]


@pytest.mark.parametrize(("cells", "mean", "std"), PAPER)
def test_mean_and_std_are_the_papers(cells, mean, std):
    images = 50_000  # of ImageNet's validation set: every percentage is a whole number of images
    hits = np.stack([np.arange(images) < round(c / 100 * images) for c in cells])[None]
    line = matrix_row("row", hits, replicates=2)
    assert line.accuracy == pytest.approx(cells)
    assert line.mean == pytest.approx(mean, abs=6e-4)
    assert line.std == pytest.approx(std, rel=6e-3)


def test_intervals_and_spread_over_seeds():
    rng = np.random.default_rng(0)
    hits = rng.random((3, 4, 400)) < 0.9
    line = matrix_row("row", hits)
    assert line.mean_low < line.mean < line.mean_high
    assert line.mean_high - line.mean_low == pytest.approx(2 * 1.96 * 100 * np.sqrt(0.09 / 400 / 12), rel=0.2)
    assert line.spread == pytest.approx(100 * hits.mean((1, 2)).std(ddof=1))
    assert matrix_row("row", hits[:1]).spread is None
    same = np.repeat(hits[:1, :1], 4, axis=1)
    assert (matrix_row("row", same).std, matrix_row("row", same).std_high) == (0, 0)


def of(*rows):
    lines = [MatrixRow(name, (mean, mean), mean, std, std, std, mean, mean) for name, mean, std in rows]
    return Matrix("resize", "net", "data", 100, ("a", "b"), tuple(lines), (0,), 300, 10, 1.5)


def test_the_verdict_says_what_came_out():
    good = verdict(of(("a", 90.0, 2.0), ("b", 91.0, 1.0), ("mix", 90.8, 0.5)))
    assert "mix has the lowest std, 0.500 (next: b, 1.000)" in good
    assert "its mean is 0.20 points lost against the best row, b. On average it is 0.20 points behind" in good
    bad = verdict(of(("a", 92.0, 0.1), ("mix", 90.8, 0.5)))
    assert "mix does not have the lowest std: 0.500, a has 0.100" in bad
    assert "its mean is 1.20 points lost against the best row, a, more than 0.5. On average it is 1.20" in bad
    assert "mix and a both have the lowest std, 0.500;" in verdict(of(("a", 92.0, 0.5), ("mix", 90.8, 0.5)))
    assert "its mean is -0.50 points lost" in verdict(of(("a", 90.0, 0.1), ("mix", 90.5, 0.5)))
    assert "verdict" not in as_plain(of(("a", 90.0, 0.1)))
    with pytest.raises(InputError, match="no row 'mix'"):
        of(("a", 90.0, 0.1)).line("mix")


def test_the_tables():
    found = of(("a", 90.0, 2.0), ("mix", 90.8, 0.5))
    assert "Table 7" in to_text(matrix_table(found))
    assert "standard deviation of 1.50 points" in to_text(matrix_table(found))
    assert "| mix | 90.80 | 90.80 | 90.80 | 0.500 | 0.500 to 0.500 | 0.00 |" in to_markdown(
        matrix_table(found)
    )
    assert r"train \textbackslash{} test" in to_latex(matrix_table(found))
    head, first, *_ = to_csv(matrix_csv(found)).splitlines()
    assert dict(zip(head.split(","), first.split(","), strict=True))["std"] == "2.0"


@pytest.fixture
def started(tmp_path):
    model = load_model(normalised_classifier(tmp_path / "model"))
    data = open_dataset(image_folder(tmp_path / "data", 160, size=40))
    return held_out(data, 4), model, tmp_path / "work"


def test_a_miniature(started, monkeypatch):
    (seen, tested), model, folder = started
    assert (len(seen), len(tested)) == (120, 40)
    training = Training(model, seen, folder, steps=40, batch=16, rate=5e-3, shift=1)
    names = ("pillow-bilinear", "opencv-nearest")
    rows = matrix_rows(model, "resize", names, names)
    said = []
    models = train(training, training_jobs(rows, (0, 1)), said.append)
    found = matrix(training, tested, "resize", models, names, said.append)
    assert found.rows == (*names, "mix")
    assert found.images == 40
    assert all(line.mean > 70 for line in found.lines), found  # half of the images are of each class
    assert len(list((folder / "trained").glob("*.onnx"))) == 6
    cards = {load_model(p).card.resize for p in (folder / "trained").glob("*-opencv-nearest-*.onnx")}
    assert cards == {"opencv-nearest"}

    def not_again(*_):
        raise AssertionError("trained again")

    monkeypatch.setattr(module.TrainWork, "compute_item", not_again)
    models = train(training, training_jobs(rows, (0, 1)), said.append)
    assert matrix(training, tested, "resize", models, names, said.append) == found
    assert any("trained 6 of 6" in line for line in said)
    assert any(line.startswith(f"{model.name}, opencv-nearest, seed 0: tuning 40/40 loss") for line in said)


@pytest.mark.slow
def test_rows_side_by_side_are_the_same_to_the_byte(started, tmp_path):
    (seen, _), model, folder = started
    rows = matrix_rows(model, "decode", ("pillow", "fast-idct"), ("pillow", "fast-idct"))
    wanted = training_jobs(rows, (3,))
    kinds = {}
    for jobs in (1, 2):
        training = Training(model, seen, folder / str(jobs), steps=3, batch=8, jobs=jobs)
        made = train(training, wanted, lambda text: None)
        kinds[jobs] = [made[order].sha256 for order in wanted]
    assert kinds[1] == kinds[2]
    assert len(set(kinds[1])) == 3


def test_a_seed_and_a_way_to_train_make_another_model(started):
    (seen, _), model, folder = started
    row, other, mix = matrix_rows(model, "resize", ("pillow-box", "pillow-nearest"), ("pillow-box",))
    training = Training(model, seen, folder, steps=2, batch=8)
    made = train(
        training,
        [TrainingJob(row, 0), TrainingJob(row, 1), TrainingJob(other, 0), TrainingJob(mix, 0)],
        lambda text: None,
    )
    kinds = {order: found.sha256 for order, found in made.items()}
    assert kinds[TrainingJob(row, 0)] == kinds[TrainingJob(mix, 0)]  # a mix of one is that one
    assert len(set(kinds.values())) == 3


def test_answers_are_those_of_the_pipeline(started):
    from holdfast.core.pipeline import pipeline_of

    (seen, _), model, folder = started
    shown = prepare_images(
        model, seen, (Preprocessing(),), folder, 1, lambda text: None, places_of(model, seen)
    )
    machine = load_pipeline(pipeline_of(model.card), model, 1)
    said = [machine.predict(machine.prepare(e.load().data)).values.argmax() for e in seen.entries[:30]]
    assert predicted_classes(model, shown.images[0][:30]).tolist() == said
    hits = correct_predictions(model, shown, folder)
    assert hits.shape == (1, 120)
    assert (correct_predictions(model, shown, folder) == hits).all()  # from the store
    assert hits[0, :30].tolist() == (np.array(said) == shown.labels[:30]).tolist()


def test_classes_in_another_order(tmp_path):
    model = load_model(normalised_classifier(tmp_path / "model"))
    data = open_dataset(image_folder(tmp_path / "data", 8))
    assert data.classes == ("bright", "dark")
    assert model.card.classes == ("dark", "bright")
    assert places_of(model, data) == (1, 0)


def test_nothing_is_trained_and_tested_on(tmp_path):
    data = open_dataset(image_folder(tmp_path / "data", 8))
    with pytest.raises(DataError, match="8 test images of data are also in the training data data"):
        check_apart(data, data)
    other = open_dataset(image_folder(tmp_path / "other", 8, seed=1))
    check_apart(data, other)
    with pytest.raises(DataError, match="at least 4 images"):
        held_out(data.first(3), 4)
    assert [entry.name for entry in subset(data, 2).entries] == ["bright/0005.jpg", "dark/0004.jpg"]
    assert subset(data, None) == subset(data, 9) == data


def test_a_row_by_another_name_is_not_trained_again(started):
    (seen, _), model, folder = started
    row = matrix_rows(model, "resize", ("pillow-bilinear", "pillow-box"), ())[0]
    same = matrix_rows(model, "decode", ("pillow", "ffmpeg"), ())[0]
    assert (row.name, same.name) == ("pillow-bilinear", "pillow")
    training = Training(model, seen, folder, steps=2, batch=8)
    said = []
    made = train(training, [TrainingJob(row, 0), TrainingJob(same, 0)], said.append)
    assert made[TrainingJob(row, 0)] == made[TrainingJob(same, 0)]
    assert sum("trained 1 of 1" in line for line in said) == 1


def test_rows_that_cannot_be(started):
    _, model, _ = started
    with pytest.raises(
        InputError, match=r"two or more different resize names of .*pillow-nearest.* got pillow-box"
    ):
        matrix_rows(model, "resize", ("pillow-box",), ("pillow-box",))
    with pytest.raises(UnknownName, match=r"unknown decode 'foo'.*pillow"):
        matrix_rows(model, "decode", ("foo",), ())
    with pytest.raises(InputError, match="two or more different"):
        matrix_rows(model, "resize", ("pillow-box", "pillow-box", "pillow-nearest"), ())
    with pytest.raises(UnknownName, match="pillow-bilinear"):
        matrix_rows(model, "resize", ("pillow-bilinaer", "pillow-box"), ())
    with pytest.raises(UnknownName, match="augmix"):
        mitigations(model, ("augmax",))
    assert [row.name for row in mitigations(model, ("mix", "standard"))] == ["standard", "mix"]
    assert len(mitigations(model)) == 8

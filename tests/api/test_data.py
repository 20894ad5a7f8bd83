"""Datasets from Python: of files, of names, of pairs in memory; indexed, sliced, filtered."""

import io

import numpy as np
import pytest
from PIL import Image

import holdfast as hf
from holdfast.core.errors import DataError, InputError, UnknownName


def pixels(sample):
    return np.asarray(Image.open(io.BytesIO(sample.data)))


def test_samples_have_bytes_truth_and_labels(data):
    sample = data[3]
    assert [one.name for one in data] == [entry.name for entry in data.entries]
    assert len(sample.labels) == len(sample.truth)
    assert set(sample.labels) <= set(data.classes)
    assert data[-1].name == data.entries[-1].name


def test_slices_and_filters_are_datasets_with_another_identity(data):
    part, few = data[2:4], data.filter(lambda sample: "speed-limit-30" in sample.labels)
    assert (len(part), part.name) == (2, data.name)
    assert 0 < len(few) < len(data)
    assert all("speed-limit-30" in sample.labels for sample in few)
    assert len({one.source.get("selection") for one in (data, part, few, data[:2])}) == 4


def test_limit_keeps_the_first_images(data, tmp_path):
    assert len(hf.dataset("signs:0:9", limit=2)) == 2
    assert [e.name for e in hf.dataset(data, limit=2).entries] == [e.name for e in data.entries[:2]]
    with pytest.raises(InputError, match="limit: expected 1 or more"):
        hf.dataset([(b"x", 1)], limit=0)


def test_pairs_of_boxes_give_the_numbers_of_the_dataset_they_are_from(model, data):
    pairs = [
        (sample.data, {"boxes": sample.truth.xyxy.tolist(), "labels": list(sample.labels)}) for sample in data
    ]
    ours, theirs = hf.evaluate(model, pairs), hf.evaluate(model, data)
    assert ours.map50 == theirs.map50
    assert ours.images == len(data)
    assert ours.about.data["format"] == "memory"


def test_pairs_of_arrays_are_exact_and_named_by_place(model, data):
    pairs = [(pixels(s), {"boxes": s.truth.xyxy, "labels": s.truth.classes}) for s in data[:2]]
    made = hf.dataset(pairs, classes=data.classes)
    assert [entry.name for entry in made.entries] == ["image-0", "image-1"]
    assert made[0].labels == data[0].labels
    assert np.array_equal(pixels(made[0]), pixels(data[0]))


def test_pairs_of_classes_by_name_or_index():
    classifier, images = hf.load("signs-class"), hf.dataset("signs:0:4", task="classify")
    names = [(sample.data, sample.labels[0]) for sample in images]
    indices = [(sample.data, sample.truth.index) for sample in images]
    assert hf.evaluate(classifier, names).top1 == hf.evaluate(classifier, images).top1
    assert hf.evaluate(classifier, indices).top1 == hf.evaluate(classifier, images).top1


def test_pairs_of_masks():
    images = hf.dataset("signs:0:2", task="segment")
    masks = [(s.data, np.asarray(Image.open(io.BytesIO(s.truth.data)))) for s in images]
    made = hf.evaluate("signs-seg", hf.dataset(masks, classes=images.classes))
    assert made.miou == hf.evaluate("signs-seg", images).miou


def test_a_sample_and_a_list_of_samples_are_data(model, data):
    assert hf.evaluate(model, data[3]).images == 1
    assert hf.evaluate(model, [data[0], data[2]]).images == 2


def test_a_dataset_of_a_name_serves_every_task(data):
    assert hf.evaluate("signs-class", data).about.task == "classify"
    with pytest.raises(DataError, match=r"pass task='classify' to holdfast\.dataset"):
        hf.evaluate("signs-class", data[:2])


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([], "expected at least one pair"),
        ([b"image"], r"data\[0\]: expected a pair"),
        ([(b"image", {"boxes": []})], "expected a truth with boxes and labels"),
        ([(b"image", 1.5)], "a class or a mask"),
        ([(b"image", 1), (b"image", np.zeros((2, 2), int))], "truths of one kind"),
        ([(np.zeros((2, 2)), 1)], "uint8 in RGB order"),
    ],
)
def test_wrong_pairs_are_refused_in_one_line(pairs, words):
    with pytest.raises(InputError, match=words):
        hf.dataset(pairs)


def test_options_that_do_not_fit_are_refused(data):
    with pytest.raises(UnknownName, match="Did you mean 'detect'"):
        hf.dataset("signs", task="detct")
    with pytest.raises(InputError, match="only pairs need class names"):
        hf.dataset("signs", classes=["stop"])
    with pytest.raises(InputError, match="in memory"):
        hf.dataset(data, format="coco")

"""Models: what they predict from any kind of image, and how they are deployed."""

import io
import pickle

import numpy as np
import pytest
from PIL import Image

import holdfast as hf
from holdfast.core.errors import ImageError, InputError, UnknownName


def test_a_path_bytes_an_array_and_a_pil_image_give_the_same_detections(model, data, tmp_path):
    sample = data[3]
    (tmp_path / "a.jpg").write_bytes(sample.data)
    picture = Image.open(io.BytesIO(sample.data))
    given = [tmp_path / "a.jpg", str(tmp_path / "a.jpg"), sample.data, np.asarray(picture), picture]
    first, *others = model.predict(given)
    assert first.names == sample.labels
    assert all(np.array_equal(first.boxes, one.boxes) for one in others)


def test_detections_have_pixels_scores_classes_and_names(model, data):
    found = model.predict(data[3].data)
    assert found.boxes.shape == (len(found), 4)
    assert [model.card.classes[i] for i in found.classes] == list(found.names)
    assert found.to_dict()["boxes"] == found.boxes.tolist()
    assert repr(found).startswith(f"<Detections {len(found)}: speed-limit-30 0.")
    assert len(model.predict(data[3].data, score=0.85)) == sum(found.scores >= 0.85) < len(found)


def test_a_classifier_gives_a_class_a_score_and_its_name():
    classifier, images = hf.load("signs-class"), hf.dataset("signs:0:4", task="classify")
    found = classifier.predict(images[1].data)
    assert (found.name,) == images[1].labels
    assert found.top(2)[0] == (found.name, found.score)
    assert found.to_dict()["class"] == found.index
    assert repr(found) == f"<Classification {found.name} {found.score:.2f}>"


def test_a_segmenter_gives_a_label_map_of_the_image():
    images = hf.dataset("signs:0:2", task="segment")
    found = hf.load("signs-seg").predict(images[0].data)
    assert found.classes.shape == Image.open(io.BytesIO(images[0].data)).size[::-1]
    assert sum(found.to_dict()["pixels"].values()) == found.classes.size
    assert found.mask(found.names[0]).dtype == bool


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (np.zeros((4, 4), np.uint8), "expected a path, encoded bytes, a PIL image or an array"),
        (np.zeros((4, 4, 3)), "float64"),
    ],
)
def test_what_is_no_image_is_refused_in_one_line(model, image, words):
    with pytest.raises(InputError, match=words):
        model.predict(image)
    with pytest.raises(ImageError, match="no such image file"):
        model.predict("none.jpg")


def test_a_deployed_model_says_what_was_replaced_and_predicts_with_it(model, data):
    nearest = model.deployed(resize="opencv-nearest")
    assert nearest.deployment == ("resize=opencv-nearest",)
    assert nearest.pipeline == model.pipeline.replace(resize="opencv-nearest")
    assert "resize=opencv-nearest" in repr(nearest)
    assert model.deployment == ()
    scores = [one.predict(data[3].data).scores.tolist() for one in (model, nearest)]
    assert scores[0] != scores[1]


def test_a_function_replaces_a_stage(model, data):
    dark = model.deployed(colour=lambda image: image // 8)
    assert len(dark.predict(data[3].data)) < len(model.predict(data[3].data))


def test_integer_precisions_need_calibration_images(model, data):
    with pytest.raises(InputError, match=r"need calibration images.*calibration=dataset"):
        model.deployed(precision="int8").predict(data[3].data)
    small = model.deployed(precision="int8", calibration="signs:7:4")
    assert small.deployment == ("precision=int8-minmax",)
    assert small.predict(data[3].data).names == data[3].labels
    with pytest.raises(InputError, match="only integer precisions are calibrated"):
        model.deployed(resize="opencv-area", calibration=data)


def test_unknown_families_and_options_get_the_nearest(model):
    with pytest.raises(UnknownName, match="Did you mean 'resize'"):
        model.deployed(resiez="opencv-nearest")
    with pytest.raises(UnknownName, match="Did you mean 'opencv-nearest'"):
        model.deployed(resize="opencv-neareset")


def test_a_card_can_be_given_and_guesses_are_told(model, tmp_path):
    (tmp_path / "net.onnx").write_bytes(model.path.read_bytes())
    assert hf.load(tmp_path / "net.onnx", card=model.card).card == model.card
    assert hf.load(tmp_path / "net.onnx", card=model.path.with_suffix(".toml")).guessed == ()
    guessed = hf.load(tmp_path / "net.onnx")
    assert guessed.guessed
    assert f"{len(guessed.guessed)} guessed" in repr(guessed)


def test_a_model_goes_to_another_process_without_what_it_opened(model, data):
    model.predict(data[0].data)
    again = pickle.loads(pickle.dumps(model))  # noqa: S301 - our own
    assert again == model
    assert again.predict(data[0].data).names == model.predict(data[0].data).names

"""`holdfast train` as a user runs it: a folder a class, an ONNX classifier, a new file, the next command."""

import json
import shutil

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

pytest.importorskip("torch")

from helpers.classifiers import model_of, node, normalised_classifier
from helpers.models import classifier, detector, image_folder
from holdfast.train import tune as tune_module

FEW = ("--steps", 8, "--batch", 16, "--rate", 0.01, "--jobs", 1, "--decode", "pillow,ffmpeg")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder of dark and bright images and a classifier that does not know them yet."""
    folder = tmp_path_factory.mktemp("made")
    image_folder(folder / "data", 120)
    normalised_classifier(folder, "old")
    return folder


@pytest.fixture
def place(made, tmp_path):
    """The same in the folder the command runs in."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_mix_trains_and_the_noise_tables_of_old_and_new_follow(holdfast, place):
    before = (place / "old.onnx").read_bytes(), (place / "old.toml").read_bytes()
    steps = ("--steps", 60, *FEW[2:], "--resize", "pillow-bilinear,opencv-nearest", "--json", "r.json")
    done = holdfast("train", "mix", "old.onnx", "data", "-o", "new.onnx", *steps)
    assert done.code == 0, done
    assert before == ((place / "old.onnx").read_bytes(), (place / "old.toml").read_bytes())
    for said in (
        "pillow + pillow-bilinear",
        "ffmpeg + pillow-bilinear",
        "pillow + opencv-nearest",
        "mean",
        "std",
    ):
        assert said in done.out
    assert "on 30 images of data that were not trained on; trained for 60 steps on 90" in done.out
    assert "Next: holdfast noise old.onnx new.onnx data\n" in done.out
    assert "holdfast noise old.onnx new.onnx new-held-out.txt" in done.out
    for said in (
        "training images: 90/90 images",
        "train: 60/60 steps",
        "trained  640 parameters in 8 tensors",
        "loss 0.",
    ):
        assert said in done.err
    result = json.loads((place / "r.json").read_text())
    assert len(result["lines"]) == 4
    assert result["after"]["mean"] > result["before"]["mean"] + 20
    listed = (place / "new-held-out.txt").read_text().splitlines()
    assert len(listed) == 30
    assert {line.split("\t")[1] for line in listed} == {"0", "1"}
    for data, images in (("data", 120), ("new-held-out.txt", 30)):
        noise = holdfast(
            "noise",
            "old.onnx",
            "new.onnx",
            data,
            "--only",
            "resize=opencv-nearest",
            "--jobs",
            1,
            "--json",
            "n.json",
        )
        assert noise.code == 0, noise
        models = json.loads((place / "n.json").read_text())["models"]
        assert [m["model"] for m in models] == ["old", "new"]
        assert models[1]["images"] == images
        assert models[1]["clean"] > models[0]["clean"] + 0.2


def test_a_killed_run_goes_on_to_the_same_bytes(holdfast, place, monkeypatch):
    assert holdfast("train", "mix", "old.onnx", "data", "-o", "a.onnx", *FEW, "--work", "w1").code == 0
    monkeypatch.setattr(tune_module, "SAVE_EVERY", 3)
    real, calls = tune_module.loss_of, []

    def killing(model, tuning):
        loss = real(model, tuning)

        def killed(net, batch):
            calls.append(1)
            if len(calls) == 5:
                raise KeyboardInterrupt
            return loss(net, batch)

        return killed

    monkeypatch.setattr(tune_module, "loss_of", killing)
    cut = holdfast("train", "mix", "old.onnx", "data", "-o", "b.onnx", *FEW, "--work", "w2")
    assert cut.code == 130
    assert not (place / "b.onnx").exists()
    again = holdfast("train", "mix", "old.onnx", "data", "-o", "b.onnx", *FEW, "--work", "w2")
    assert "train: 8/8 steps" in again.err
    assert "(3 were cached)" in again.err
    assert (place / "a.onnx").read_bytes() == (place / "b.onnx").read_bytes()


def test_other_data_to_test_on_and_epochs_instead_of_steps(holdfast, place):
    image_folder(place / "other", 10, seed=3)
    options = ("--epochs", 1, "--batch", 40, "--jobs", 1, "--resize", "opencv-bilinear", "--csv")
    done = holdfast("train", "mix", "old.onnx", "data", "-o", "new.onnx", "--test", "other", *options)
    assert done.code == 0, done
    assert done.out.startswith("decode + resize,before,after,points gained\npillow + pillow-bilinear,")
    assert "train: 3/3 steps" in done.err
    assert not (place / "new-held-out.txt").exists()


def test_a_broken_image_is_left_out_and_told(holdfast, place):
    (place / "data" / "dark" / "0000.jpg").write_bytes(b"\xff\xd8\xff broken")
    done = holdfast("train", "mix", "old.onnx", "data", "-o", "new.onnx", *FEW)
    assert done.code == 4
    assert "failed   dark/0000.jpg: " in done.err


def test_classes_may_be_renamed_and_lists_are_read(holdfast, place):
    (place / "data" / "dark").rename(place / "data" / "night")
    mapped = ("--map", "night=dark")
    assert holdfast("train", "mix", "old.onnx", "data", "-o", "new.onnx", *FEW, *mapped).code == 0
    files = sorted((place / "data").glob("*/*.jpg"))
    lines = [f"{f.relative_to(place)} {int(f.parent.name == 'bright')}\n" for f in files]
    (place / "list.txt").write_text("".join(lines))
    assert (
        holdfast("train", "mix", "old.onnx", "list.txt", "-o", "other.onnx", *FEW, "--images", 80).code == 0
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("old.onnx", "data", "-o", "old.onnx"), "expected another file than the model"),
        (("old.onnx", "data", "-o", "old.onnx.gz"), "expected the name of a new .onnx file"),
        (("old.onnx", "data", "-o", "taken.onnx"), "taken.toml exists and is the card of another model"),
        (("old.onnx", "data", "-o", "old.toml/n.onnx"), "cannot write: Not a directory"),
        (("blobs.onnx", "data", "-o", "n.onnx"), "expected a classifier, got a model with the task 'detect'"),
        (("old.onnx", "empty", "-o", "n.onnx"), "empty: the folder is empty"),
        (("old.onnx", "data", "-o", "n.onnx", "--batch", "91"), "one batch of training images (91), got 90"),
        (("old.onnx", "data", "-o", "n.onnx", "--decode", "pilow"), "unknown decode 'pilow'. Did you mean"),
        (("old.onnx", "data", "-o", "n.onnx", "--augment", "x"), "unknown augment 'x'"),
        (("old.onnx", "data", "-o", "n.onnx", "--steps", "1", "--epochs", "1"), "--steps or --epochs"),
        (("old.onnx", "data", "-o", "n.onnx", "--held-out", "0"), "expected a share between 0 and 1"),
        (("old.onnx", "third", "-o", "n.onnx"), "class mismatch: the dataset has 3 classes, the model 2"),
        (("old.onnx", "data", "-o", "n.onnx", "--test", "data"), "test images are also in data"),
        (("odd.onnx", "data", "-o", "n.onnx"), "node 'NonZero of y': operator NonZero cannot be trained"),
        (("quant.onnx", "data", "-o", "n.onnx"), "node 'QuantizeLinear of q': operator Quantize"),
        (("bare.onnx", "data", "-o", "n.onnx"), "no weights to train"),
        (("nan.onnx", "data", "-o", "n.onnx"), "gives numbers that are not finite (NaN or infinite)"),
    ],
)  # fmt: skip
def test_bad_input_is_told_in_one_line(fails, place, words, said):
    detector(place)
    (place / "taken.toml").write_text("")
    (place / "empty").mkdir()
    image_folder(place / "third", 4)
    shutil.copytree(place / "third" / "dark", place / "third" / "grey")
    card = (place / "old.toml").read_text()
    weight = np.ones((2, 3, 16, 16), np.float32)
    scale = {"scale": np.float32(0.1), "zero": np.uint8(0)}
    for name, nodes, weights in (
        ("odd", [node("Conv", "x w", "h"), node("NonZero", "h", "y")], {"w": weight}),
        ("quant", [node("QuantizeLinear", "x scale zero", "q"), node("DequantizeLinear", "q scale zero", "d"),
                   node("Conv", "d w", "y")], {"w": weight} | scale),
        ("bare", [node("GlobalMaxPool", "x", "y")], {}),
        ("nan", [node("Conv", "x w", "h"), node("Flatten", "h", "y")], {"w": weight * np.float32("nan")}),
    ):  # fmt: skip
        model = model_of(nodes, weights, ("n", 3, 16, 16))
        model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", "k"]))
        onnx.save(model, str(place / f"{name}.onnx"))
        (place / f"{name}.toml").write_text(card)
    assert said in fails(
        "train", "mix", *words, "--jobs", "1", *(() if "--steps" in words else ("--steps", "2"))
    )
    assert not (place / "n.onnx").exists()


def test_a_loss_that_is_not_finite_is_one_line(fails, place, monkeypatch):
    monkeypatch.setattr(
        tune_module, "loss_of", lambda *_: lambda net, batch: net(batch[0]).sum() * float("nan")
    )
    assert "the loss became nan" in fails("train", "mix", "old.onnx", "data", "-o", "n.onnx", *FEW)
    assert not (place / "n.onnx").exists()


def test_tent_has_the_layout_of_the_papers_table(holdfast, place):
    options = ("--only", "resize=opencv-nearest,resize=opencv-area,colour=nv12", "--batch", 40, "--jobs", 1)
    done = holdfast("train", "tent", "old.onnx", "data", *options, "--json", "t.json")
    assert done.code == 0, done
    assert "old (w/o TENT)" in done.out
    assert "old (w/ TENT)" in done.out
    result = json.loads((place / "t.json").read_text())
    assert {(d["family"], d["option"]) for d in result["drops"]} == {
        ("resize", "opencv-nearest"), ("resize", "opencv-area"), ("colour", "nv12"),
    }  # fmt: skip
    assert done.err.count("with TENT") == 4
    assert 0 <= result["clean_adapted"] <= 100


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("tiny.onnx", "data"), "normalisation layers, and tiny has none"),
        (("old.onnx", "data", "--only", "ceil"), "unknown noise family before the network 'ceil'"),
        (("old.onnx", "data", "--only", "resize=x"), "unknown resize 'x'"),
        (("blobs.onnx", "data"), "expected a classifier, got a model with the task 'detect'"),
    ],
)
def test_bad_input_of_tent(fails, place, words, said):
    detector(place)
    classifier(place)
    assert said in fails("train", "tent", *words, "--jobs", "1")


def test_folded_normalisation_is_restored_and_several_models_share_a_table(holdfast, place):
    options = ("--only", "resize=opencv-nearest", "--batch", 2, "--jobs", 1, "--json", "t.json")
    done = holdfast("train", "tent", "signs-class", "signs-class", "signs:3:6", *options)
    assert done.code == 0, done
    assert "batch normalisation restored behind convolutions" in done.err
    assert done.out.count("signs-class (w/ TENT)") == 2
    assert len(json.loads((place / "t.json").read_text())["models"]) == 2

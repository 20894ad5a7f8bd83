"""`holdfast diagnose` as a user runs it: equals of a dump, and what integers were calibrated on."""

import json
import subprocess
import sys

import numpy as np
import pytest

from helpers import models as making

METHOD = "min-max, per channel"


@pytest.fixture
def tiny(tmp_path):
    """A classifier and its data, as words for the command line."""
    model = making.classifier(tmp_path / "models")
    return str(model), str(making.image_folder(tmp_path / "data", 12, size=37))


@pytest.fixture
def picture(tmp_path):
    """A JPEG without subsampling."""
    pixels = np.random.default_rng(0).integers(0, 255, (40, 50, 3)).astype(np.uint8)
    (tmp_path / "p.jpg").write_bytes(making.jpeg(pixels, subsampling=0))
    return "p.jpg"


def test_a_dump_is_explained_in_terminal_json_and_page(holdfast, tiny, picture, tmp_path):
    from holdfast.core.pipeline import open_preparation, pipeline_of
    from holdfast.graph.load import load_model

    model = load_model(tiny[0])
    target = pipeline_of(model.card).replace(decode="opencv", resize="opencv-area")
    dump = open_preparation(target, model)((tmp_path / picture).read_bytes()).tensor
    np.save(tmp_path / "d.npy", dump[:, ::-1])
    done = holdfast("diagnose", tiny[0], picture, "--input", "d.npy", "--json", "d.json", "-o", "d.html")
    assert done.code == 0
    assert done.out.startswith(
        "The target feeds BGR; the model wants RGB. Swap the first and the third channel."
    )
    assert "resize=opencv-area" in done.out
    assert "decode" not in done.out
    found = json.loads((tmp_path / "d.json").read_text())["input"]
    assert [cause["kind"] for cause in found["causes"]] == ["channels", "resize"]
    assert found["explained"] is True
    page = (tmp_path / "d.html").read_text()
    assert page.count('src="data:image/png') == 2
    assert "The target feeds BGR; the model wants RGB." in page


def test_the_exif_option_needs_a_dump_of_the_input(holdfast, tiny):
    done = holdfast("diagnose", *tiny, "--deploy", "decode=zune", "--train-exif")
    assert done.code == 2
    assert "--train-exif: expected --input" in done.err


def test_a_folder_of_dumps_has_the_names_of_the_images(holdfast, tiny, tmp_path):
    from holdfast.core.pipeline import open_preparation, pipeline_of
    from holdfast.graph.load import load_model

    model, folder = load_model(tiny[0]), tmp_path / "dumps"
    folder.mkdir()
    for path in sorted(path for path in (tmp_path / "data").rglob("*") if path.is_file())[:3]:
        dump = open_preparation(pipeline_of(model.card), model)(path.read_bytes()).tensor
        np.save(folder / f"{path.stem}.npy", dump * 255)
    done = holdfast("diagnose", *tiny, "--input", folder, "--json", "d.json")
    assert done.code == 0
    found = json.loads((tmp_path / "d.json").read_text())["input"]
    assert [cause["kind"] for cause in found["causes"]] == ["range"]
    assert found["dumps"] == 3
    empty = tmp_path / "empty"
    empty.mkdir()
    done = holdfast("diagnose", *tiny, "--input", empty)
    assert done.code == 2
    assert "expected .npy files named after the images" in done.err


def test_a_diagnosis_of_data_says_what_integers_were_calibrated_on(holdfast, tiny, tmp_path):
    done = holdfast(
        "diagnose", *tiny, "--deploy", "decode=zune,precision=int8", "--json", "d.json", "-o", "d.html",
        "--jobs", 1,
    )  # fmt: skip
    assert done.code == 0
    told = json.loads((tmp_path / "d.json").read_text())
    seen = told["calibration"]
    assert seen["images"] == 3
    assert seen["on"].startswith("3 of the 12 images")
    assert METHOD in seen["how"]
    notes = {share["label"]: share["note"] for share in told["loss"]["differences"]}
    assert METHOD in notes["precision=int8-minmax"]
    assert notes["decode=zune"] == ""
    assert f"note     integer precisions calibrated on {seen['on']}" in done.out
    assert "note     precision=int8 means precision=int8-minmax (" in done.err
    assert done.out.count(METHOD) == 1
    page = (tmp_path / "d.html").read_text()
    assert seen["on"] in page
    assert METHOD in page


def test_other_images_are_calibrated_on_if_they_are_given(holdfast, tiny, tmp_path):
    other = making.image_folder(tmp_path / "other", 7, seed=5, size=31)
    done = holdfast(
        "diagnose", *tiny, "--deploy", "precision=int8", "--calibration", other, "--json", "d.json",
        "--jobs", 1,
    )  # fmt: skip
    assert done.code == 0
    assert "integer precisions calibrated on 7 images of other" in done.out
    assert json.loads((tmp_path / "d.json").read_text())["calibration"]["images"] == 7


def test_training_in_integers_is_calibrated_too(holdfast, tiny, tmp_path):
    done = holdfast(
        "diagnose", *tiny, "--train", "precision=int8", "--deploy", "decode=zune", "--json", "d.json",
        "--jobs", 1,
    )  # fmt: skip
    assert done.code == 0
    told = json.loads((tmp_path / "d.json").read_text())
    assert told["calibration"]["images"] == 3
    assert METHOD in done.out  # no row of the table is of training
    assert told["loss"]["images"] == 9  # not on those it was calibrated on
    assert [share["note"] for share in told["loss"]["differences"]] == [""]


def test_without_integers_nothing_is_said_of_calibration(holdfast, tiny, tmp_path):
    done = holdfast("diagnose", *tiny, "--deploy", "decode=zune", "--json", "d.json", "--jobs", 1)
    assert json.loads((tmp_path / "d.json").read_text())["calibration"] is None
    assert "calibrated" not in done.out


def test_on_a_picture_it_is_said_that_the_picture_itself_was_calibrated_on(holdfast, picture, tmp_path):
    done = holdfast(
        "diagnose", "signs-class", picture, "--deploy", "precision=int8", "--json", "d.json", "-o", "d.html"
    )
    assert done.code == 0
    assert "integer precisions calibrated on 1 image, the tested one" in done.out
    assert METHOD in done.out
    told = json.loads((tmp_path / "d.json").read_text())["calibration"]
    assert told["images"] == 1
    assert METHOD in told["how"]
    page = (tmp_path / "d.html").read_text()
    assert "the tested one" in page
    assert METHOD in page


def test_a_graph_that_stays_in_floats_is_not_said_to_be_in_integers(holdfast, tiny, picture):
    done = holdfast("diagnose", tiny[0], picture, "--deploy", "precision=int8-mixed")
    assert "method: the graph has nothing that this precision changes" in done.out


def test_a_picture_is_not_among_the_images_given_to_calibrate_on(holdfast, tiny, tmp_path):
    inside = next(path for path in sorted((tmp_path / "data").rglob("*")) if path.is_file())
    words = ("diagnose", tiny[0], inside, "--deploy", "precision=int8", "--json", "d.json", "--calibration")
    assert holdfast(*words, tiny[1]).code == 0
    assert json.loads((tmp_path / "d.json").read_text())["calibration"]["images"] == 11
    alone = tmp_path / "alone" / "bright"
    alone.mkdir(parents=True)
    (alone / inside.name).write_bytes(inside.read_bytes())
    assert "the tested one (alone has no other image)" in holdfast(*words, tmp_path / "alone").out


def test_a_name_of_holdfasts_own_is_not_blamed_on_the_user_who_takes_it(tmp_path):
    """In a process of its own: only there holdfast's parts are not loaded yet."""
    mine = tmp_path / "bad.py"
    mine.write_text(
        'from holdfast import stage\n\n\n@stage("resize")\n'
        'def pillow_bilinear(image, size):\n    """Mine."""\n    return image\n'
    )
    run = "import sys; from holdfast.cli import run; sys.exit(run(sys.argv[1:]))"
    words = ("diagnose", "signs-class", "signs:0:2", "--deploy", "decode=zune", "--use", str(mine))
    done = subprocess.run([sys.executable, "-c", run, *words], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        f"holdfast: {mine}:4: resize 'pillow-bilinear' is already defined by holdfast itself "
        "(holdfast.stages.resize.libraries); choose another name\n"
    )

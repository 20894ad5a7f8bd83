"""`holdfast noise` and `holdfast diagnose` as a user runs them."""

import csv
import io
import json
import re

import numpy as np
import pytest
from PIL import Image

from helpers import models as making

QUICK = ("--only", "decode=fast-idct,resize=opencv-nearest", "--only", "resize=pillow-box")


@pytest.fixture
def tiny(tmp_path):
    """A classifier and its data, as words for the command line."""
    model = making.classifier(tmp_path / "models")
    return str(model), str(making.image_folder(tmp_path / "data", 12, size=37))


@pytest.fixture
def blobs(tmp_path):
    """A detector and its data, as words for the command line."""
    model = making.detector(tmp_path / "models")
    return str(model), str(making.blob_coco(tmp_path / "scenes", 8))


def test_the_table_is_printed_in_every_shape_with_the_same_numbers(holdfast, tiny, tmp_path):
    text = holdfast("noise", *tiny, *QUICK, "--json", "n.json", "-o", "n.html", "--jobs", 1)
    assert text.code == 0
    told = json.loads((tmp_path / "n.json").read_text())
    (model,) = told["models"]
    drops = {f"{r['family']}={r['option']}": r["points_lost"] for r in model["rows"]}
    assert set(drops) == {"decode=fast-idct", "resize=opencv-nearest", "resize=pillow-box"}
    for label, drop in drops.items():
        option = label.split("=")[1]
        assert re.search(rf"{option} +{drop:.2f} ", text.out), text.out
    line = next(f for f in model["families"] if f["family"] == "resize")
    assert f"{line['mean']:.2f} ({line['worst']:.2f})" in text.out
    shaped = holdfast("noise", *tiny, *QUICK, "--csv", "--jobs", 1)
    (row,) = csv.DictReader(io.StringIO(shaped.out))
    assert float(row["resize points lost"]) == pytest.approx(line["mean"])
    assert float(row["resize worst points lost"]) == pytest.approx(line["worst"])
    moved = any(r["points_lost"] or r["changed"] for r in model["rows"] if r["family"] == "resize")
    assert row["resize worst option"] == (line["option"] if moved else "")
    markdown = holdfast("noise", *tiny, *QUICK, "--markdown", "--jobs", 1)
    assert "| model |" in markdown.out
    latex = holdfast("noise", *tiny, *QUICK, "--latex", "--jobs", 1)
    assert r"\begin{tabular}" in latex.out
    page = (tmp_path / "n.html").read_text()
    assert "opencv-nearest" in page
    assert not re.search(r"(src|href)=.https?:", page)


def test_two_runs_and_two_processes_give_the_same_bytes(holdfast, tiny, tmp_path):
    for name, jobs in (("a", 1), ("b", 1), ("c", 2)):
        done = holdfast("noise", *tiny, *QUICK, "--json", f"{name}.json", "--runs", name, "--jobs", jobs)
        assert done.code == 0

    def numbers(name):
        told = json.loads((tmp_path / f"{name}.json").read_text())
        return json.dumps(told["models"], sort_keys=True)

    assert numbers("a") == numbers("b") == numbers("c")


def test_other_options_are_kept_in_another_folder(holdfast, tiny, tmp_path):
    for only in ("decode", "colour", "decode"):
        assert holdfast("noise", *tiny, "--only", only, "--jobs", 1).code == 0
    assert len(list((tmp_path / "holdfast-runs").glob("noise-*"))) == 2


def test_several_models_make_a_row_each(holdfast, tiny, tmp_path):
    other = making.classifier(tmp_path / "models", name="other", scale=3.0)
    done = holdfast("noise", tiny[0], other, tiny[1], *QUICK, "--csv", "--jobs", 1)
    assert [r["model"] for r in csv.DictReader(io.StringIO(done.out))] == ["tiny", "other"]


def test_a_dry_run_counts_and_runs_nothing(holdfast, tiny, tmp_path):
    done = holdfast("noise", *tiny, *QUICK, "--dry-run")
    assert done.code == 0
    assert re.search(r"tiny +12 +4 +48 of 48 ", done.out)
    assert not list((tmp_path / "holdfast-runs").rglob("noise.json"))


def test_the_list_says_what_is_there(holdfast):
    done = holdfast("noise", "list", "--csv")
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert {r["family"] for r in rows} >= {
        "decode",
        "resize",
        "colour",
        "ceil",
        "upsample",
        "precision",
        "boxes",
    }
    fast = next(r for r in rows if r["option"] == "fast-idct")
    assert "TensorFlow" in fast["systems"]
    assert fast["stage"] == "pre-processing"
    assert "decode" in holdfast("noise", "list").out


def test_the_staircase(holdfast, blobs, tmp_path):
    done = holdfast(
        "noise", "combine", *blobs, "--only", "decode=fast-idct", "--only", "boxes=offset",
        "--json", "s.json", "-o", "s.html", "--jobs", 1,
    )  # fmt: skip
    assert done.code == 0
    steps = json.loads((tmp_path / "s.json").read_text())["steps"]
    assert [s["added"] for s in steps] == ["boxes=offset", "decode=fast-idct"]
    assert "boxes=offset" in done.out
    assert "Combined noise, step by step" in (tmp_path / "s.html").read_text()
    done = holdfast(
        "noise", "combine", *blobs, "--only", "decode=fast-idct,boxes=offset", "--csv", "--jobs", 1
    )
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert [float(r["step points lost high"]) for r in rows] == pytest.approx(
        [s["extra_high"] for s in steps]
    )
    assert [int(r["changed"]) for r in rows] == [s["changed"] for s in steps]


def test_a_noise_of_ones_own(holdfast, tiny, tmp_path):
    own = tmp_path / "mine.py"
    own.write_text(
        "from holdfast import stage\n"
        "def dark(image):\n    return image // 2\n"
        "@stage('noise', family='mine', systems='my target')\n"
        "def half_light(pipeline):\n    'Half the light.'\n    return pipeline.replace(colour=dark)\n"
        "@stage('resize', 'mine-nearest')\n"
        "def nearest(image, size):\n    'Every k-th pixel.'\n"
        "    import numpy as np\n"
        "    rows = np.arange(size.height) * image.shape[0] // size.height\n"
        "    return image[rows][:, np.arange(size.width) * image.shape[1] // size.width]\n"
    )
    for jobs in (1, 2):
        done = holdfast(
            "noise", *tiny, "--use", own, "--only", "mine", "--only", "resize=mine-nearest",
            "--json", "o.json", "--jobs", jobs, "--runs", f"runs{jobs}",
        )  # fmt: skip
        assert done.code == 0, done.err
        rows = {r["option"]: r for r in json.loads((tmp_path / "o.json").read_text())["models"][0]["rows"]}
        assert rows["half-light"]["changed"] > 0
        assert rows["mine-nearest"]["outcome"] == "measured"


def test_pictures_are_shown_and_kept(holdfast, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (90, 120, 3)).astype(np.uint8)
    (tmp_path / "p.jpg").write_bytes(making.jpeg(pixels, quality=70))
    done = holdfast(
        "noise",
        "show",
        "p.jpg",
        "--only",
        "decode",
        "--only",
        "colour=nv12",
        "--folder",
        "kept",
        "-o",
        "p.html",
    )
    assert done.code == 0
    assert "decode=fast-idct" in done.out
    noised = np.asarray(Image.open(tmp_path / "kept" / "colour-nv12-noised.png")).astype(int)
    original = np.asarray(Image.open(tmp_path / "kept" / "colour-nv12-original.png")).astype(int)
    difference = np.asarray(Image.open(tmp_path / "kept" / "colour-nv12-difference.png"))
    gap = np.abs(noised - original)
    assert difference.max() == 255
    factor = 255.0 / np.percentile(gap, 99.5)
    np.testing.assert_array_equal(difference, (gap * factor).round().clip(0, 255))
    assert (tmp_path / "p.html").read_text().count("data:image/") >= 6


def test_what_cannot_be_shown_is_told_with_the_file(fails, tmp_path):
    Image.new("RGB", (40, 30), "red").save(tmp_path / "p.jpg")
    (tmp_path / "cut.jpg").write_bytes((tmp_path / "p.jpg").read_bytes()[:-60])
    assert "cut.jpg: the image ends inside its header" in fails("noise", "show", "cut.jpg")
    told = fails("diagnose", "signs-class", "cut.jpg", "--deploy", "decode=zune")
    assert "cut.jpg: cannot be decoded" in told  # nothing was compared: that is not to agree
    assert "need --model" in fails("noise", "show", "p.jpg", "--only", "ceil")


def test_feature_maps_of_a_model_are_shown(holdfast, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (90, 120, 3)).astype(np.uint8)
    (tmp_path / "p.jpg").write_bytes(making.jpeg(pixels))
    done = holdfast(
        "noise",
        "show",
        "p.jpg",
        "--model",
        "signs-class",
        "--only",
        "ceil",
        "--only",
        "precision=int8",
        "-o",
        "p.html",
    )
    assert done.code == 0
    assert re.search(r"ceil=ceil .*feature map", done.out)
    assert re.search(r"precision=int8-minmax .*feature map", done.out)
    assert "note     precision=int8 means precision=int8-minmax (" in done.err


def test_a_diagnosis_names_the_stage_and_the_share_of_each(holdfast, blobs, tmp_path):
    done = holdfast(
        "diagnose", *blobs, "--train", "decode=pillow", "--deploy", "decode=fast-idct,boxes=offset",
        "--json", "d.json", "-o", "d.html", "--jobs", 1,
    )  # fmt: skip
    assert done.code == 0
    assert "First stage that differs: decode" in done.out
    told = json.loads((tmp_path / "d.json").read_text())
    assert [s["label"] for s in told["loss"]["differences"]] == ["decode=fast-idct", "boxes=offset"]
    assert told["loss"]["points_lost"] > 0
    assert "Points lost by each difference" in (tmp_path / "d.html").read_text()


def test_a_dump_is_recognised(holdfast, tiny, tmp_path):
    from holdfast.core.pipeline import open_preparation, pipeline_of
    from holdfast.graph.load import load_model

    pixels = np.random.default_rng(0).integers(0, 255, (40, 50, 3)).astype(np.uint8)
    (tmp_path / "p.jpg").write_bytes(making.jpeg(pixels))
    model = load_model(tiny[0])
    target = pipeline_of(model.card).replace(decode="zune", resize="opencv-area")
    np.save(tmp_path / "dump.npy", open_preparation(target, model)((tmp_path / "p.jpg").read_bytes()).tensor)
    done = holdfast("diagnose", tiny[0], "p.jpg", "--input", "dump.npy")
    assert done.code == 0
    lines = done.out.splitlines()
    assert any(line.startswith("The target resizes like resize=opencv-area") for line in lines)
    assert any(line.startswith("The target decodes like decode=zune") for line in lines)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("noise",), None),
        (("noise", "signs-class"), "expected MODEL… DATA"),
        (("noise", "nowhere.onnx", "signs:0:2"), "nowhere.onnx"),
        (("noise", "signs-class", "nowhere"), "nowhere: no such"),
        (("noise", "signs-class", "signs:0:2", "--only", "resise"), "Did you mean 'resize'?"),
        (("noise", "signs-class", "signs:0:2", "--only", "boxes=offset"), "applies to the tasks detect"),
        (("noise", "signs-class", "signs:0:2", "--only", "decode=dali"), "not installed"),
        (("noise", "signs-class", "signs:0:2", "--csv", "--latex"), "expected one of --csv"),
        (("noise", "signs-class", "signs:0:2", "--use", "none.py"), "none.py"),
        (("noise", "signs-class", "signs:0:2", "--only", "boxes"), "boxes: not applicable to signs-class"),
        (
            ("noise", "signs-class", "signs:0:2", "--only", "decode=pillow"),
            "already part of the training",
        ),
        (("noise", "signs-class", "signs:0:2", "-o", "."), "--out .: is a folder"),
        (("noise", "signs-class", "signs:0:2", "--json", "/proc/x/y.json"), "--json /proc/x/y.json: cannot"),
        (("noise", "signs-class", "signs:0:2", "-o", "/proc/x/y.html"), "--out /proc/x/y.html: cannot"),
        (("noise", "signs-class", "signs:0:2", "--runs", "/dev/null"), "--runs /dev/null: is a file"),
        (("noise", "signs-class", "signs:0:2", "--runs", "/proc/x"), "--runs /proc/x: cannot write"),
        (("noise", "combine", "signs-class", "signs:0:2", "--runs", "/dev/null"), "--runs /dev/null: is a"),
        (("noise", "combine", "signs-class", "signs:0:2", "-o", "/proc/x/y"), "--out /proc/x/y: cannot"),
        (("noise", "show", "none.jpg", "-o", "/proc/x/y.html"), "--out /proc/x/y.html: cannot write"),
        (("noise", "show", "none.jpg", "--folder", "/dev/null"), "--folder /dev/null: is a file"),
        (("noise", "show", "none.jpg", "--folder", "/proc/x"), "--folder /proc/x: cannot write"),
        (("noise", "x.onnx", "piqa", "--task", "language", "--runs", "/dev/null"), "--runs /dev/null: is a"),
        (("noise", "x.onnx", "clips", "--task", "speech", "--json", "/proc/x/y"), "--json /proc/x/y: cannot"),
        (("noise", "combine", "signs-class", "signs:0:2", "--json", "."), ".: is a folder"),
        (("noise", "show", "none.jpg"), "none.jpg: no such image file"),
        (("noise", "show", "none.jpg", "-o", "."), ".: is a folder"),
        (("diagnose", "signs-class", "signs:0:2"), "expected --deploy"),
        (("diagnose", "signs-class", "signs:0:2", "--deploy", "decode"), "expected FAMILY=OPTION"),
        (("diagnose", "signs-class", "signs:0:2", "--deploy", "decode=fast"), "Did you mean 'fast-idct'?"),
        (("diagnose", "signs-class", "signs:0:2", "--deploy", "boxes=offset"), "applies to the tasks detect"),
        (
            ("diagnose", "signs-class", "signs:0:2", "--deploy", "decode=zune,decode=ijg"),
            "replaces the first",
        ),
        (("diagnose", "signs-class", "signs:0:2", "--input", "x.npy"), "expected a folder of .npy files"),
    ],
)
def test_bad_input_gets_one_clear_line(holdfast, fails, words, said):
    if said is None:
        done = holdfast(*words)
        assert done.code == 2
        assert "holdfast noise" in done.err
    else:
        assert said in fails(*words)


def test_what_cannot_be_written_is_told_before_anything_is_run(fails, tiny, tmp_path):
    """Nothing is swept: no progress, no cells."""
    for words in (("--json", "/proc/x/y.json"), ("-o", "/proc/x/y.html")):
        fails("noise", *tiny, *QUICK, *words, "--jobs", 1)
        fails("noise", "combine", *tiny, *QUICK, *words, "--jobs", 1)
    assert not list((tmp_path / "holdfast-runs").rglob("*.json"))


def test_the_tables_are_printed_even_if_the_disk_fails_at_the_end(holdfast, tiny, monkeypatch):
    from holdfast.core.errors import OutputError
    from holdfast.noise import cli as noise_cli

    def full(path, value):
        raise OutputError(f"{path}: could not be written: No space left on device")

    monkeypatch.setattr(noise_cli, "write_json", full)
    done = holdfast("noise", *tiny, *QUICK, "--json", "n.json", "--jobs", 1)
    assert done.code == 2
    assert "No space left" in done.err
    assert "opencv-nearest" in done.out


def test_upsample_is_tried_on_a_classifier_and_listed_so(holdfast, tiny, tmp_path):
    done = holdfast("noise", *tiny, "--only", "upsample", "--json", "u.json", "--jobs", 1)
    assert done.code == 0, done.err
    (model,) = json.loads((tmp_path / "u.json").read_text())["models"]
    assert {(r["outcome"], r["note"]) for r in model["rows"]} == {
        ("no effect", "no Resize or Upsample in the graph")
    }
    assert holdfast("noise", *tiny, "--only", "upsample=upsample-nearest", "--jobs", 1).code == 0
    listed = csv.DictReader(io.StringIO(holdfast("noise", "list", "--csv").out))
    assert {r["tasks"] for r in listed if r["family"] == "upsample"} == {"Cls/Det/Seg/Single"}


@pytest.mark.parametrize("broken", ["def (", "import nothing_of_this_name", "1 / 0"])
def test_a_broken_file_of_noises_is_told_with_its_line(fails, tmp_path, broken):
    (tmp_path / "bad.py").write_text(f"x = 1\n{broken}\n")
    said = fails("noise", "signs-class", "signs:0:2", "--use", "bad.py")
    assert "bad.py" in said
    assert "2" in said


def test_grey_cmyk_and_tiny_pictures_go_through_every_noise(holdfast, tiny, tmp_path):
    folder = tmp_path / "odd" / "dark"
    folder.mkdir(parents=True)
    noise = np.random.default_rng(0).integers(0, 90, (33, 29, 3)).astype(np.uint8)
    picture = Image.fromarray(noise)
    picture.convert("L").save(folder / "grey.jpg")
    picture.convert("CMYK").save(folder / "cmyk.jpg")
    Image.fromarray(noise[:1, :1]).save(folder / "one.jpg")
    picture.save(folder / "progressive.jpg", progressive=True)
    (tmp_path / "odd" / "bright").mkdir()
    Image.fromarray(noise + 150).save(tmp_path / "odd" / "bright" / "plain.jpg")
    done = holdfast("noise", tiny[0], "odd", "--skip", "runtime", "--jobs", 1, "--json", "odd.json")
    assert done.code == 0, done.err
    (model,) = json.loads((tmp_path / "odd.json").read_text())["models"]
    assert model["images"] == 5
    assert {r["option"]: r["failed"] for r in model["rows"] if r["failed"]} == {}


def test_a_fixed_batch_is_filled_and_other_shapes_are_told(holdfast, fails, tiny, tmp_path):
    import onnx

    model = onnx.load(tiny[0])
    for value in (model.graph.input[0], model.graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_value = 4
    four = tmp_path / "models" / "four.onnx"
    onnx.save(model, four)
    four.with_suffix(".toml").write_text((tmp_path / "models" / "tiny.toml").read_text())
    words = ("--only", "resize=opencv-nearest", "--only", "precision=int8", "--jobs", 1, "--json")
    done = holdfast("noise", tiny[0], four, tiny[1], *words, "f.json")
    assert done.code == 0
    one, other = json.loads((tmp_path / "f.json").read_text())["models"]
    assert one["clean"] == other["clean"]
    assert [r["points_lost"] for r in one["rows"]] == [r["points_lost"] for r in other["rows"]]
    model.graph.input.append(onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, [1]))
    onnx.save(model, four)
    assert "the card does not feed the input z" in fails("noise", four, tiny[1], "--only", "resize")


def test_the_name_of_a_product_leads_to_its_options(fails):
    problem = fails("noise", "signs-class", "signs:0:2", "--only", "PIL")
    assert "unknown noise family or option 'PIL'. Did you mean 'decode=pillow'" in problem
    assert "unknown noise family 'PIL'" in fails("noise", "signs-class", "signs:0:2", "--only", "PIL=x")


def test_progress_says_what_is_running(holdfast):
    done = holdfast(
        "noise", "combine", "signs-class", "signs:0:4", "--only", "resize=opencv-nearest,colour=nv12"
    )
    assert "combine signs-class, no noise: " in done.err
    assert "combine signs-class, step 1, 2 options: " in done.err

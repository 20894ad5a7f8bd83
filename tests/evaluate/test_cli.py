"""`holdfast evaluate`, `data`, `doctor` as a user runs them."""

import csv
import io
import json
import os

import pytest

from helpers import models as making
from holdfast import __version__
from holdfast.metrics.coco import KEYS


@pytest.fixture
def blobs(tmp_path):
    making.detector(tmp_path)
    making.blob_coco(tmp_path / "data", 12)
    return tmp_path


def test_a_detector_on_coco_data(holdfast, blobs):
    done = holdfast("evaluate", "blobs.onnx", "data", "--jobs", 1, "--json", "o.json")
    assert done.code == 0, done
    assert "12 images. Rule coco: 101-point AP" in done.out
    numbers = json.loads((blobs / "o.json").read_text())
    assert set(KEYS) < set(numbers)
    assert numbers["AP"] == 1.0
    assert numbers["APl"] is None
    assert numbers["per_class"]["blob"]["truth"] == 12
    assert "run      holdfast-runs/blobs-on-data" in done.err


@pytest.mark.parametrize("rule", ["voc", "voc2007", "lecture"])
def test_the_rule_is_named_beside_the_number(holdfast, blobs, rule):
    done = holdfast("evaluate", "blobs.onnx", "data", "--jobs", 1, "--rule", rule, "--json", "o.json")
    assert done.code == 0
    assert f"{rule}: " in done.out
    assert json.loads((blobs / "o.json").read_text())["mAP"] == pytest.approx(1.0)


def test_csv_and_markdown(holdfast, blobs):
    done = holdfast("evaluate", "blobs.onnx", "data", "--jobs", 1, "--csv")
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert [row["class"] for row in rows] == ["all classes", "blob"]
    assert [float(row["AP"]) for row in rows] == [1.0, 1.0]
    done = holdfast("evaluate", "blobs.onnx", "data", "--jobs", 1, "--markdown")
    assert "| blob | 1.000 |" in done.out


def test_two_processes_give_the_same_as_one(holdfast, blobs):
    making.blob_coco(blobs / "more", 60, seed=1)
    for jobs in (1, 2):
        done = holdfast(
            "evaluate", "blobs.onnx", "more", "--jobs", jobs, "--runs", f"r{jobs}", "--json", f"{jobs}.json"
        )
        assert done.code == 0
    one, two = (json.loads((blobs / f"{n}.json").read_text()) for n in (1, 2))
    one.pop("run"), two.pop("run")
    assert one == two


def test_only_the_first_images(holdfast, blobs):
    done = holdfast("evaluate", "blobs.onnx", "data", "--jobs", 1, "--images", 5)
    assert "5 images." in done.out


def test_another_stage_is_another_run_and_can_be_compared(holdfast, blobs):
    assert holdfast("evaluate", "blobs.onnx", "data", "--jobs", 1).code == 0
    done = holdfast(
        "evaluate", "blobs.onnx", "data", "--jobs", 1, "--stage", "resize=opencv-area", "--against",
        "holdfast-runs/blobs-on-data",
    )  # fmt: skip
    assert done.code == 0
    assert "AP (coco, n = 12): 0.00 points lost, no difference on any image" in done.out
    assert "blobs-on-data-resize-opencv-area" in done.err


def test_classes_in_common(holdfast, fails, blobs):
    content = json.loads((blobs / "data/annotations.json").read_text())
    content["categories"].append({"id": 7, "name": "other"})
    content["annotations"].append(
        {"id": 99, "image_id": 0, "category_id": 7, "bbox": [1, 1, 5, 5], "area": 25}
    )
    (blobs / "data/annotations.json").write_text(json.dumps(content))
    assert "class mismatch" in fails("evaluate", "blobs.onnx", "data", "--jobs", 1)
    done = holdfast("evaluate", "blobs.onnx", "data", "--jobs", 1, "--classes", "common")
    assert done.code == 0
    assert "skipped 1 classes of the dataset" in done.err


def test_classes_renamed(holdfast, blobs):
    text = (blobs / "data/annotations.json").read_text()
    (blobs / "data/annotations.json").write_text(text.replace('"blob"', '"bright square"'))
    assert holdfast("evaluate", "blobs.onnx", "data", "--jobs", 1, "--map", "bright square=blob").code == 0


def test_explain_on_a_run(holdfast, blobs):
    done = holdfast("evaluate", "blobs.onnx", "data", "--jobs", 1, "--explain", "--class", "blob")
    for words in (
        "1. Detections by descending score",
        "2. Score threshold",
        "3. Eleven recalls",
        "AP 1.0000",
    ):
        assert words in done.out


def test_explain_alone_is_the_lectures_example(holdfast, tmp_path):
    done = holdfast("evaluate", "--explain", "--json", "o.json")
    assert done.code == 0
    assert "At score > 0.9: TP 2, FP 0, FN 2" in done.out
    assert "At score > 0.7: TP 3, FP 2, FN 1" in done.out
    at = json.loads((tmp_path / "o.json").read_text())["at_score"]
    assert at == {"0.9": {"tp": 2, "fp": 0, "fn": 2}, "0.7": {"tp": 3, "fp": 2, "fn": 1}}


def test_truth_and_predictions(holdfast, blobs):
    content = json.loads((blobs / "data/annotations.json").read_text())
    found = [
        {k: a[k] for k in ("image_id", "category_id", "bbox")} | {"score": 0.9}
        for a in content["annotations"]
    ]
    (blobs / "dt.json").write_text(json.dumps(found[:6]))
    arguments = ["evaluate", "--truth", "data/annotations.json", "--predictions", "dt.json"]
    done = holdfast(*arguments, "--json", "o.json", "--explain")
    assert done.code == 0, done
    numbers = json.loads((blobs / "o.json").read_text())
    assert numbers["AR100"] == 0.5
    assert numbers["at_score"]["fn"] == 6
    assert "AP step by step" in done.out


def test_a_finished_run_is_found_again_and_damage_is_repaired(holdfast, blobs):
    assert holdfast("evaluate", "blobs.onnx", "data", "--jobs", 1).code == 0
    cell, *others = (blobs / "holdfast-runs/cells").glob("*/*.json")
    assert len(others) == 11
    again = holdfast("evaluate", "blobs.onnx", "data", "--jobs", 1)
    assert "(12 were cached)" in again.err
    cell.write_bytes(cell.read_bytes()[:100])
    repaired = holdfast("evaluate", "blobs.onnx", "data", "--jobs", 1)
    assert repaired.code == 0
    assert "(11 were cached)" in repaired.err


def test_a_changed_image_is_evaluated_again(holdfast, blobs):
    assert holdfast("evaluate", "blobs.onnx", "data", "--jobs", 1).code == 0
    (blobs / "data/images/000.jpg").write_bytes((blobs / "data/images/001.jpg").read_bytes())
    done = holdfast("evaluate", "blobs.onnx", "data", "--jobs", 1)
    assert "(11 were cached)" in done.err


def test_images_that_were_evaluated_serve_any_other_number_of_them(holdfast, blobs):
    assert holdfast("evaluate", "blobs.onnx", "data", "--jobs", 1, "--images", 7).code == 0
    fewer = holdfast("evaluate", "blobs.onnx", "data", "--jobs", 1, "--images", 3)
    assert "(3 were cached)" in fewer.err
    more = holdfast("evaluate", "blobs.onnx", "data", "--jobs", 1)
    assert "(7 were cached)" in more.err


def test_data_info_and_data_make(holdfast, tmp_path):
    made = holdfast("data", "make", "signs", "scenes", "--images", 3, "--seed", 5)
    assert made.code == 0, made
    info = holdfast("data", "info", "scenes", "--json", "info.json")
    assert info.code == 0, info
    assert "coco" in info.out
    assert "3" in info.out
    assert json.loads((tmp_path / "info.json").read_text())["images"] == 3


def test_version_help_and_doctor(holdfast):
    assert holdfast("--version").out == f"holdfast {__version__}\n"
    assert "evaluate" in holdfast("--help").out
    found = holdfast("doctor")
    assert found.code == 0
    for name in ("onnxruntime", "cpu features", "pillow"):
        assert name in found.out


def test_no_command_shows_the_commands(holdfast):
    done = holdfast()
    assert done.code == 2
    assert "evaluate" in done.err
    assert not done.err.startswith("holdfast:")


def test_a_list_of_numbers_takes_the_models_classes(holdfast, fails, tmp_path):
    making.classifier(tmp_path)
    making.image_folder(tmp_path / "data", 6)
    files = sorted((tmp_path / "data").rglob("*.jpg"))
    lines = [f"{p.relative_to(tmp_path / 'data')} {int(p.parent.name == 'bright')}" for p in files]
    (tmp_path / "data" / "val.txt").write_text("\n".join(lines))
    done = holdfast("evaluate", "tiny.onnx", "data/val.txt", "--jobs", 1, "--json", "o.json")
    assert done.code == 0, done
    assert set(json.loads((tmp_path / "o.json").read_text())["per_class"]) == {"dark", "bright"}
    (tmp_path / "data" / "val.txt").write_text("\n".join([*lines[:-1], lines[-1][:-1] + "7"]))
    line = fails("evaluate", "tiny.onnx", "data/val.txt", "--jobs", 1)
    assert "got class 7 of the dataset, expected 0 to 1" in line


def test_model_info_and_card(holdfast, fails, tmp_path):
    making.classifier(tmp_path).with_suffix(".toml").unlink()
    info = holdfast("model", "info", "tiny.onnx", "--json", "info.json")
    assert info.code == 0, info
    assert "head: classifier, because" in info.out
    assert json.loads((tmp_path / "info.json").read_text())["info"]["opset"] == 17
    card = holdfast("model", "card", "tiny.onnx")
    assert card.code == 0
    assert "card written: tiny.toml" in card.out
    assert 'name = "classifier"' in (tmp_path / "tiny.toml").read_text()
    assert "--force" in fails("model", "card", "tiny.onnx")


def test_the_shell_completes(tmp_path):
    import subprocess
    import sys

    words = {"_HOLDFAST_COMPLETE": "complete_bash", "COMP_WORDS": "holdfast ev", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "holdfast"],
        env={**os.environ, **words},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["evaluate"], done


def test_runs_of_other_models_or_images_do_not_overwrite_each_other(holdfast, tmp_path):
    making.image_folder(tmp_path / "data", 8)
    making.classifier(tmp_path / "v1", "best")
    making.classifier(tmp_path / "v2", "best", scale=2.0)
    for arguments in (
        ["v1/best.onnx", "data"],
        ["v2/best.onnx", "data"],
        ["v1/best.onnx", "data", "--images", 4],
    ):
        for _ in range(2):  # the same again goes to the same folder
            assert holdfast("evaluate", *arguments, "--jobs", 1).code == 0
    names = sorted(p.parent.name for p in (tmp_path / "holdfast-runs").glob("*/run.json"))
    assert len(names) == 3, names
    assert names[0] == "best-on-data"


def test_a_changed_card_or_rule_is_another_run(holdfast, blobs):
    assert holdfast("evaluate", "blobs.onnx", "data", "--jobs", 1).code == 0
    assert holdfast("evaluate", "blobs.onnx", "data", "--jobs", 1, "--rule", "voc").code == 0
    card = blobs / "blobs.toml"
    card.write_text(card.read_text().replace("score = 0.1", "score = 0.9"))
    for _ in range(2):  # the second time the run compared with is still there
        done = holdfast(
            "evaluate", "blobs.onnx", "data", "--jobs", 1, "--against", "holdfast-runs/blobs-on-data"
        )
        assert done.code == 0
    before = json.loads((blobs / "holdfast-runs/blobs-on-data/run.json").read_text())
    assert before["about"]["model"]["card"]["score"] == 0.1
    assert len(list((blobs / "holdfast-runs").glob("*/run.json"))) == 3


def test_an_image_that_is_listed_but_missing_is_a_failure(holdfast, fails, blobs):
    (blobs / "data/images/003.jpg").unlink()
    done = holdfast("evaluate", "blobs.onnx", "data", "--jobs", 1)
    assert done.code == 4, done
    assert "1 of 12 images failed" in done.err
    assert "003.jpg" in done.err
    assert "003.jpg" in fails("evaluate", "blobs.onnx", "data", "--jobs", 1, "--strict")


def test_csv_is_csv_alone_and_has_the_overall_numbers(holdfast, blobs):
    assert holdfast("evaluate", "blobs.onnx", "data", "--jobs", 1).code == 0
    done = holdfast(
        "evaluate",
        "blobs.onnx",
        "data",
        "--jobs",
        1,
        "--csv",
        "--explain",
        "--against",
        "holdfast-runs/blobs-on-data",
    )
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert [row["class"] for row in rows] == ["all classes", "blob"]
    assert float(rows[0]["AP50"]) == 1.0
    assert "points lost" in done.err
    assert "no difference on any image" in done.err


def test_rules_are_refused_where_there_is_no_ap(fails, tmp_path):
    making.classifier(tmp_path)
    making.image_folder(tmp_path / "data", 4)
    line = fails("evaluate", "tiny.onnx", "data", "--jobs", 1, "--rule", "voc", "--iou", 0.9)
    assert "--rule, --iou: only detectors have an AP; this model's task is classify" in line


def test_json_goes_through_links_and_pipes(holdfast, blobs):
    import threading

    (blobs / "real.json").write_text("old")
    (blobs / "link.json").symlink_to("real.json")
    assert holdfast("evaluate", "--explain", "--json", "link.json").code == 0
    assert (blobs / "link.json").is_symlink()
    assert json.loads((blobs / "real.json").read_text())["at_score"]
    os.mkfifo(blobs / "fifo")
    heard = []
    listener = threading.Thread(target=lambda: heard.append((blobs / "fifo").read_bytes()))
    listener.start()
    assert holdfast("evaluate", "--explain", "--json", "fifo").code == 0
    listener.join(10)
    assert json.loads(heard[0])["at_score"]


def test_the_page_shows_no_boxes_on_an_image_that_was_changed(holdfast, blobs):
    assert holdfast("evaluate", "blobs.onnx", "data", "--jobs", 1, "--score", 0.1).code == 0
    run = next((blobs / "holdfast-runs").glob("blobs*"))
    assert holdfast("report", run, "-o", "a.html").code == 0
    assert "data:image/jpeg" in (blobs / "a.html").read_text()
    for path in (blobs / "data/images").iterdir():
        path.write_bytes(making.jpeg(making.np.full((64, 64, 3), 99, making.np.uint8)))
    assert holdfast("report", run, "-o", "b.html").code == 0
    assert "data:image/jpeg" not in (blobs / "b.html").read_text()


def test_points_lost_are_in_the_json_of_a_comparison(holdfast, blobs):
    assert holdfast("evaluate", "blobs.onnx", "data", "--jobs", 1).code == 0
    done = holdfast(
        "evaluate",
        "blobs.onnx",
        "data",
        "--jobs",
        1,
        "--against",
        "holdfast-runs/blobs-on-data",
        "--json",
        "o.json",
    )
    against = json.loads((blobs / "o.json").read_text())["against"]
    assert (against["points_lost"], against["low"], against["high"]) == (0.0, 0.0, 0.0)
    assert f"{against['points_lost']:.2f} points lost" in done.out


def test_top_and_all_classes_exclude_each_other(fails, blobs):
    words = ("evaluate", "blobs.onnx", "data", "--jobs", 1)
    assert "--top or --all-classes, not both" in fails(*words, "--top", 3, "--all-classes")


def test_the_curve_is_drawn_for_files_a_run_and_the_lectures_example(holdfast, blobs, tmp_path):
    assert holdfast("evaluate", "--explain", "-o", "lecture.html").code == 0
    text = (tmp_path / "lecture.html").read_text()
    for word in ("<svg", "Precision over recall", "(8 × 1.0000 + 3 × 0.0000) / 11"):
        assert word in text
    done = holdfast(
        "evaluate", "blobs.onnx", "data", "--jobs", 1, "--predictions-out", "p.json", "-o", "run.html"
    )
    assert done.code == 0, done
    truth = next((tmp_path / "data").rglob("*.json"))
    files = ("--truth", truth, "--predictions", "p.json", "--explain", "-o", "files.html")
    assert holdfast("evaluate", *files).code == 0
    for name in ("run.html", "files.html"):
        assert "Precision over recall" in (tmp_path / name).read_text()
    assert "AP step by step" in (tmp_path / "files.html").read_text()

"""Mistakes of a target, made by independent code, and whether its predictions alone show them.

    python benchmarks/diagnose_predictions.py [MISTAKE ...] [--groups 3] [--write]

YOLOX-nano on groups of eight coco128 images: ONNX Runtime on the dumps of `diagnose_dumps`, and independent
decoding and non-maximum suppression. Mistakes are of the preprocessing or of what follows the network.
The target's detections of one group are one case. Outcomes are those of `benchmarks/diagnose.py`.

--write writes benchmarks/results/diagnose-predictions.{json,md} after a run of all mistakes. Models and
images are in HOLDFAST_DATA or ../shared/data. Times are CPU seconds of all threads.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

sys.path.insert(0, str(Path(__file__).resolve().parent))

from diagnose import DATA
from diagnose_dumps import Chain, content_size, decoded, dump
from diagnose_mistakes import CLEAN, MISTAKES, Kinds
from diagnose_results import OUTCOMES, RESULTS, commit, judge
from holdfast.core.pipeline import load_pipeline, pipeline_of
from holdfast.core.sources import versions
from holdfast.core.types import Detections
from holdfast.diagnose.predicted import FileDetections
from holdfast.diagnose.predictions import diagnose_predictions
from holdfast.graph.load import load_model
from holdfast.report.tables import Table, to_markdown, to_text

MODEL = "yolox_nano"
STRIDES = (8, 16, 32)
GROUP = 8  # images
# COCO's category ids skip eleven numbers below 91; the model numbers its 80 classes without gaps.
MISSING_IDS = (12, 26, 29, 30, 45, 66, 68, 69, 71, 83, 91)
COCO_IDS = np.array([number for number in range(1, 91) if number not in MISSING_IDS])


@dataclass(frozen=True)
class Finish:
    """What the target does after the network."""

    score: float = 0.001
    iou: float = 0.65  # 1: no suppression
    agnostic: bool = False  # suppression across classes
    most: int = 100
    ids: str = "from 1"  # category ids: from 1 as in COCO results, from 0, from 2, coco or reversed
    form: str = "xywh"  # xywh as in COCO results, xyxy, yxyx or cxcywh
    normalised: bool = False  # to the sides of the image, or of the network's input if not undone
    undone: bool = True  # whether boxes are mapped back from the network's input to the image


@dataclass(frozen=True)
class TargetMistake:
    """Mistakes of the preprocessing by name, another finish, and the kinds that a correct answer names."""

    name: str
    needs: tuple[Kinds, ...]
    before: tuple[str, ...] = ()
    finish: Finish = field(default_factory=Finish)
    control: str = ""  # "jittered" or "shuffled": no cause of the vocabulary

    @property
    def allowed(self) -> Kinds:
        """All kinds that are not a wrong accusation."""
        return frozenset().union(*self.needs, *(MISTAKES[name].may for name in self.before))

    @property
    def expected(self) -> str:
        """The correct answer in words."""
        return "unknown" if self.control else ", ".join("|".join(sorted(g)) for g in self.needs) or "no cause"


PREPROCESSING = (
    "red-blue-swapped", "grey", "red-zero", "imagenet-mean-255", "limited-range", "gamma-2.2",
    "letterbox-centre", "stretch", "crop", "pad-0", "mirrored", "upside-down", "cv2-nearest", "twice-half",
    "nv12",
)  # fmt: skip
FINISHES: dict[str, tuple[str, dict[str, Any]]] = {
    "score-0.25": ("score threshold", {"score": 0.25}),
    "score-0.05": ("score threshold", {"score": 0.05}),
    "nms-0.45": ("NMS threshold", {"iou": 0.45}),
    "nms-0.9": ("NMS threshold", {"iou": 0.9}),
    "nms-agnostic": ("NMS threshold", {"agnostic": True, "iou": 0.45}),
    "no-nms": ("NMS threshold", {"iou": 1.0}),
    "ids-from-0": ("class offset", {"ids": "from 0"}),
    "ids-from-2": ("class offset", {"ids": "from 2"}),
    "coco-ids": ("class order", {"ids": "coco"}),
    "ids-reversed": ("class order", {"ids": "reversed"}),
    "xyxy": ("box format", {"form": "xyxy"}),
    "yxyx": ("box format", {"form": "yxyx"}),
    "cxcywh": ("box format", {"form": "cxcywh"}),
    "normalised": ("box format", {"normalised": True}),
    "cxcywh-normalised": ("box format", {"form": "cxcywh", "normalised": True}),
    "letterbox-not-undone": ("letterbox", {"undone": False}),
    "letterbox-normalised": ("letterbox", {"undone": False, "normalised": True}),
}
COMBINED = (
    ("red-blue-swapped", "score-0.25"),
    ("imagenet-mean-255", "xyxy"),
    ("stretch", "nms-0.45"),
    ("pad-0", "ids-from-0"),
    ("letterbox-centre", "normalised"),
)


def target_mistakes() -> Iterator[TargetMistake]:
    """All rows of the table."""
    for name in PREPROCESSING:
        yield TargetMistake(name, MISTAKES[name].needs, (name,))
    for name in FINISHES:
        needs, finish = finish_of(name)
        yield TargetMistake(name, needs, (), finish)
    for before, after in COMBINED:
        needs, finish = finish_of(after)
        yield TargetMistake(f"{before}+{after}", (*MISTAKES[before].needs, *needs), (before,), finish)
    yield TargetMistake("clean", ())
    yield TargetMistake("jittered", (), control="jittered")
    yield TargetMistake("shuffled", (), control="shuffled")


def finish_of(name: str) -> tuple[tuple[Kinds, ...], Finish]:
    """The required kinds of a mistake after the network, and what it does."""
    needs, values = FINISHES[name]
    return (frozenset(needs.split("|")),), replace(Finish(), **values)


def candidates(raw: np.ndarray, size: tuple[int, int], least: float) -> tuple[np.ndarray, ...]:
    """Boxes (n, 4) xyxy in pixels of the network's input, scores and classes of YOLOX cells (n, 5 + k)."""
    cells = raw.astype(np.float64)
    places, steps = [], []
    for stride in STRIDES:
        y, x = np.mgrid[: size[1] // stride, : size[0] // stride]
        places.append(np.stack([x.ravel(), y.ravel()], 1))
        steps.append(np.full((x.size, 1), stride))
    stride = np.concatenate(steps)
    centre, side = (cells[:, :2] + np.concatenate(places)) * stride, np.exp(cells[:, 2:4]) * stride
    scores = cells[:, 5:] * cells[:, 4:5]
    best = scores.max(1)
    keep = best >= least
    return np.hstack([centre - side / 2, centre + side / 2])[keep], best[keep], scores.argmax(1)[keep]


def suppressed(boxes: np.ndarray, scores: np.ndarray, classes: np.ndarray, iou: float) -> np.ndarray:
    """Indices that class-wise non-maximum suppression keeps, the best score first."""
    kept: list[int] = []
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    for i in np.argsort(-scores, kind="stable"):
        same = [j for j in kept if classes[j] == classes[i]]
        sides = np.minimum(boxes[same, 2:], boxes[i, 2:]) - np.maximum(boxes[same, :2], boxes[i, :2])
        common = np.clip(sides, 0, None).prod(1)
        if not (common > iou * (areas[same] + areas[i] - common)).any():
            kept.append(int(i))
    return np.array(kept, np.int64)


def finished(
    raw: np.ndarray, chain: Chain, finish: Finish, size: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Boxes, scores and category ids as the target writes them, of an image of that width and height."""
    boxes, scores, classes = candidates(raw, chain.size, finish.score)
    labels = np.zeros_like(classes) if finish.agnostic else classes
    keep = suppressed(boxes, scores, labels, finish.iou)[: finish.most]
    boxes, scores, classes = boxes[keep], scores[keep], classes[keep]
    limits = chain.size
    if finish.undone:
        new, limits = content_size(chain, *size), size
        start = [0.0, 0.0]
        if chain.policy == "crop" or chain.place == "centre":
            start = [(a - b) // 2 for a, b in zip(chain.size, new, strict=True)]
        boxes = (boxes - start * 2) * (np.array(size) / new)[[0, 1, 0, 1]]
    boxes = np.clip(boxes, 0, np.array([*limits, *limits]))
    if finish.normalised:
        boxes = boxes / np.array([*limits, *limits])
    sides = boxes[:, 2:] - boxes[:, :2]
    if finish.form == "xywh":
        boxes = np.hstack([boxes[:, :2], sides])
    elif finish.form == "cxcywh":
        boxes = np.hstack([boxes[:, :2] + sides / 2, sides])
    elif finish.form == "yxyx":
        boxes = boxes[:, [1, 0, 3, 2]]
    own = np.arange(80)
    ids = {"from 0": own, "from 1": own + 1, "from 2": own + 2, "coco": COCO_IDS, "reversed": 80 - own}
    return boxes, scores, ids[finish.ids][classes]


class Target:
    """The detector in ONNX Runtime."""

    def __init__(self) -> None:
        self.session = onnxruntime.InferenceSession(DATA / "models" / f"{MODEL}.onnx")
        self.input = self.session.get_inputs()[0].name

    def detections(self, mistake: TargetMistake, files: Mapping[str, bytes]) -> dict[str, FileDetections]:
        """The detections of all images with a mistake."""
        chain, rng = CLEAN[MODEL], np.random.default_rng(0)
        for name in mistake.before:
            chain = MISTAKES[name].change(chain)
        answers = {}
        for name, data in files.items():
            raw = self.session.run(None, {self.input: dump(chain, data)})[0][0]
            height, width = decoded("pillow", data).shape[:2]
            boxes, scores, ids = finished(raw, chain, mistake.finish, (width, height))
            if mistake.control == "jittered":
                boxes = boxes + rng.normal(0, 20, boxes.shape)
            answers[name] = FileDetections(boxes, scores, ids)
        if mistake.control == "shuffled":
            answers = dict(
                zip(answers, [*list(answers.values())[1:], answers[next(iter(answers))]], strict=True)
            )
        return answers


def groups_of(count: int) -> list[dict[str, bytes]]:
    """The first images of coco128 in groups."""
    paths = sorted((DATA / "coco128" / "images" / "val2017").glob("*.jpg"))[: count * GROUP]
    return [{p.name: p.read_bytes() for p in paths[i : i + GROUP]} for i in range(0, len(paths), GROUP)]


def check_clean(target: Target, files: Mapping[str, bytes]) -> None:
    """Exit if the clean detections are not those of the model up to rounding."""
    model = load_model(DATA / "models" / f"{MODEL}.onnx")
    own = load_pipeline(pipeline_of(model.card), model)
    for name, made in target.detections(TargetMistake("clean", ()), files).items():
        wanted = own.predict(own.prepare(files[name]))
        assert isinstance(wanted, Detections)
        boxes = np.hstack([wanted.boxes[:, :2], wanted.boxes[:, 2:] - wanted.boxes[:, :2]])
        same = len(made.scores) == len(wanted) and np.array_equal(made.categories, wanted.classes + 1)
        if not same or not np.allclose(made.numbers, boxes, atol=0.01):
            sys.exit(f"{name}: the clean detections are not those of the model")


def run(chosen: Sequence[TargetMistake], groups: Sequence[dict[str, bytes]]) -> list[dict[str, Any]]:
    """One result per mistake and group."""
    target, results = Target(), []
    check_clean(target, groups[0])
    model = load_model(DATA / "models" / f"{MODEL}.onnx")
    for mistake in chosen:
        for number, files in enumerate(groups):
            detections = target.detections(mistake, files)
            began = time.process_time()
            try:
                answer = diagnose_predictions(model, list(files.items()), detections)
            except Exception as problem:  # noqa: BLE001  (one crash must not lose the other cases)
                outcome, text = "failed", f"{type(problem).__name__}: {problem}"
            else:
                kinds = frozenset(cause.kind for cause in answer.causes)
                outcome = judge(mistake.needs, mistake.allowed, kinds, answer.explained)
                text = " ".join(cause.sentence for cause in answer.causes)
            seconds = time.process_time() - began
            correct = outcome == ("unknown" if mistake.control else "found")
            if not correct:
                print(f"{mistake.name}, group {number}: {outcome}: {text}", flush=True)
            one = {"mistake": mistake.name, "expected": mistake.expected, "group": number, "outcome": outcome}
            results.append({**one, "correct": correct, "text": text, "cpu_seconds": seconds})
    return results


def table_of(results: Sequence[dict[str, Any]]) -> Table:
    """One row per mistake."""
    rows: list[list[Any]] = []
    for name in dict.fromkeys(one["mistake"] for one in results):
        some = [one for one in results if one["mistake"] == name]
        counts = Counter(one["outcome"] for one in some)
        seconds = max(one["cpu_seconds"] for one in some)
        right = sum(one["correct"] for one in some)
        rows.append([name, some[0]["expected"], len(some), right, *(counts[o] for o in OUTCOMES), seconds])
    return Table(["mistake", "expected", "groups", "correct", *OUTCOMES, "largest CPU seconds"], rows)


def write(results: Sequence[dict[str, Any]], table: Table, command: str) -> None:
    """Write the results."""
    about = {
        "command": command,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "commit": commit(),
        "versions": versions(),
    }
    stem = RESULTS / "diagnose-predictions"
    text = json.dumps({**about, "rows": results}, indent=1, ensure_ascii=False)
    stem.with_suffix(".json").write_text(f"{text}\n")
    right = sum(one["correct"] for one in results)
    accused = sum(one["outcome"] == "wrongly accused" for one in results)
    told = f"{right} of {len(results)} cases of {GROUP} images answered correctly, {accused} wrongly accused."
    source = f"`{command}`, {about['date']}, {about['machine']}, commit {about['commit']}. {told}"
    head = "# Mistakes of a target, found in its predictions"
    stem.with_suffix(".md").write_text(f"{head}\n\n{source}\n\n{to_markdown(table)}\n")


def main() -> None:
    known = {mistake.name: mistake for mistake in target_mistakes()}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("mistakes", nargs="*", metavar="MISTAKE", help=f"of {', '.join(known)}; without: all")
    parser.add_argument("--groups", type=int, default=3, choices=range(1, 17))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.write and options.mistakes:
        parser.error("--write: expected a run of all mistakes")
    if not DATA.is_dir():
        sys.exit(f"no models and images at {DATA}; set HOLDFAST_DATA to their folder")
    if unknown := set(options.mistakes) - set(known):
        parser.error(f"no such mistake: {', '.join(sorted(unknown))}")
    chosen = [known[name] for name in options.mistakes or known]
    results = run(chosen, groups_of(options.groups))
    table = table_of(results)
    print(to_text(table))
    if options.write:
        write(results, table, f"python benchmarks/diagnose_predictions.py --groups {options.groups} --write")


if __name__ == "__main__":
    main()

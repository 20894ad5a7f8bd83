"""Mistakes of a target's preprocessing, made by independent code, and whether `holdfast diagnose` finds them.

    python benchmarks/diagnose.py [MISTAKE ...] [--models yolox_nano,efflite0,signs-yolo] [--images 5]
                                  [--pairs 20] [--jobs 2] [--keep FOLDER] [--log FILE]

MISTAKE is a name of the table, two names joined by + (both at once), "pairs" (random pairs), "clean" (dumps
without a mistake) or "unknown" (dumps whose cause is not in the vocabulary); without: all. Every case is one
dump of one image. A mistake that does not change the dump of an image is skipped there.

found             all causes are named, no other is, and the dump is explained up to rounding
wrongly accused   a cause is named that is not there
unknown           the dump is not explained
missed            the dump is reported as explained, but a cause is not named
failed            the diagnosis raises an error

--log appends each outcome to a file; a run with the same code and the same file continues there.
--keep writes the dumps of all cases that were not answered correctly, with the command to repeat each.
--write writes benchmarks/results/diagnose.{json,csv,md} after a run of all mistakes on all models.
Models and images are in HOLDFAST_DATA or ../shared/data; without them only the embedded model is run.
Times are CPU seconds of all threads, which other processes on the machine do not lengthen.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import itertools
import json
import multiprocessing
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from diagnose_dumps import Chain, differ, dump, file_bytes, grey_level
from diagnose_mistakes import CLEAN, CONTROLS, MISTAKES, UNKNOWN, Kinds, unknown_dump
from diagnose_results import (
    PAIRS,
    ROOT,
    Case,
    Outcome,
    judge,
    mistake_of,
    sentence,
    summary,
    table_of,
    write,
)
from holdfast.core.model import Model
from holdfast.core.pipeline import open_preparation, pipeline_of
from holdfast.data.open import open_dataset
from holdfast.diagnose.target import diagnose_input
from holdfast.graph.load import load_model
from holdfast.report.tables import to_text

DATA = Path(os.environ.get("HOLDFAST_DATA", ROOT.parent / "shared" / "data"))
COCO, IMAGENET = "coco128/images/val2017", "imagenet_sample/images"
IMAGES = {  # of many sizes and shapes, with and without subsampled chroma
    "yolox_nano": (
        f"{COCO}/000000001296.jpg", f"{COCO}/000000005586.jpg", "roadsign/images/road0.jpg",
        f"{COCO}/000000005600.jpg", "otonom/test/*.jpg",
    ),
    "efflite0": (
        f"{IMAGENET}/n03967562_plow.JPEG", f"{IMAGENET}/n03272010_electric_guitar.JPEG",
        f"{IMAGENET}/n04254120_soap_dispenser.JPEG", f"{IMAGENET}/n02879718_bow.JPEG",
        f"{IMAGENET}/n04286575_spotlight.JPEG",
    ),
}  # fmt: skip
EFFLITE0 = """\
task = "classify"
classes = [{classes}]
[input]
size = [224, 224]
mean = [127, 127, 127]
std = [128, 128, 128]
policy = "crop"
short_side = 256
[head]
name = "classifier"
"""


@functools.cache
def images_of(model: str) -> tuple[tuple[str, bytes], ...]:
    """Names and bytes of the images of a model."""
    if model not in IMAGES:
        samples = [entry.load() for entry in open_dataset("signs:0:5").entries]
        return tuple((sample.name, sample.data) for sample in samples)
    paths = [min(DATA.glob(pattern)) for pattern in IMAGES[model]]
    return tuple((path.name, path.read_bytes()) for path in paths)


@functools.cache
def model_of(name: str, folder: str) -> Model:
    """The model; `folder` is where the card of efflite0 is written."""
    if name not in IMAGES:
        return load_model(name)
    if name != "efflite0":
        return load_model(DATA / "models" / f"{name}.onnx")
    return load_model(DATA / "models" / "efflite0.onnx", card_of_efflite0(Path(folder)))


def card_of_efflite0(folder: Path) -> Path:
    """The card of efflite0, whose constants cannot be guessed."""
    path = folder / "efflite0.toml"
    text = EFFLITE0.format(classes=", ".join(f'"{i}"' for i in range(1000)))
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
    return path


def dump_of(chain: Chain, model: str, image: int) -> tuple[np.ndarray, bytes]:
    """The dump of a chain for one image, and the encoded image."""
    files = [data for _, data in images_of(model)]
    data = file_bytes(chain, files[image])
    return dump(chain, data, [*files[image + 1 :], *files[:image]][:3]), data


def visible(names: Sequence[str], model: str, image: int) -> bool:
    """Whether each of the mistakes changes the dump, also next to the other one."""
    clean = CLEAN[model]
    parts = [(), *itertools.combinations(names, 1), tuple(names)]
    chains = [mistake_of(part).change(clean) if part else clean for part in dict.fromkeys(parts)]
    dumps = [dump_of(chain, model, image)[0] for chain in chains]
    level = min(map(grey_level, chains))
    return all(differ(one, other, level) for one, other in itertools.combinations(dumps, 2))


def question(case: Case) -> tuple[np.ndarray, bytes, tuple[Kinds, ...], Kinds] | None:
    """The dump of a case, its image, and the required and allowed causes; None if nothing is visible."""
    clean = CLEAN[case.model]
    name = case.names[0]
    if name in CONTROLS:
        return *dump_of(CONTROLS[name](clean), case.model, case.image), (), frozenset()
    if name in UNKNOWN:
        files = [data for _, data in images_of(case.model)]
        made = unknown_dump(name, clean, files[case.image], files[case.image - 1])
        if not differ(made, dump(clean, files[case.image]), grey_level(clean)):
            return None
        return made, files[case.image], (), frozenset()
    if not visible(case.names, case.model, case.image):
        return None
    mistake = mistake_of(case.names)
    chain, allowed = mistake.change(clean), mistake.allowed
    if chain.short != clean.short:  # another short side before the crop may be named besides another size
        allowed |= {"geometry"}
    return *dump_of(chain, case.model, case.image), mistake.needs, allowed


def run_case(case: Case, folder: str, keep: Path | None) -> Outcome | None:
    """Diagnose the dump of a case; None if its mistake is not visible."""
    asked = question(case)
    if asked is None:
        return None
    array, data, needs, allowed = asked
    model = model_of(case.model, folder)
    began = time.process_time()
    try:
        answer = diagnose_input(model, [data], [array])
    except Exception as problem:  # noqa: BLE001  (one crash must not lose the other cases)
        outcome, kinds, text = "failed", (), f"{type(problem).__name__}: {problem}"
    else:
        kinds = tuple(cause.kind for cause in answer.causes)
        outcome = judge(needs, allowed, frozenset(kinds), answer.explained)
        text = " ".join(cause.sentence for cause in answer.causes)
    seconds = time.process_time() - began
    correct = outcome == ("unknown" if case.names[0] in UNKNOWN else "found")
    if keep is not None and not correct:
        keep_case(case, array, data, keep)
    return Outcome(case, images_of(case.model)[case.image][0], outcome, correct, kinds, text, seconds)


def keep_case(case: Case, array: np.ndarray, data: bytes, folder: Path) -> None:
    """Write the dump and the image, and a script that diagnoses them."""
    stem = "-".join([*case.names, case.model, str(case.image)]).replace("/", "_").replace(" ", "_")
    np.save(folder / f"{stem}.npy", array)
    (folder / f"{stem}.jpg").write_bytes(data)
    words = ["holdfast", "diagnose", case.model, f"{stem}.jpg", "--input", f"{stem}.npy"]
    if case.model in IMAGES:
        words[2] = str((DATA / "models" / f"{case.model}.onnx").resolve())
    if case.model == "efflite0":
        words += ["--card", card_of_efflite0(folder).name]
    (folder / f"{stem}.sh").write_text(shlex.join(words) + "\n")


def check_clean(model: str, folder: str) -> None:
    """Exit if the clean dump is not the model's own input up to rounding."""
    loaded = model_of(model, folder)
    prepare = open_preparation(pipeline_of(loaded.card), loaded)
    for image, (name, data) in enumerate(images_of(model)):
        ours, theirs = dump_of(CLEAN[model], model, image)[0], prepare(data).tensor
        if ours.shape != theirs.shape or np.abs(ours - theirs).max() > 0.001 * grey_level(CLEAN[model]):
            sys.exit(f"{model}, {name}: the clean dump is not the model's input")


def draw_pairs(model: str, images: int, count: int) -> Iterator[Case]:
    """Random pairs of mistakes that are visible together, always the same ones."""
    rng = np.random.default_rng([0, sorted(CLEAN).index(model)])
    clean, seen, names = CLEAN[model], set(), sorted(MISTAKES)
    while len(seen) < count:
        pair = tuple(names[i] for i in sorted(rng.choice(len(names), 2, replace=False)))
        image = int(rng.integers(images))
        fields = [MISTAKES[name].changed(clean) for name in pair]
        if pair in seen or not all(fields) or fields[0] & fields[1] or not visible(pair, model, image):
            continue
        seen.add(pair)
        yield Case(PAIRS, model, image, pair)


def cases_of(wanted: Sequence[str], models: Sequence[str], images: int, pairs: int) -> Iterator[Case]:
    """All cases of the mistakes, pairs and controls with these names."""
    groups = {"clean": tuple(CONTROLS), "unknown": UNKNOWN}
    for word in wanted or (*MISTAKES, "pairs", *groups):
        if word == "pairs":
            for model in models:
                yield from draw_pairs(model, images, pairs)
            continue
        for name, model, image in itertools.product(groups.get(word, (word,)), models, range(images)):
            parts = tuple(name.split("+"))
            if not set(parts) <= {*MISTAKES, *CONTROLS, *UNKNOWN}:
                sys.exit(
                    f"{word}: no such mistake; expected one of {', '.join([*MISTAKES, 'pairs', *groups])}"
                )
            yield Case(name, model, image, parts)


def run(
    cases: Sequence[Case], jobs: int, folder: str, keep: Path | None, log: Path | None = None
) -> list[Outcome]:
    """The outcomes of all cases in their order; wrong answers are printed as they come."""
    outcomes = logged(log)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=spawn) as pool:
        waiting = {pool.submit(run_case, case, folder, keep): case for case in cases if case not in outcomes}
        for future in as_completed(waiting):
            one = outcomes[waiting[future]] = future.result()
            if log is not None:
                plain = {"code": code(), "case": asdict(waiting[future]), "outcome": one and asdict(one)}
                with log.open("a") as lines:
                    lines.write(json.dumps(plain) + "\n")
            if one is not None and not one.correct:
                names = "+".join(one.case.names)
                print(f"{names}, {one.case.model}, {one.image}: {one.outcome}: {one.text}", flush=True)
    return [one for case in cases if (one := outcomes[case]) is not None]


def logged(log: Path | None) -> dict[Case, Outcome | None]:
    """The outcomes that the same code has appended to a file; None where the mistake is not visible."""
    outcomes: dict[Case, Outcome | None] = {}
    lines = log.read_text().splitlines() if log is not None and log.exists() else ()
    for plain in map(json.loads, lines):
        if plain["code"] == code():
            case = Case(**{**plain["case"], "names": tuple(plain["case"]["names"])})
            outcomes[case] = plain["outcome"] and Outcome(**{**plain["outcome"], "case": case})
    return outcomes


@functools.cache
def code() -> str:
    """A hash of the code that diagnoses an input, and of this benchmark; `check_clean` covers the rest."""
    packages = [ROOT / "src" / "holdfast" / name for name in ("core", "data", "diagnose", "stages")]
    files = [path for package in packages for path in package.rglob("*.py")]
    files += (ROOT / "benchmarks").glob("diagnose*.py")
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(files))).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("mistakes", nargs="*", metavar="MISTAKE")
    parser.add_argument("--models", default=",".join(CLEAN))
    parser.add_argument("--images", type=int, default=5, choices=range(1, 6))
    parser.add_argument("--pairs", type=int, default=20, help="per model")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.write and (options.mistakes or options.models != ",".join(CLEAN)):
        parser.error("--write: expected a run of all mistakes on all models")
    models = [name for name in options.models.split(",") if name not in IMAGES or DATA.is_dir()]
    if models != options.models.split(","):
        print(
            f"no models and images at {DATA}; set HOLDFAST_DATA to their folder. Skipped: {', '.join(IMAGES)}"
        )
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in models:
            check_clean(name, folder)
        cases = list(cases_of(options.mistakes, models, options.images, options.pairs))
        outcomes = run(cases, options.jobs, folder, options.keep, options.log)
    if not outcomes:
        sys.exit("no dump differs from the model's own input")
    print(to_text(table_of(outcomes)), sentence(summary(outcomes)), sep="\n\n")
    if options.write and models == list(CLEAN):
        write(
            outcomes,
            f"python benchmarks/diagnose.py --images {options.images} --pairs {options.pairs} --write",
        )


if __name__ == "__main__":
    main()

"""A contest made: images chosen and scaled, truth, models, the distance's range, rules, what is public."""

from __future__ import annotations

import dataclasses
import math
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.contest.contest import CACHE, MANIFEST, TRUTH, Contest, aligned, assemble, with_thresholds
from holdfast.contest.entry.pack import write_zip
from holdfast.contest.judging import JudgeCells
from holdfast.contest.pool import Candidate, Phase, PoolWork, search
from holdfast.contest.rules import RULES_FILE, Rules, read_rules, rules_text
from holdfast.contest.run import MIMIC, mean_ap, scenarios
from holdfast.contest.setup import MAKING, Ready, claim, clear
from holdfast.contest.shots import Noisy
from holdfast.core.errors import DataError, InputError, OutputError
from holdfast.core.model import Model
from holdfast.engine.cells import run
from holdfast.engine.store import Store, to_json, write_atomic
from holdfast.graph.card import card_text
from holdfast.metrics.frechet import frechet

PUBLIC = "public"
ORDER = "a permutation of the data set by the seed; images in which the single model finds no target left out"


def make(made: Ready, phase: Phase, jobs: int = 0) -> Contest:
    """The contest, in its folder but for the mark that says it is not finished; a half-made one goes on.

    DataError if there are too few images the single model recognises, or the mimic model finds nothing; the
    folder is then as empty as before.
    """
    folder, begun_before = made.setup.folder, claim(made)
    if begun_before and (folder / RULES_FILE).is_file():  # written last
        return assemble(folder, read_rules(folder))
    try:
        chosen = _chosen(made, phase, jobs)
        _write_images(folder, chosen, made)
        for model in made.models:
            _write_model(folder, model)
        contest = assemble(folder, made.rules)
        rules = dataclasses.replace(made.rules, distance_max=_distance_max(contest, phase, jobs))
        write_zip(folder / "images.zip", "images/", _images(folder, rules))
        _publish(folder, rules)
        write_atomic(folder / RULES_FILE, rules_text(rules).encode())
    except InputError:  # it cannot be made of this; of a full disk or a killed process the work is kept
        if not begun_before:
            clear(folder)
        raise
    except OSError as problem:
        raise OutputError(f"{folder}: cannot be written to: {problem.strerror}") from problem
    return assemble(folder, rules)


def finish(folder: Path) -> None:
    """Nothing; the contest is finished: the candidates and the mark are gone."""
    shutil.rmtree(folder / CACHE / "pool", ignore_errors=True)
    (folder / MAKING).unlink(missing_ok=True)


def _chosen(made: Ready, phase: Phase, jobs: int) -> list[Candidate]:
    setup, rules = made.setup, made.rules
    model = with_thresholds(made.models[0], rules)
    cache = setup.folder / CACHE
    pool = PoolWork(model, aligned(model, made.classes), setup.size, rules.iou, cache / "pool")
    found = search(pool, made.entries, setup.images, Store(cache), jobs, phase)
    if len(found) < setup.images:
        raise DataError(
            f"--images {setup.images}: only {len(found)} of the {len(made.entries)} images of "
            f"{made.data.name} have a target that {model.name} recognises (score ≥ {rules.score:g}, IoU ≥ "
            f"{rules.iou:g}, right class); ask for {len(found) or 'other data'} or bring more"
        )
    return found


def _write_images(folder: Path, chosen: Sequence[Candidate], made: Ready) -> None:
    """Nothing; images/N.png, the truth and the manifest are there."""
    size, annotations, pictures = made.setup.size, list[dict[str, Any]](), list[dict[str, Any]]()
    for number, candidate in enumerate(chosen, 1):
        data = candidate.file.read_bytes()
        write_atomic(folder / "images" / f"{number}.png", data, durable=False)
        pictures.append(
            {"id": number, "file_name": f"{number}.png", "width": size.width, "height": size.height}
        )
        for row in candidate.rows:
            box = [row.x1, row.y1, row.x2 - row.x1, row.y2 - row.y1]
            more = {"bbox": box, "area": row.area, "iscrowd": int(row.crowd)}
            about = {"id": len(annotations) + 1, "image_id": number, "category_id": row.category + 1}
            annotations.append({**about, **more})
    categories = [{"id": i, "name": name} for i, name in enumerate(made.classes, 1)]
    truth = {"images": pictures, "annotations": annotations, "categories": categories}
    write_atomic(folder / TRUTH, to_json(truth))
    manifest = {
        "contest": made.rules.name,
        "data": made.data.name,
        "seed": made.setup.seed,
        "how": ORDER,
        "order": [
            {"name": f"{n}.png", "source": c.source, "sha256": c.sha256} for n, c in enumerate(chosen, 1)
        ],
    }
    write_atomic(folder / MANIFEST, to_json(manifest, indent=True))


def _write_model(folder: Path, model: Model) -> None:
    path = folder / "models" / f"{model.name}.onnx"
    write_atomic(path, model.read())
    write_atomic(path.with_suffix(".toml"), card_text(model.card, model.guessed).encode())


def _distance_max(contest: Contest, phase: Phase, jobs: int) -> float:
    """The distance of the originals from themselves with noise; the clean answers lie in the cache then.

    As many pixels of the true boxes as an entry may change get random colours: what a team would reach that
    spends all of its budget on the targets with no thought of being seen.
    """
    rules = contest.rules
    wanted = not math.isfinite(rules.distance_max)
    noise = Noisy(rules.pixels, rules.seed) if wanted else None
    shots = [dataclasses.replace(shot, change=noise) for shot in contest.shots]
    with phase("clean", len(shots)) as step:
        work = contest.judging(ask_after=False)
        cells = JudgeCells(run(work, shots, contest.store, jobs=jobs, progress=step), work.count)
    for name, records in scenarios(contest, cells.records(after=False)).items():
        found = mean_ap(records, rules, len(contest.classes))
        if not found > 0:
            least = f" (at least {rules.mimic.least} of {len(contest.models)} agree)" if name == MIMIC else ""
            raise DataError(
                f"the {name} model{least} has mAP {found:g} on the original images; S_e needs more"
            )
    if not wanted:
        return rules.distance_max
    found = frechet(cells.features(after=False), cells.features(after=True))
    if not found > rules.distance_min:
        raise DataError(
            f"distance.max: with noise in {rules.pixels} pixels an image {rules.distance} is {found:g}, not "
            f"more than distance.min {rules.distance_min:g}; give --distance-max"
        )
    return found


def _images(folder: Path, rules: Rules) -> list[Path]:
    return [folder / "images" / f"{n}.png" for n in range(1, rules.images + 1)]


def _publish(folder: Path, rules: Rules) -> None:
    """Nothing; public/ holds what participants may have: all but the hidden members."""
    public = folder / PUBLIC
    shutil.rmtree(public, ignore_errors=True)
    single = folder / rules.single.file
    files = [folder / TRUTH, folder / "images.zip", single, single.with_suffix(".toml")]
    for file in [*files, *_images(folder, rules)]:
        target = public / file.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(file, target)  # no second copy where the disk knows links
        except OSError:
            shutil.copyfile(file, target)
    publish_rules(folder, rules)


def publish_rules(folder: Path, rules: Rules) -> bool:
    """Whether the participants' rules had to be written anew: without the names of the hidden members."""
    hidden = len(rules.mimic.members) - 1
    mimic = dataclasses.replace(rules.mimic, members=(rules.single,), hidden=hidden)
    path, text = folder / PUBLIC / RULES_FILE, rules_text(dataclasses.replace(rules, mimic=mimic)).encode()
    if path.is_file() and path.read_bytes() == text:
        return False
    write_atomic(path, text)
    return True

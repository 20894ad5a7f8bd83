"""Two runs compared: verdicts by hand, paired intervals against what the records give, and refusals."""

import json
from dataclasses import replace

import numpy as np
import orjson
import pytest

from helpers import runs as comparing
from helpers.audit import better_audit, sample_audit
from helpers.runs import attack, attempt, evaluation, record
from holdfast.attack.result import effect_of
from holdfast.audit.result import AttackLevel, ImageRobustness, RobustnessBounds, open_audit
from holdfast.audit.result import save as save_audit
from holdfast.cli import run
from holdfast.compare.result import (
    FEWEST,
    ComparedNumber,
    StatedNumber,
    as_plain,
    from_draws,
    from_stated,
    order,
)
from holdfast.compare.run import compare_results, compare_runs, kind_of
from holdfast.core.errors import InputError
from holdfast.core.fingerprint import generator
from holdfast.evaluate.difference import difference
from holdfast.evaluate.result import open_run
from holdfast.evaluate.score import Settings
from holdfast.metrics.intervals import mean_difference
from holdfast.metrics.rules import RULES
from holdfast.noise.vision.result import NoiseRow, NoiseSuite, open_suite
from holdfast.noise.vision.result import save as save_suite

COST = ComparedNumber("noise", "resize=x", "is worse", costs=True)
GAIN = ComparedNumber("all", "mAP", "is better")
NAMES = [f"{n}.jpg" for n in range(12)]
MANY = [f"{n}.jpg" for n in range(20)]  # enough for rows of single classes


def row(found, what):
    return next(change for change in found.changes if change.about.what == what)


def drawn(*values):
    return np.array([values[0], *values[1:]], float)


@pytest.mark.parametrize(
    ("about", "after", "verdict"),
    [
        (COST, (4, 3, 5), "worse"),
        (GAIN, (4, 3, 5), "better"),
        (GAIN, (-4, -3, -5), "worse"),
        (COST, (-4, -3, -5), "better"),
        (COST, (1, -2, 4), "not significant"),
        (COST, (0, 0, 0), "identical"),
        (COST, (0, -1, 1), "not significant"),
    ],
)
def test_a_paired_interval_gives_the_verdict(about, after, verdict):
    change = from_draws(about, drawn(0, 0, 0), drawn(*after), 20)
    assert change.verdict == verdict
    assert change.difference == after[0]
    assert change.low <= change.difference <= change.high


def test_few_images_decide_nothing():
    change = from_draws(COST, drawn(0, 0, 0), drawn(4, 4, 4), FEWEST - 1)
    assert (change.verdict, change.difference, change.low) == ("undecided", 4, None)
    assert "too few" in change.basis
    assert from_draws(COST, drawn(0, 0, 0), drawn(4, 4, 4), FEWEST).verdict == "worse"


@pytest.mark.parametrize(
    ("before", "after", "verdict", "basis"),
    [
        (StatedNumber(1, 0, 2), StatedNumber(5, 4, 6), "worse", "the separate intervals do not overlap"),
        (StatedNumber(5, 4, 6), StatedNumber(1, 0, 2), "better", "the separate intervals do not overlap"),
        (StatedNumber(1, 0, 2), StatedNumber(3, 2, 4), "undecided", "the separate intervals overlap"),
        (StatedNumber(1), StatedNumber(3, 2, 4), "undecided", "no interval: no records of the same images"),
        (StatedNumber(1, 0, 2), StatedNumber(1, 0, 2), "identical", ""),
        (StatedNumber(1, 0, 2), None, "only in A", ""),
        (None, StatedNumber(1, 0, 2), "only in B", ""),
        (StatedNumber(1, 0, 2), StatedNumber(None, words="impossible"), "only in A", ""),
        (StatedNumber(None, words="impossible"), StatedNumber(None, words="impossible"), "identical", ""),
        (StatedNumber(None, words="impossible"), StatedNumber(None, words="not installed"), "undecided", ""),
    ],
)
def test_stated_intervals_only_overlap_or_not(before, after, verdict, basis):
    change = from_stated(COST, before, after)
    assert (change.verdict, change.basis) == (verdict, basis)
    assert change.low is change.high is None  # never passed off as a paired interval


def test_worse_comes_first_and_the_largest_of_it():
    pixels = ComparedNumber("attack", "pixels", "is better", "pixels")
    sides = [(COST, 1), (COST, -9), (COST, 4), (pixels, -60)]
    changes = [from_draws(about, drawn(0, 0, 0), drawn(by, by, by), 9) for about, by in sides]
    changes.append(from_stated(COST, StatedNumber(1), None))
    ordered = [(c.verdict, c.difference) for c in order(changes)]
    assert ordered == [("worse", 4), ("worse", 1), ("worse", -60), ("better", -9), ("only in A", None)]


# --- evaluations


def scenes(*lost, move=0.0, names=NAMES):
    """Records of twelve or more images; of these the second box is not found."""
    return [record(n, (0,) if i in lost else (0, 1), move) for i, n in enumerate(names)]


def test_evaluations_are_paired_as_difference_pairs_them(tmp_path):
    a, b = evaluation(tmp_path, "a", scenes(0)), evaluation(tmp_path, "b", scenes(0, 1, 2, 3, 4, 5))
    found = compare_runs(a, b)
    told = difference(open_run(a), open_run(b))
    main = row(found, "mAP")
    assert (main.before.value, main.after.value) == (100 * told.before, 100 * told.after)
    ends = (told.interval.low, told.interval.high)
    assert (main.low, main.high) == pytest.approx([100 * e for e in ends])
    assert found.main is main
    assert main.verdict == "worse"
    assert found.lists[0].names == tuple(NAMES[1:6])
    assert found.lists[1].names == ()


def test_every_class_has_its_own_row(tmp_path):
    a = evaluation(tmp_path, "a", scenes(0, names=MANY))
    b = evaluation(tmp_path, "b", scenes(0, 1, 2, 3, 4, 5, names=MANY))
    found = compare_runs(a, b)
    for run_, side in ((a, "before"), (b, "after")):
        for told in open_run(run_).result["per_class"]:
            change = row(found, f"AP of {told['class']}")
            assert getattr(change, side).value == pytest.approx(100 * told["AP"])
    assert row(found, "AP of round").verdict == "identical"
    assert row(found, "AP of square").verdict == "worse"
    assert found.changes[0].about.what == "AP of square"  # the largest loss first
    assert "2 worse, 0 better, 0 not significant, 1 identical. Largest change: AP" in found.summary


def with_truth(name, classes, found):
    """The record of an image with objects of these classes."""
    boxes = comparing.Boxes(comparing.BOXES[classes], np.array(classes))
    return replace(record(name, found), truth=boxes)


def test_classes_of_few_objects_are_one_row(tmp_path):
    """Twenty objects of `round`; one of `square` and of `third`, which get no row of their own."""
    classes, sides = ("round", "square", "third"), []
    for name, found in (("a", (0, 1)), ("b", (0,))):
        records = [
            with_truth(n, [0, 1] if i < 4 else [0], found if i < 4 else (0,)) for i, n in enumerate(MANY)
        ]
        third = comparing.Boxes(comparing.BOXES[[0, 1]], np.array([0, 2]))
        records[5] = replace(record(MANY[5], (0,)), truth=third)
        sides.append(evaluation(tmp_path, name, records, classes=classes))
    found = compare_runs(*sides)
    together = row(found, "AP of 2 classes with fewer than 20 objects each")
    assert (together.before.value, together.after.value, together.images) == (50, 0, 5)
    assert [c.about.what for c in found.changes if c.about.group == "classes"] == [
        "AP of 2 classes with fewer than 20 objects each", "AP of round"
    ]  # fmt: skip
    assert any(note.endswith("have no row of their own: square, third") for note in found.notes)


def test_without_a_class_of_many_objects_there_is_only_the_metric(tmp_path):
    a, b = evaluation(tmp_path, "a", scenes(0)), evaluation(tmp_path, "b", scenes(0, 1, 2, 3, 4, 5))
    found = compare_runs(a, b)
    assert {c.about.group for c in found.changes} == {"all images"}
    assert found.main.about.what == "mAP"
    assert found.summary.startswith("mAP (voc): ")
    assert found.changes[0] is found.main


def test_the_notes_count_the_intervals_that_chance_alone_would_move(tmp_path):
    a = evaluation(tmp_path, "a", scenes(0, names=MANY))
    b = evaluation(tmp_path, "b", scenes(0, 1, 2, 3, 4, 5, names=MANY))
    text = "Of 2 intervals, about 0.1 would exclude 0 by chance alone (5%); 2 do; treat single rows as hints"
    assert text in compare_runs(a, b).notes
    assert text in compare_results(open_run(a), open_run(b)).notes


def test_a_class_of_few_images_is_undecided(tmp_path):
    """However many images there are, a class in four of them says little."""
    sides = []
    for name, found in (("a", (0, 1)), ("b", (0,))):
        few = [
            with_truth(n, [0, 1], found) if i < 4 else with_truth(n, [0], (0,)) for i, n in enumerate(MANY)
        ]
        sides.append(evaluation(tmp_path, name, few))
    change = row(compare_runs(*sides), "AP of square")
    assert (change.before.value, change.after.value) == (100, 0)
    assert (change.verdict, change.images) == ("undecided", 4)
    assert change.basis == "too few images for an interval (n = 4)"


def test_the_other_way_round_it_is_better(tmp_path):
    a, b = evaluation(tmp_path, "a", scenes(0)), evaluation(tmp_path, "b", scenes(0, 1, 2, 3, 4, 5))
    there, back = compare_runs(a, b), compare_runs(b, a)
    assert [c.verdict for c in back.changes if c.difference] == ["better"]
    assert row(back, "mAP").difference == -row(there, "mAP").difference


def test_only_common_images_are_compared(tmp_path):
    a, b = evaluation(tmp_path, "a", scenes()[:9]), evaluation(tmp_path, "b", scenes(0)[2:])
    found = compare_runs(a, b)
    assert row(found, "mAP").images == 7
    assert "compared on the 7 common images; A has 9, B has 10" in found.notes
    assert row(found, "mAP").verdict == "identical"  # the image that differs is in B's alone


def test_another_rule_is_scored_again_and_said(tmp_path):
    coco = Settings(RULES["coco"])
    a, b = evaluation(tmp_path, "a", scenes(move=3.0)), evaluation(tmp_path, "b", scenes(), settings=coco)
    found = compare_runs(a, b)
    assert any("scored by those of B" in note for note in found.notes)
    assert ("rule", "voc", "coco") in found.differs
    assert row(found, "AP").before.value < 80 < row(found, "AP").after.value
    assert row(found, "AP50").verdict == "identical"
    assert row(found, "AP75").verdict == "better"  # 3 pixels off, the smaller box overlaps by 0.68
    assert row(found, "ARl").basis in ("", "no interval: not computed for this metric")
    assert row(found, "AR1").basis == "no interval: not computed for this metric"


def test_meaningless_evaluations_are_refused(tmp_path):
    a = evaluation(tmp_path, "a", scenes())
    other = evaluation(tmp_path, "c", [record(f"x{n}", (0,)) for n in NAMES], data="others")
    with pytest.raises(
        InputError, match="A is on scenes, B is on others: the two runs have no image in common"
    ):
        compare_runs(a, other)
    moved = evaluation(tmp_path, "d", [record(n, truth=comparing.BOXES + 1) for n in NAMES])
    with pytest.raises(InputError, match="the image or its ground truth differs"):
        compare_runs(a, moved)
    named = evaluation(tmp_path, "e", scenes(), classes=("round", "triangle"))
    with pytest.raises(InputError, match=r"classes differ .1 only in A: square; 1 only in B: triangle"):
        compare_runs(a, named)


# --- attacks


def attempts(*left, pixels=100):
    """Twelve attempts; in these images the first box is still found."""
    return [attempt(n, (0,) if i in left else (), pixels) for i, n in enumerate(NAMES)]


def test_attacks_are_paired_on_common_images(tmp_path):
    a = attack(tmp_path / "a", attempts(*range(10)))
    b = attack(tmp_path / "b", attempts(0, 1, pixels=40))
    found = compare_runs(a, b)
    broken = row(found, "images broken")
    sides = [[0.0] * 10 + [100.0] * 2, [0.0] * 2 + [100.0] * 10]
    told = mean_difference(sides[0], sides[1], generator(0, "difference"))
    assert (broken.low, broken.high) == pytest.approx((told.low, told.high))
    assert (broken.before.value, broken.after.value) == pytest.approx((100 / 6, 500 / 6))
    assert broken.verdict == "worse"
    effect = row(found, "S_e")
    for side, folder in ((effect.before, a), (effect.after, b)):
        stated = json.loads((folder / "attack.json").read_bytes())["effects"][0]
        assert side.value == pytest.approx(100 * stated["S_e"])
    assert effect.verdict == "worse"
    assert effect.low is not None
    assert row(found, "mAP before").verdict == "identical"
    pixels = row(found, "pixels needed (images broken in both)")
    assert (pixels.before.value, pixels.after.value, pixels.images) == (100, 40, 2)
    assert pixels.verdict == "undecided"  # two images
    assert found.lists[0].names == tuple(NAMES[2:10])


def test_without_records_an_attack_has_no_interval_of_its_metric(tmp_path):
    a, b = attack(tmp_path / "a", attempts(*range(10))), attack(tmp_path / "b", attempts(), kept=False)
    found = compare_runs(a, b)
    assert row(found, "S_e").verdict == "undecided"
    assert row(found, "S_e").low is None
    assert row(found, "images broken").verdict == "worse"  # rows of the manifest are enough for it
    assert "no paired interval: B no longer has a record of 0.jpg" in found.notes[0]


def test_a_damaged_cell_is_a_missing_one(tmp_path):
    a, b = attack(tmp_path / "a", attempts(3)), attack(tmp_path / "b", attempts())
    cell = next((b / "cells").rglob("*.json"))
    cell.write_bytes(cell.read_bytes()[:-9])
    assert row(compare_runs(a, b), "S_e").low is None


def test_attacks_that_are_not_alike_are_refused(tmp_path):
    a = attack(tmp_path / "a", attempts())
    with pytest.raises(InputError, match="the goal of A is vanish, that of B is fabricate"):
        compare_runs(a, attack(tmp_path / "b", attempts(), goal="fabricate"))
    with pytest.raises(InputError, match="no image in common"):
        compare_runs(a, attack(tmp_path / "c", [attempt("x.jpg")]))
    with pytest.raises(InputError, match="A is on scenes, B is on others: expected the same data"):
        compare_runs(a, attack(tmp_path / "d", attempts(), data="others", kept=False))
    with pytest.raises(InputError, match="or their ground truth differ"):
        compare_runs(a, attack(tmp_path / "e", [attempt(n, truth=comparing.BOXES + 2) for n in NAMES]))


# --- noise


@pytest.fixture(scope="module")
def noises(tmp_path_factory):
    """Two small detectors under two resizes, on the same six images."""
    runs = tmp_path_factory.mktemp("runs")
    for folder, model in (("a", "signs-plain"), ("b", "signs-free")):
        command = ["noise", model, "signs:0:6", "--jobs", 1, "--runs", runs / folder, "--rule", "voc"]
        only = ["--only", "resize=opencv-nearest", "--only", "resize=pillow-box"]
        assert run([str(c) for c in [*command, *only]]) == 0
    return [next((runs / folder).glob("noise-*")) for folder in ("a", "b")]


def test_what_noise_costs_is_paired_by_its_records(noises):
    found = compare_runs(*noises)
    suites = [open_suite(folder).models[0] for folder in noises]
    measured = [c for c in found.changes if c.about.costs and c.low is not None]
    assert measured
    for change in measured:
        drops = [next(r.points_lost for r in model.rows if r.label == change.about.what) for model in suites]
        assert change.difference == pytest.approx(drops[1] - drops[0], abs=1e-9)
        assert change.images == 6
    assert row(found, "mAP").low is not None
    assert ("model", "signs-plain", "signs-free") in found.differs


def test_without_cells_only_the_stated_intervals_are_left(noises, tmp_path):
    moved = []
    for folder, name in zip(noises, "ab", strict=True):
        save_suite(open_suite(folder), tmp_path / name / "run")
        moved.append(tmp_path / name / "run")
    found = compare_runs(*moved)
    assert all(change.low is None for change in found.changes)
    assert all(
        "separate intervals" in c.basis or "no interval" in c.basis for c in found.changes if c.difference
    )
    assert sum("no longer has its records" in note for note in found.notes) == 2


def suite(tmp_path, name, drop, **changes):
    from holdfast.noise.vision.result import ModelNoise

    rows = (
        NoiseRow("resize", "x", "measured", "", 0.8, drop, drop - 1, drop + 1, 3, 40),
        NoiseRow("decode", "y", "identical"),
        NoiseRow("precision", name, "measured", "", 0.8, 1.0, 0.0, 2.0, 3, 40),
    )
    model = ModelNoise(
        **{
            "model": name, "sha256": "ab" * 32, "task": "detect", "metric": "mAP", "clean": 0.9, "images": 40,
            "rows": rows, "combined": None, "pipeline": {}, "rule": "voc", **changes,
        }
    )  # fmt: skip
    save_suite(NoiseSuite("scenes", (model,)), tmp_path / name)
    return tmp_path / name


def test_suites_of_an_older_version_are_compared_by_what_they_state(tmp_path):
    a, b = suite(tmp_path, "a", 1.0), suite(tmp_path, "b", 5.1)
    found = compare_runs(a, b)
    assert found.changes[0].words == "points lost to resize=x rise by 4.10"
    assert found.changes[0].verdict == "worse"
    assert found.summary == (
        "mAP (voc): 90.00 in A, 90.00 in B (B − A = 0 points, n = 40: identical). Numbers of B against A: "
        "1 worse, 0 better, 0 not significant, 2 identical. Largest change: points lost to resize=x rise by "
        "4.10."
    )
    assert row(found, "decode=y").verdict == "identical"
    assert (row(found, "precision=a").verdict, row(found, "precision=b").verdict) == (
        "only in A",
        "only in B",
    )


def test_suites_of_other_metrics_or_data_are_refused(tmp_path):
    a = suite(tmp_path, "a", 1.0)
    with pytest.raises(InputError, match="the rule differs: voc in A, coco in B"):
        compare_runs(a, suite(tmp_path, "b", 1.0, rule="coco"))
    with pytest.raises(InputError, match="the task differs"):
        compare_runs(a, suite(tmp_path, "c", 1.0, task="classify"))
    save_suite(replace(open_suite(a), data="others"), tmp_path / "d")
    with pytest.raises(InputError, match="A is on scenes, B on others"):
        compare_runs(a, tmp_path / "d")


# --- audits


def audits(tmp_path, **changes):
    save_audit(sample_audit(), tmp_path / "a")
    save_audit(replace(better_audit(), **changes), tmp_path / "b")
    return tmp_path / "a", tmp_path / "b"


def test_audits_without_their_runs_say_so(tmp_path):
    found = compare_runs(*audits(tmp_path))
    assert row(found, "mAP@.5").verdict == "undecided"
    assert row(found, "resize=opencv-nearest").difference == pytest.approx(-4.0)
    assert row(found, "resize=opencv-nearest").basis == "the separate intervals overlap"
    assert row(found, "100px: S_e").verdict == "undecided"
    assert ("clean.map50", 0.91, 0.93) in found.values
    assert sum("no paired interval" in note for note in found.notes) == 3


def test_proofs_that_turned_are_named(tmp_path):
    proofs = list(sample_audit().proofs)
    proofs[0], proofs[5] = replace(proofs[0], answer="holds"), replace(proofs[5], answer="unknown")
    found = compare_runs(*audits(tmp_path, proofs=tuple(proofs), rechecks=()))
    lists = {one.title: (one.names, one.tone) for one in found.lists if one.names}
    assert lists == {
        "square: holds in A, not in B": (("scene-5.jpg (now unknown)",), "worse"),
        "square: holds in B, not in A": (("scene-0.jpg (was violated)",), "better"),
        "verdict changes under a deployment in A only": (
            ("scene-4.jpg under precision=int8: square holds → violated",),
            "better",
        ),
    }
    assert row(found, "square: proofs that hold").images == 8


def test_an_audit_is_paired_by_the_evaluation_beside_it(tmp_path):
    for name, records in (("a", scenes(0)), ("b", scenes(0, 1, 2, 3, 4, 5))):
        evaluation(tmp_path / name, "clean", records)
        save_audit(replace(sample_audit(), runs={"evaluation": "clean"}), tmp_path / name / "audit")
    found = compare_runs(tmp_path / "a/audit", tmp_path / "b/audit")
    assert row(found, "mAP").verdict == "worse"
    assert row(found, "mAP").images == 12
    assert not any(note.startswith("mAP@.5") for note in found.notes)


def broken_in_training(tmp_path, name, fell):
    """An audit of two budgets with its attacks beside it; `fell` break within 100 pixels."""
    folder = tmp_path / name / "audit"
    wide = [attempt(n, () if i < 6 else (0,), 200) for i, n in enumerate(NAMES)]
    tight = [attempt(n, () if i in fell else (0,), 90) for i, n in enumerate(NAMES)]
    attack(tmp_path / name / "attack-100px", tight, limit=100)
    attack(tmp_path / name / "attack-300px", [w for w, t in zip(wide, tight, strict=True) if not t.success])
    best = [t if t.success else w for w, t in zip(wide, tight, strict=True)]
    attacks = []
    for pixels, made in ((100, tight), (300, best)):
        effect = effect_of(made, "net", [a.model for a in made], comparing.EVERY, comparing.VOC)
        attacks.append(
            AttackLevel(
                f"{pixels}px",
                pixels,
                effect.before,
                effect.after,
                12,
                sum(a.success for a in made),
                12,
                90.0,
                "",
            )
        )
    per_image = tuple(ImageRobustness(a.name, False, a.success) for a in tight)
    layer = RobustnessBounds("100px", "100 pixels", "", "gradient", per_image)
    runs = {"attack 100px": "attack-100px", "attack 300px": "attack-300px"}
    save_audit(replace(sample_audit(), attacks=tuple(attacks), runs=runs, bounds=(layer,)), folder)
    return folder


def test_an_audits_strikes_are_paired_by_the_attacks_in_its_folder(tmp_path):
    a, b = (
        broken_in_training(tmp_path, "a", (0,)),
        broken_in_training(tmp_path, "b", (0, 1, 2, 3, 4, 5, 6, 7, 8)),
    )
    found = compare_runs(a, b)
    tight, wide = row(found, "100px: S_e"), row(found, "300px: S_e")
    assert tight.verdict == "worse"
    assert tight.low is not None
    assert tight.images == 12
    attacks = {s.threat: s for s in open_audit(b).attacks}
    assert tight.after.value == pytest.approx(100 * attacks["100px"].effect)
    assert wide.after.value == pytest.approx(100 * attacks["300px"].effect)  # with what 100 pixels broke
    assert wide.difference > 0
    assert not any("S_e" in note for note in found.notes)


def test_attacks_that_are_not_those_of_the_audits_numbers_are_not_used(tmp_path):
    a, b = broken_in_training(tmp_path, "a", (0,)), broken_in_training(tmp_path, "b", (0, 1, 2, 3, 4, 5))
    audit = open_audit(b)
    save_audit(replace(audit, attacks=(replace(audit.attacks[0], after=0.3), audit.attacks[1])), b)
    found = compare_runs(a, b)
    assert row(found, "100px: S_e").low is None
    assert any("the attacks next to B do not reproduce its numbers" in note for note in found.notes)


def test_audits_on_other_data_are_refused(tmp_path):
    with pytest.raises(InputError, match="the data of the audits differs: scenes in A, others in B"):
        compare_runs(*audits(tmp_path, data={"name": "others"}))


# --- which runs


def test_the_kind_is_read_from_the_manifest(tmp_path, noises):
    a = evaluation(tmp_path, "a", scenes())
    assert kind_of(a) == kind_of(a / "run.json") == "evaluation"
    assert kind_of(attack(tmp_path / "s", attempts())) == "attack"
    assert kind_of(noises[0]) == "noise"
    assert kind_of(audits(tmp_path / "au")[0] / "audit.json") == "audit"


def test_the_same_run_twice_is_said(tmp_path):
    a = evaluation(tmp_path, "a", scenes(3))
    found = compare_runs(a, a / "run.json")
    assert found.same
    assert found.summary == "A and B are the same run: all numbers are identical."
    assert {c.verdict for c in found.changes} == {"identical"}


def test_equal_numbers_beside_other_values_of_gates_are_told_apart(tmp_path):
    runs = evaluation(tmp_path, "a", scenes(3)), evaluation(tmp_path, "b", scenes(3))
    found = compare_runs(*runs)
    count = len(found.changes)
    assert found.summary == f"All {count} numbers of B and A are identical."
    other = replace(found, values=(("clean.map50", 0.5, 0.5), ("attack.100px.Se", 0.1, 0.2)))
    assert other.summary == (
        f"All {count} numbers of B and A are identical on what both measured; "
        "1 gate value differs, which each run measured on its own images."
    )


def test_the_comparison_is_json(tmp_path):
    a, b = evaluation(tmp_path, "a", scenes(0)), evaluation(tmp_path, "b", scenes(0, 1, 2, 3, 4, 5))
    plain = orjson.loads(orjson.dumps(as_plain(compare_runs(a, b))))
    assert plain["of"] == "evaluation"
    assert plain["changes"][0]["what"] == "mAP"
    assert plain["changes"][0]["b"]["value"] < plain["changes"][0]["a"]["value"]


# --- language and speech


def language(tmp_path, name, drop, sha="q" * 8):
    from holdfast.noise.language.result import LanguageNoise, LanguageSuite, RuleNoise, SetNoise, save
    from holdfast.noise.language.result import PrecisionRow as Precision

    rows = (Precision("fp16", "measured", "", 0.5, drop, drop - 1, drop + 1, 3, 2, 1, 100),)
    sets = (SetNoise("questions", "pick", sha, 100, 0.25, (RuleNoise("plain", 0.5, rows),)),)
    save(LanguageSuite((LanguageNoise(name, "ab" * 32, sets),), ("fp16",)), tmp_path / name)
    return tmp_path / name


def test_language_suites_are_compared_by_what_they_state(tmp_path):
    a, b = language(tmp_path, "a", 1.0), language(tmp_path, "b", 6.0)
    found = compare_runs(a, b)
    assert kind_of(a) == found.kind == "language noise"
    assert found.changes[0].words == "points lost to questions, plain: fp16 rise by 5.00"
    assert found.changes[0].verdict == "worse"
    with pytest.raises(InputError, match="no question set in common"):
        compare_runs(a, language(tmp_path, "c", 1.0, sha="other"))


def speech(tmp_path, name, error):
    from holdfast.noise.speech.result import MeanInterval, SpeechNoise, SpeechSuite, save
    from holdfast.noise.speech.result import SpeechRow as Option

    own = MeanInterval(1.0, 0.9, 1.1)
    heard = MeanInterval(error, error - 0.1, error + 0.1)
    rows = (Option("precision", "fp16", "measured", heard=heard, clips=8), Option("stft", "x", "identical"))
    model = SpeechNoise(name, "ab" * 32, "acoustic", 8, own, own, 1.0, rows, None)
    save(SpeechSuite("clips", (model,)), tmp_path / name)
    return tmp_path / name


def test_speech_suites_are_compared_by_what_is_heard(tmp_path):
    found = compare_runs(speech(tmp_path, "a", 2.0), speech(tmp_path, "b", 0.5))
    assert found.kind == "speech noise"
    assert row(found, "precision=fp16").verdict == "better"
    assert row(found, "precision=fp16").difference == pytest.approx(-1.5)
    assert row(found, "stft=x").verdict == "identical"


def test_of_several_models_those_of_one_name_are_paired(tmp_path):
    models = {name: open_suite(suite(tmp_path, name, 1.0)).models[0] for name in ("a", "b", "c")}
    save_suite(NoiseSuite("scenes", (models["a"], models["b"])), tmp_path / "ab")
    save_suite(NoiseSuite("scenes", (models["b"], models["c"])), tmp_path / "bc")
    found = compare_runs(tmp_path / "ab", tmp_path / "bc")
    assert {c.about.what.split(":")[0] for c in found.changes} == {"b"}
    assert ("only in A: a" in found.notes, "only in B: c" in found.notes) == (True, True)
    save_suite(NoiseSuite("scenes", (models["c"], models["c"])), tmp_path / "cc")
    with pytest.raises(InputError, match="no model of the same name"):
        compare_runs(tmp_path / "ab", tmp_path / "cc")


def test_b_minus_a_has_a_direction_even_without_an_interval(tmp_path):
    found = compare_runs(suite(tmp_path, "a", 1.0), suite(tmp_path, "b", 1.5))
    change = row(found, "resize=x")
    assert (change.verdict, change.direction, change.reading) == ("undecided", "worse", "worse, undecided")
    plain = next(one for one in as_plain(found)["changes"] if one["what"] == "resize=x")
    assert plain["direction"] == "worse"
    assert found.next_step == "Next: compare runs on more images to decide the undecided numbers."


def test_a_worse_run_names_the_images_to_look_at(tmp_path):
    runs = evaluation(tmp_path, "a", scenes(0)), evaluation(tmp_path, "b", scenes(0, 1, 2, 3, 4, 5))
    found = compare_runs(*runs)
    assert found.next_step.startswith("Next: look at the images listed under “an object detected in A")

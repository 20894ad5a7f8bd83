"""The verdict says what the data carries, in whatever state the data is."""

import html
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.audit import sample_audit
from holdfast.audit.gates import gate_of, judge
from holdfast.audit.page import page
from holdfast.audit.pages.sections import noises as noises_section
from holdfast.audit.pages.verdict import between, next_step, not_significant, points, verdict, worst_cell
from holdfast.audit.result import (
    TRAINED,
    AttackLevel,
    Audit,
    Clean,
    ImageRobustness,
    Matrix,
    MatrixCell,
    NoiseResult,
    NoiseTarget,
    Part,
    Proof,
    Recheck,
    RobustnessBounds,
)
from holdfast.audit.values import values_of
from holdfast.core.patch import Survival
from holdfast.core.targets import PRODUCTS
from holdfast.stages.families import families, options

NAMES = ["Worst single noise", "Combined noise", "Smallest attack", "Proofs"]
BARE = Audit({"name": "net"}, {"name": "data"}, Clean("top1", "top-1", 0.5, None, None, 10, "top-1"))


def line(audit, name):
    return next(found for found in verdict(audit) if found.name == name)


def with_worst(**changes):
    first = sample_audit()
    return replace(first, noises=(replace(first.noises[0], **changes),))


def test_there_are_five_lines_in_their_order_each_with_a_command():
    lines = verdict(sample_audit())
    assert [found.name for found in lines] == ["Clean mAP@.5", *NAMES]
    assert all(found.command for found in lines)
    assert lines[0].command == "holdfast evaluate net.onnx scenes --rule voc"
    assert lines[1].command == "holdfast noise net.onnx scenes --only resize=opencv-nearest"
    assert lines[2].command == sample_audit().command  # it has none of its own


def test_the_clean_metric_with_its_interval():
    clean = verdict(sample_audit())[0]
    text = "mAP@.5 is 0.910 on 40 images (AP rule VOC), 95% interval 0.880 to 0.940."
    assert (clean.text, clean.figure, clean.tone) == (text, "0.910", "fact")
    assert verdict(BARE)[0].text == "top-1 is 0.500 on 10 images."


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (
            ["clean.map50 < 0.9", "square.broken > 0"],
            "Fix the failed gates before release: clean.map50 < 0.9.",
        ),
        (
            ["square.broken > 0"],
            "Test more images to decide the gates, or lower --min-images: square.broken > 0.",
        ),
        (["clean.map50 < 0.5"], "Avoid resize=opencv-nearest in deployment (5.00 points lost), or retrain"),
        ([], "Avoid resize=opencv-nearest in deployment (5.00 points lost), or retrain"),
    ],
)
def test_the_first_screen_says_what_to_do_next(texts, said):
    audit = sample_audit()
    judged = judge([gate_of(text) for text in texts], audit)
    assert next_step(audit, judged).startswith(said)
    head = page(audit, (), judged).partition("</header>")[0]
    assert f'<p class="next"><strong>Next</strong> {html.escape(said)}' in head


def test_the_gate_that_is_proposed_has_the_metric_of_the_model():
    enough = replace(BARE, clean=replace(BARE.clean, images=40))
    assert next_step(enough).endswith("holdfast audit --fail-if 'noise.top1.points_lost > 2'.")


def test_sections_without_results_are_collapsed_to_their_reason():
    text = page(BARE)
    titles = re.findall(
        r'<details class="empty">\s*<summary><h2[^>]*>(.*?)</h2> <span class="lead">(.*?)<', text
    )
    assert dict(titles) == dict.fromkeys(
        ("System noise", "Attacks", "Proofs", "Rechecks", "Images", "Matrix in numbers"),
        "Not measured: not requested.",
    )


def test_a_loss_is_next_to_the_baseline_of_the_same_images():
    fewer = line(with_worst(value=0.82, images=20), "Worst single noise")  # clean: 0.910 on 40 images
    assert "5.00 points of mAP@.5 lost (0.870 → 0.820 on 20 images), 95% interval" in fewer.text
    sample = sample_audit()
    some = replace(sample.attacks[0], aimed=6)
    attack = line(replace(sample, attacks=(some,)), "Smallest attack")
    assert "in 2 of 6 attacked images (mAP@.5 0.920 → 0.700 on 8 images)" in attack.text
    clean = MatrixCell("none", "training pipeline", 0.9, 8)
    cells = (clean, MatrixCell("none", "a", 0.3, 8), MatrixCell("square", "a", 0.3, 8))
    matrix = Matrix(("none", "square"), ("training pipeline", "a"), cells)
    combined = line(replace(sample, matrix=matrix), "Combined noise")
    assert combined.text.endswith("stays at 0.300 (clean: 0.900) on 8 images: square under a.")


def test_a_hypothetical_option_is_not_the_worst_noise():
    first = sample_audit()
    worse = replace(first.noises[0], label="precision=int8-mixed", family="precision", points_lost=50.0)
    audit = replace(first, noises=(*first.noises, replace(worse, hypothetical=True)))
    assert audit.worst is first.noises[0]
    assert line(audit, "Worst single noise").text == line(first, "Worst single noise").text
    old, new = values_of(first), values_of(audit)
    assert new["noise.precision.int8-mixed.map50.points_lost"] == 50.0
    assert {name: value for name, value in new.items() if "int8-mixed" not in name} == old
    assert "hypothetical" in noises_section(audit).figures[-1].body
    only = replace(first, noises=audit.noises[-1:], combined=None)
    text = "Only hypothetical noise options were measured; they are in the table."
    assert line(only, "Worst single noise").text == text


def test_a_hypothetical_deployment_is_not_the_lowest_cell():
    first = sample_audit()
    lowest = MatrixCell("square", "precision=int8-mixed", 0.01, 40)
    mixed = NoiseResult("precision=int8-mixed", "precision", "measured", points_lost=1.0, hypothetical=True)
    cells = Matrix(first.matrix.threats, first.matrix.deployments, (*first.matrix.cells, lowest))
    audit = replace(first, matrix=cells)
    assert worst_cell(audit) is lowest
    audit = replace(audit, noises=(*first.noises, mixed))
    assert worst_cell(audit) == worst_cell(first)
    assert values_of(audit)["matrix.map50.min"] == values_of(first)["matrix.map50.min"]


def test_a_clear_loss_is_a_loss():
    worst = line(sample_audit(), "Worst single noise")
    assert (worst.tone, worst.word, worst.figure) == ("bad", "significant", "5.00 points lost")
    assert worst.text == (
        "resize=opencv-nearest, the worst of 2 options: 5.00 points of mAP@.5 lost, 95% interval "
        "[2.00, 8.00]; predictions change in 21 of 40 images."
    )


def on(title, *noises, options=None):
    labels = options or tuple(noise.label for noise in noises)
    audit = replace(sample_audit(), noises=(*sample_audit().noises, *noises))
    return line(replace(audit, target=NoiseTarget(title, labels)), f"On {title}")


def test_with_a_target_the_headline_is_the_worst_of_its_options():
    entropy = NoiseResult("precision=int8-entropy", "precision", "measured", 4.0, 1.0, 7.0, 12, 40)
    alone = on("TensorRT", entropy)
    assert alone.text == (
        "int8-entropy loses 4.00 points of mAP@.5, 95% interval [1.00, 7.00]; predictions change in 12 of "
        "40 images."
    )
    assert (alone.figure, alone.images, alone.word) == ("4.00 points lost", 40, "significant")
    runtime = NoiseResult("runtime=ncnn", "runtime", "measured", -4.5, -6.0, -3.0, 12, 40)
    assert on("ncnn", runtime).text.startswith(
        "runtime=ncnn gains 4.50 points of mAP@.5, 95% interval [3.00,"
    )
    both = on("ncnn", entropy, runtime)
    assert both.text.startswith("int8-entropy, the worst of its 2 options, loses 4.00 points of mAP@.5")
    audit = replace(sample_audit(), target=NoiseTarget("TensorRT", ("precision=int8",)))
    assert "Avoid" not in next_step(replace(audit, rechecks=()))  # its own option is not significant
    assert audit.worst != audit.headline_noise


def test_a_target_without_a_number_says_why():
    missing = NoiseResult("runtime=openvino", "runtime", "not installed", note="pip install openvino")
    text = "Not measured: runtime=openvino is not installed (pip install openvino)."
    assert on("OpenVINO", missing).text == text
    same = NoiseResult("precision=int8-entropy", "precision", "measured", 0.0, 0.0, 0.0, 0, 40)
    assert on("TensorRT", same).text == "No effect: int8-entropy: no prediction changes."
    assert on("TensorRT", options=("precision=int8-entropy",)).text.startswith("Not measured: ")


@pytest.mark.parametrize(
    ("target", "labels"),
    [
        ("tensorrt", {"precision=int8-entropy"}),
        ("tflite", {"precision=int8-minmax", "upsample=upsample-bilinear-asymmetric"}),
        ("openvino", {"runtime=openvino"}),
        ("onnxruntime", {"precision=int8-minmax"}),
        (
            "ncnn",
            {
                "precision=int8-entropy",
                "runtime=ncnn",
                "ceil=ceil",
                "ceil=ceil-average",
                "resize=opencv-bilinear",
            },
        ),
    ],
)
def test_the_options_of_a_target_name_the_product_in_their_facts(target, labels):
    made = [o for family in families() for o in options(family) if target in o.targets]
    assert {option.label for option in made} == labels
    names = (PRODUCTS[target], "TFLite") if target == "tflite" else (PRODUCTS[target],)
    assert all(any(name in option.systems for name in names) for option in made)


def test_an_interval_that_holds_0_is_not_significant():
    worst = line(with_worst(points_lost=1.0, low=-1.0, high=3.0), "Worst single noise")
    assert (worst.tone, worst.word) == ("caution", "not significant")
    assert "[−1.00, 3.00]; not significant (the 95% interval contains 0)" in worst.text
    unsure = line(with_worst(low=None, high=None), "Worst single noise")
    assert "not significant (there is no interval)" in unsure.text


def test_all_together_reads_as_a_deployment():
    matrix = Matrix(("none", "square"), ("training pipeline", "combined"), (
        MatrixCell("square", "combined", 0.1, 8),
    ))  # fmt: skip
    found = line(replace(sample_audit(), matrix=matrix), "Combined noise")
    assert found.text.endswith("falls to 0.100 on 8 images: square under combined noise.")


def test_few_images_cannot_tell_a_loss_from_chance():
    worst = line(with_worst(images=4, changed=4), "Worst single noise")
    assert (worst.tone, worst.word) == ("caution", "too few images")
    assert "4 images, too few to judge significance; predictions change in 4 of 4 images." in worst.text


def test_a_gain_is_not_called_a_loss():
    worst = line(with_worst(points_lost=-2.0, low=-3.0, high=-1.0), "Worst single noise")
    assert (worst.tone, worst.figure, worst.word) == ("good", "2.00 points gained", "a gain")
    assert "2.00 points of " in worst.text
    assert " gained, 95% interval [1.00, 3.00]" in worst.text


def test_no_change_at_all_is_said_so():
    still = tuple(
        replace(c, points_lost=0.0, low=0.0, high=0.0, changed=0) if c.outcome == "measured" else c
        for c in sample_audit().noises
    )
    worst = line(replace(sample_audit(), noises=still), "Worst single noise")
    assert (worst.tone, worst.figure) == ("good", "0.00 points lost")
    assert worst.text == ("No effect: 2 noise options measured, none changes a prediction.")
    quiet = line(replace(sample_audit(), noises=sample_audit().noises[2:]), "Worst single noise")
    assert (quiet.tone, quiet.word) == ("good", "no loss")
    assert "2 noise options give identical input" in quiet.text


def test_a_cause_that_changes_nothing_is_never_the_worst():
    still = NoiseResult("decode=zune", "decode", "measured", 0.0, 0.0, 0.0, 0, 40)
    gain = NoiseResult("colour=nv12", "colour", "measured", -2.0, -3.0, -1.0, 3, 40)
    worst = line(replace(sample_audit(), noises=(still, gain)), "Worst single noise")
    assert worst.text.startswith("colour=nv12, the worst of 2 options")
    unknown = replace(still, changed=None)  # whether a prediction changes is not known
    found = line(replace(sample_audit(), noises=(unknown,)), "Worst single noise")
    assert found.text.startswith("decode=zune, the only option measured")


def test_a_cause_that_could_not_run_is_no_good_news():
    audit = replace(BARE, noises=(NoiseResult("runtime=ncnn", "runtime", "not installed"),))
    assert line(audit, "Worst single noise").word == "not measured"


def test_the_combination_names_the_worst_meeting_with_a_patch():
    found = line(sample_audit(), "Combined noise")
    assert found.text == (
        "resize=opencv-nearest + precision=int8: 9.00 points of mAP@.5 lost, 95% interval [5.00, 13.00]; "
        "predictions change in 30 of 40 images. With an attack as well, mAP@.5 falls from 0.910 to 0.250 on "
        "8 images: 1000px under precision=int8."
    )
    alone = line(replace(sample_audit(), combined=None), "Combined noise")
    assert alone.text.startswith("Not measured: not requested. With an attack as well")


def test_every_line_says_on_how_many_images_and_few_are_an_indication():
    lines = {one.name: one for one in verdict(sample_audit())}
    assert [one.images for one in lines.values()] == [40, 40, 40, 8, 8]
    assert [one.word for one in lines.values()] == [
        "AP rule VOC",
        "significant",
        "significant",
        "indication",
        "indication",
    ]
    many = replace(sample_audit(), attacks=tuple(
        replace(s, aimed=20, images=20) for s in sample_audit().attacks
    ))  # fmt: skip
    broken = line(many, "Smallest attack")
    assert (broken.tone, broken.word, broken.basis) == ("bad", "success", "n = 20")
    few = replace(sample_audit(), clean=replace(sample_audit().clean, images=19))
    assert line(few, "Clean mAP@.5").word == "indication"


def test_the_smallest_budget_that_breaks_an_image():
    found = line(sample_audit(), "Smallest attack")
    assert (found.figure, found.tone, found.command) == ("100 px", "caution", "holdfast attack …")
    assert (found.word, found.basis) == ("indication", "n = 8, indication")
    assert found.text == (
        "100 scattered pixels hide every detected object in 2 of 8 attacked images (mAP@.5 0.920 → 0.700); "
        "1000 pixels in 7 of 8 (mAP@.5 0.920 → 0.120)."
    )
    later = replace(sample_audit(), attacks=tuple(
        replace(s, broken=0) if s.pixels == 100 else s for s in sample_audit().attacks
    ))  # fmt: skip
    assert line(later, "Smallest attack").figure == "1000 px"


def test_an_attack_that_fails_is_no_proof():
    audit = replace(sample_audit(), attacks=tuple(replace(s, broken=0) for s in sample_audit().attacks))
    found = line(audit, "Smallest attack")
    assert (found.tone, found.figure) == ("caution", "none")
    assert "not a proof" in found.text
    nothing = replace(audit, attacks=tuple(replace(s, aimed=0, broken=0) for s in audit.attacks))
    assert line(nothing, "Smallest attack").word == "nothing to attack"


def test_what_is_proven_and_what_is_not():
    found = line(sample_audit(), "Proofs")
    assert (found.figure, found.word, found.basis) == ("5 of 8", "indication", "n = 8, indication")
    assert found.text == (
        "5 of 8 images hold against a black square of 42 pixels at 361 places, 3 violated. 1 proof violated "
        "under precision=int8. No proof against 1000 pixels of any colour."
    )


@pytest.mark.parametrize(
    ("answers", "tone", "word"),
    [
        (("holds", "holds"), "good", "proven"),
        (("holds", "unknown"), "caution", "partly proven"),
        (("unknown", "unknown"), "open", "unknown"),
        (("violated", "unknown"), "bad", "violated"),
    ],
)
def test_the_tone_of_proofs(answers, tone, word):
    proofs = tuple(Proof(f"spec-{n}", "", a, "bounds", 1.0) for n, a in enumerate(answers))
    found = line(replace(BARE, proofs=proofs), "Proofs")
    assert (found.tone, found.word) == (tone, word)
    assert "of 2 specifications" in found.text


def test_a_proof_that_breaks_elsewhere_is_not_all_proven():
    proofs = (Proof("square", "a", "holds", "enumeration", 1.0),)
    audit = replace(
        BARE,
        proofs=proofs,
        rechecks=(Recheck("square", "a", "precision=int8", "holds", "violated", 9),),
        bounds=(
            RobustnessBounds(
                "square", "a black square", "bounds", "bounds", (ImageRobustness("a", True, False),)
            ),
        ),
    )
    found = line(audit, "Proofs")
    assert found.tone == "caution"
    assert found.text == ("1 of 1 image holds against a black square. 1 proof violated under precision=int8.")


@pytest.mark.parametrize("name", NAMES)
def test_what_was_left_out_is_given_its_reason(name):
    part = {"Worst single noise": "noise", "Combined noise": "combine"}.get(name, "attack")
    part = "squares" if name == "Proofs" else part
    audit = replace(BARE, parts=(Part(part, 0, 10, 0.0, 0.0, "the time was up"),))
    found = line(audit, name)
    assert found.text.startswith("Not measured: the time was up.")
    assert (found.tone, found.word, found.figure) == ("open", "not measured", "–")
    assert "not requested" in line(BARE, name).text
    noted = replace(BARE, notes=(f"{part}: the model is a classifier", "other: not this"))
    assert line(noted, name).text.startswith("Not measured: the model is a classifier.")


@given(st.floats(-100, 100))
def test_points_have_a_true_minus_and_zero_none(value):
    text = points(value)
    assert "-" not in text
    assert re.fullmatch(r"−?\d+\.\d\d", text)
    assert text != "−0.00"
    assert float(text.replace("−", "-")) == pytest.approx(value, abs=0.0050001)


@given(st.floats(-1, 1), st.floats(0, 1))
def test_an_interval_holds_0_or_not(low, width):
    assert not_significant(low, low + width) == (low <= 0 <= low + width)
    assert between(low, low + width).count(",") == 1


def patched(audit, **values):
    """The audit with a patch that breaks three of eight images, replayed under two deployments."""
    views = (Survival("shift", 20, 24, 3), Survival("all together", 11, 24, 3))
    patch = AttackLevel(
        "patch", 1444, 0.92, 0.61, aimed=8, broken=3, images=8, mean_pixels=1444.0, engine="gradient",
        shape="square", size="38px", sides=(38, 38), survival=views,
    )  # fmt: skip
    cells = [MatrixCell("patch", TRAINED, 0.6, 8, 3, 3), MatrixCell("patch", "colour=nv12", 0.6, 8, 3, 3)]
    cells.append(MatrixCell("patch", "precision=int8", 0.6, 8, 3, 1))
    matrix = replace(audit.matrix, cells=(*audit.matrix.cells, *cells))
    return replace(audit, patch=replace(patch, **values), matrix=matrix)


def test_the_patch_is_the_headline_with_scattered_pixels_next_to_it():
    found = line(patched(sample_audit()), "Printable patch")
    assert (found.figure, found.images, found.word) == ("3 of 8", 8, "indication")
    assert found.text.startswith(
        "A 38 × 38 px square patch on each object hides every detected object in 3 of 8 images (mAP@.5 0.920 "
        "→ 0.610), also after nv12 (3 of 3), but in 1 of 3 after int8. It still hides them in 11 of 24 "
        "random views of 3 images (placement, shift, scale, rotation, light, jpeg together). 100 scattered "
        "pixels hide every detected object in 2 of 8 attacked images"
    )


def test_a_patch_that_hides_nothing_is_no_proof():
    text = line(patched(sample_audit(), broken=0, sides=(12, 20, 38), survival=()), "Printable patch").text
    assert text.startswith(
        "A square patch of 12 to 38 px a side (median 20) on each object hides every detected"
    )
    assert "in 0 of 8 images" in text
    assert "A failed attack is not a proof." in text
    assert "random views" not in text

"""The names of an audit's numbers: what was measured has one, what was not has none."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
from generate.files import gates
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.audit import better_audit, sample_audit
from holdfast.audit.result import AttackLevel, Audit, Clean, Matrix, NoiseResult, Proof
from holdfast.audit.values import METRICS, PATTERNS, measured, pattern_of, required_pattern, values_of
from holdfast.core.errors import InputError
from holdfast.core.registry import stage


def empty() -> Audit:
    return Audit(model={}, data={}, clean=Clean("map50", "mAP@.5", 0.9, None, None, 4, "voc"))


def documented() -> dict[str, tuple[str, str]]:
    """Name -> example and unit, as the reference has them."""
    rows = re.findall(r"^\| `([\w.]+)`( ±)? \| `([\w.-]+)` \| (\w+) \|", gates(), re.MULTILINE)
    return {name + mark: (example, unit) for name, mark, example, unit in rows}


def test_numbers_of_the_sample() -> None:
    values = values_of(sample_audit())
    expected = {
        "clean.map50": 0.91, "clean.map50.low": 0.88, "clean.map50.high": 0.94, "clean.images": 40,
        "clean.recall": 0.93, "noise.map50.points_lost": 5.0, "noise.map50.points_lost.low": 2.0,
        "noise.map50.points_lost.high": 8.0, "noise.resize.map50.points_lost": 5.0,
        "noise.resize.opencv-nearest.map50.points_lost.high": 8.0,
        "noise.precision.int8.map50.points_lost": 1.0, "noise.decode.opencv.map50.points_lost": 0,
        "noise.ceil.map50.points_lost.high": 0, "noise.combined.map50.points_lost": 9.0,
        "noise.missing": 0, "attack.100px.Se": 1 - 0.7 / 0.92, "attack.100px.broken": 0.25,
        "attack.1000px.map50": 0.12, "attack.1000px.aimed": 8, "attack.smallest": 100,
        "attack.largest": 1000, "square.certified": 5 / 8, "square.broken": 3 / 8, "verify.violated": 3,
        "verify.holds": 5, "verify.unknown": 0, "recheck.findings": 1, "recheck.broken": 1,
        "recheck.unknown": 0, "matrix.map50.min": 0.25, "matrix.magnified": 0, "matrix.missing": 1,
        "audit.skipped": 1, "audit.failed_images": 0, "audit.seconds": 101.5,
    }  # fmt: skip
    for name, value in expected.items():
        assert values[name] == pytest.approx(value), name
    assert "verify.specs.violated" not in values  # none was asked about
    assert values_of(better_audit())["noise.resize.map50.points_lost"] == 1.0


def test_a_gate_may_name_an_option_by_its_alias() -> None:
    sample = sample_audit()
    renamed = [replace(c, label=c.label.replace("int8", "int8-minmax")) for c in sample.noises]
    audit = replace(sample, noises=tuple(renamed))
    assert measured(audit)["noise.precision.int8.map50.points_lost"].about == "precision=int8-minmax"
    assert pattern_of("noise.precision.int8.map50.points_lost") is not None
    assert "noise.precision.int8.map50.points_lost" not in values_of(
        audit
    )  # one number, one name in a comparison


def test_every_name_of_an_audit_is_known_and_documented() -> None:
    audit = replace(sample_audit(), proofs=(Proof("a.vnnlib", "", "violated", "attack", 1.0),))
    table = documented()
    for name in {**values_of(sample_audit()), **values_of(audit)}:
        pattern = pattern_of(name, audit)
        assert pattern is not None, name
        assert pattern.text + " ±" * pattern.interval in table, name


def test_the_table_of_the_document_is_the_list_of_patterns() -> None:
    table = documented()
    assert list(table) == [p.text + " ±" * p.interval for p in PATTERNS]
    for pattern, (example, unit) in zip(PATTERNS, table.values(), strict=True):
        assert pattern_of(example) == pattern
        for end in (".low", ".high"):
            assert (pattern_of(example + end) is not None) == pattern.interval
        assert pattern_of(f"{example}.point") == pattern
        assert unit == pattern.unit


def test_what_was_not_measured_has_no_value() -> None:
    assert set(values_of(empty())) == {
        "clean.map50", "clean.images", "audit.failed_images", "audit.seconds",
    }  # fmt: skip
    nothing = AttackLevel("300px", 300, 0.9, 0.9, 0, 0, 8, None, "gradient")
    assert set(values_of(replace(empty(), attacks=(nothing,)))) - set(values_of(empty())) == {
        "attack.300px.aimed"
    }
    blind = replace(nothing, before=0.0, after=0.0, aimed=2)
    assert "attack.300px.Se" not in values_of(replace(empty(), attacks=(blind,)))


def test_no_budget_that_breaks_is_more_than_any_bound() -> None:
    strike = AttackLevel("300px", 300, 0.9, 0.9, 8, 0, 8, None, "gradient")
    values = values_of(replace(empty(), attacks=(strike,)))
    assert values["attack.smallest"] == math.inf
    assert values["attack.largest"] == 300


def test_the_ends_of_the_worst_noise_are_those_of_the_worst_end() -> None:
    wide = NoiseResult("resize=square", "resize", "measured", 0.05, -0.02, 0.12)
    sure = NoiseResult("colour=nv12", "colour", "measured", 0.04, 0.03, 0.05)
    found = measured(replace(empty(), noises=(wide, sure)))
    ends = [found[f"noise.map50.points_lost{end}"] for end in ("", ".low", ".high")]
    assert [(e.value, e.about) for e in ends] == [
        (0.05, "resize=square"), (0.03, "colour=nv12"), (0.12, "resize=square"),
    ]  # fmt: skip


@pytest.mark.parametrize("drop", [None, math.nan])
def test_a_noise_without_its_number_leaves_the_worst_unknown(drop: float | None) -> None:
    lost = NoiseResult("resize=square", "resize", "measured", drop)
    sure = NoiseResult("colour=nv12", "colour", "measured", 0.04, 0.03, 0.05)
    values = values_of(replace(empty(), noises=(lost, sure)))
    assert "noise.map50.points_lost" not in values
    assert "noise.resize.square.map50.points_lost" not in values
    assert values["noise.colour.map50.points_lost"] == 0.04


def test_an_end_that_one_noise_lacks_is_no_end_of_the_worst() -> None:
    bare = NoiseResult("resize=square", "resize", "measured", 0.3)
    sure = NoiseResult("colour=nv12", "colour", "measured", 0.04, 0.03, 0.05)
    values = values_of(replace(empty(), noises=(bare, sure)))
    assert values["noise.map50.points_lost"] == 0.3
    assert "noise.map50.points_lost.high" not in values  # 0.05 would let 0.3 pass


def test_noises_that_did_not_run_are_counted_not_judged() -> None:
    noises = (
        NoiseResult("decode=dali", "decode", "not installed"),
        NoiseResult("runtime=ncnn", "runtime", "impossible"),
        NoiseResult("ceil=ceil", "ceil", "no effect"),
    )
    values = values_of(replace(empty(), noises=noises))
    assert values["noise.missing"] == 2
    assert values["noise.map50.points_lost"] == 0
    assert "noise.decode.map50.points_lost" not in values
    assert "noise.runtime.ncnn.map50.points_lost" not in values


def test_a_matrix_of_which_nothing_ran_has_no_minimum() -> None:
    sample = sample_audit().matrix
    cells = tuple(replace(m, value=None, extra_points_lost=None) for m in sample.cells)
    values = values_of(replace(empty(), matrix=Matrix(sample.threats, sample.deployments, cells)))
    assert values["matrix.missing"] == len(cells)
    assert "matrix.map50.min" not in values
    assert "matrix.magnified" not in values


def test_magnified_fields_are_counted() -> None:
    sample = sample_audit()
    first, *rest = (m for m in sample.matrix.cells if m.effect)
    grown = replace(first, extra_points_lost=20.0, low=10.0, high=30.0)
    audit = replace(sample, matrix=replace(sample.matrix, cells=(grown, *rest)))
    one = measured(audit)["matrix.magnified"]
    assert one.value == 1
    assert first.threat in one.about


def test_specifications_alone() -> None:
    proofs = (*sample_audit().proofs, Proof("a.vnnlib", "", "unknown", "bounds", 3.0))
    values = values_of(replace(sample_audit(), proofs=proofs))
    assert (values["verify.unknown"], values["verify.specs.unknown"]) == (1, 1)
    assert (values["verify.violated"], values["verify.specs.violated"]) == (3, 0)
    assert values["square.certified"] == 5 / 8


def test_the_command_of_a_number_is_that_of_its_row_or_of_the_audit() -> None:
    found = measured(sample_audit())
    assert found["noise.map50.points_lost"].command.endswith("--only resize=opencv-nearest")
    assert found["noise.precision.map50.points_lost"].command == sample_audit().command


@pytest.mark.parametrize(
    "name",
    [
        "attack.77px.Se", "noise.decode.dali.map50.points_lost", "noise.top1.points_lost",
        "noise.boxes.map.points_lost.low", "clean.f1", "matrix.miou.min", "verify.specs.holds",
    ],
)  # fmt: skip
def test_names_are_known_before_anything_is_measured(name: str) -> None:
    assert pattern_of(name)


@pytest.mark.parametrize(
    "name",
    [
        "", ".", "noise", "noise.drop", "noise.map50", "noise.map50.points_lost.mean", "noise.map50.drop",
        "noise.map50.points_lost.low.high", "noise.map50.points_lost.low.point", "clean.map50.point.point",
        "attack.px.Se", "attack.0px.Se", "attack.-3px.Se", "attack.300.Se", "attack.300px.se",
        "attack.300px.Se.low", "clean.images.high", "noise.resize.opencv.map50.points_lost",
        "noise.resizer.map50.points_lost", "verify.timeout", "xnoise.map50.points_lost",
        "noise.map50.points_lost\n", "noisexmap50xpoints_lost",
    ],
)  # fmt: skip
def test_names_that_do_not_exist(name: str) -> None:
    assert pattern_of(name) is None
    with pytest.raises(InputError, match="unknown name"):
        required_pattern(name)


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=30))
def test_any_text_is_known_or_not(name: str) -> None:
    assert pattern_of(name) is None or name.partition(".")[0] in {one.engine for one in PATTERNS}


def test_the_metric_is_that_of_the_audit_or_of_the_model_about_to_be_audited() -> None:
    assert pattern_of("noise.map50.points_lost", sample_audit())
    assert pattern_of("noise.top1.points_lost", sample_audit()) is None
    assert pattern_of("noise.top1.points_lost", metrics=("top1",))
    assert pattern_of("noise.map50.points_lost", metrics=("top1",)) is None
    with pytest.raises(InputError, match=r"Did you mean 'noise.map50.points_lost'.*METRIC is map50;"):
        required_pattern("noise.top1.points_lost", sample_audit())
    assert {"map50", "map", "top1", "miou", "iou_equal"} == set(METRICS)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("noise.map50.points_lots", "noise.map50.points_lost"),
        ("atack.300px.Se", "attack.300px.Se"),
        ("attack.77px.se", "attack.77px.Se"),
        ("noise.resize.opencv-nearset.map50.points_lost", "noise.resize.opencv-nearest.map50.points_lost"),
        ("verify.violation", "verify.violated"),
        ("clean.map50.lower", "clean.map50.low"),
    ],
)
def test_a_typo_gets_the_nearest_name_and_those_that_fit(wrong: str, right: str) -> None:
    with pytest.raises(InputError) as caught:
        required_pattern(wrong)
    said = str(caught.value)
    assert f"unknown name {wrong!r} in a gate. Did you mean {right!r}?" in said
    assert f"names of {right.partition('.')[0]}: " in said
    assert "\n" not in said


def test_noises_of_ones_own_have_names() -> None:
    assert pattern_of("noise.vendor.v1.2.map50.points_lost") is None

    @stage("noise", name="v1.2", family="vendor")
    def own(pipeline: object) -> object:
        """The same pipeline."""
        return pipeline

    assert pattern_of("noise.vendor.v1.2.map50.points_lost")
    assert pattern_of("noise.vendor.map50.points_lost.high")


def test_noises_of_the_audit_are_known_where_they_are_not_loaded() -> None:
    audit = replace(empty(), noises=(NoiseResult("mine=fast", "mine", "measured", 0.1, 0.0, 0.2),))
    assert pattern_of("noise.mine.fast.map50.points_lost", audit)
    assert pattern_of("noise.mine.slow.map50.points_lost", audit) is None

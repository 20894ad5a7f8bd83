"""Families and options of system noise: what is registered is offered, and each exchanges one thing."""

import dataclasses
import pickle

import pytest

from holdfast.core import fingerprint
from holdfast.core.errors import InputError, UnknownName
from holdfast.core.pipeline import Pipeline
from holdfast.stages.deployed import DeployedInference
from holdfast.stages.families import (
    FAMILIES,
    alias_notes,
    applied,
    families,
    family,
    option,
    options,
    options_of,
)
from holdfast.stages.post import BoxPostProcessing

EVERY = [o for f in FAMILIES for o in options(f)]
# What the paper's section 3.4 lists and what the project adds to it.
ASKED = {
    "decode": {
        "pillow", "opencv", "ffmpeg", "fast-idct", "no-fancy-upsampling", "zune", "ijg", "dali", "tensorflow",
    },
    "resize": {
        "pillow-bilinear", "pillow-nearest", "pillow-box", "pillow-hamming", "pillow-bicubic",
        "pillow-lanczos", "opencv-bilinear", "opencv-nearest", "opencv-area", "opencv-bicubic",
        "opencv-lanczos", "square",
        "torch-bilinear", "torch-bilinear-antialias", "swscale-bilinear",
    },
    "colour": {"yuv444", "yuv444-fixed", "nv12", "nv12-bilinear", "nv12-opencv", "nv12-swscale"},
    "ceil": {"ceil"},
    "precision": {
        "fp16", "bf16", "int8-mixed", "int8-per-tensor", "int8-minmax", "int8-entropy", "int8-percentile",
    },
    "runtime": {"onnxruntime", "openvino", "ncnn"},
    "boxes": {"offset", "round-floor", "round-nearest", "round-ceil", "nms-inclusive", "exp-fp16"},
}  # fmt: skip


@pytest.mark.parametrize("name", ASKED)
def test_every_noise_that_is_asked_for_is_offered(name):
    assert ASKED[name] <= {o.name for o in options(family(name))}


def test_upsampling_goes_both_ways():
    offered = {o.name for o in options(family("upsample"))}
    assert any("bilinear" in name for name in offered)
    assert any("nearest" in name for name in offered)


@pytest.mark.parametrize("one", EVERY, ids=lambda o: o.label)
def test_every_option_is_told_about_and_exchanges_one_stage(one):
    assert one.summary.endswith("."), "its docstring's first line is a sentence"
    assert option(one.label) == one
    before, after = Pipeline(), one.noise(Pipeline())
    differing = [
        f.name for f in dataclasses.fields(Pipeline) if getattr(before, f.name) != getattr(after, f.name)
    ]
    assert len(differing) <= 1
    assert pickle.loads(pickle.dumps(after)) == after  # noqa: S301 (our own)
    assert fingerprint.of(after.describe()) == fingerprint.of(one.noise(Pipeline()).describe())
    if differing:
        assert after.describe() != before.describe()


@pytest.mark.parametrize("one", [o for o in EVERY if o.default], ids=lambda o: o.label)
def test_every_default_option_names_systems_that_do_it(one):
    assert one.systems or one.alike, f"{one.label} does not say which systems do it"


def test_rewrites_add_up_with_the_precision_last_and_one_of_a_family():
    chosen = options_of("precision=int8, upsample=upsample-bilinear, ceil=ceil, precision=fp16")
    infer = applied(Pipeline(), chosen).infer
    assert isinstance(infer, DeployedInference)
    assert infer.rewrites == ("ceil", "upsample-bilinear", "fp16")


def test_the_default_table_has_int8_as_products_do_it_and_the_careful_mix_by_its_own_name():
    listed = {o.name for o in options(family("precision")) if o.default}
    assert listed == {
        "bf16", "fp16", "int8-entropy", "int8-minmax", "int8-mixed", "int8-percentile",
    }  # fmt: skip


def test_int8_is_an_alias_of_min_max_and_a_note_says_so():
    assert option("precision=int8") == option("precision=int8-minmax")
    (note,) = alias_notes(["precision=int8", "precision", "precision=fp16", "precision=int8"])
    assert note.startswith("precision=int8 means precision=int8-minmax (TensorFlow Lite's default")
    assert note.endswith("; also int8-dynamic, int8-entropy, int8-mixed, int8-per-tensor, int8-percentile")
    assert alias_notes(["precision=int8-minmax"]) == ()


def test_a_runtime_keeps_the_rewrites():
    infer = applied(Pipeline(), options_of("ceil=ceil,runtime=opencv-dnn")).infer
    assert infer == DeployedInference(("ceil",), "opencv-dnn")


def test_box_options_add_up():
    post = applied(Pipeline(), options_of("boxes=offset,boxes=round-floor")).post
    assert post == BoxPostProcessing(offset=True, rounding="floor")


def test_functions_of_ones_own_cannot_be_combined_with_rewrites():
    own = Pipeline().replace(infer=lambda model, threads: None)
    with pytest.raises(InputError, match="cannot be combined"):
        option("ceil=ceil").noise(own)
    with pytest.raises(InputError, match="cannot be combined"):
        option("boxes=offset").noise(Pipeline().replace(post=lambda raw, frame, card: None))


@pytest.mark.parametrize(
    ("label", "hint"),
    [("resize=opencv-bilinaer", "opencv-bilinear"), ("resise=square", "resize"), ("decode=pilow", "pillow")],
)
def test_unknown_names_get_the_nearest(label, hint):
    with pytest.raises(UnknownName, match=f"Did you mean '{hint}'"):
        option(label)


def test_a_label_needs_both_parts():
    with pytest.raises(InputError, match="expected FAMILY=OPTION"):
        option("resize")


def test_the_families_are_the_papers_and_the_runtime():
    assert [f.name for f in families()][:10] == [
        "decode", "resize", "colour", "ceil", "upsample", "precision", "runtime", "boxes", "corruptions",
        "mistakes",
    ]  # fmt: skip


def test_options_that_no_product_has_are_hypothetical():
    every = [one for of in families() for one in options(of)]
    assert [one.label for one in every if one.hypothetical] == ["precision=int8-mixed", "boxes=round-ceil"]
    assert all(
        one.hypothetical == ("no product" in one.systems or "no known" in one.systems) for one in every
    )

"""Names of products and of papers lead to registered names."""

import pytest

from holdfast.cli.app import root
from holdfast.core.errors import InputError, UnknownName
from holdfast.core.registry import names, part
from holdfast.core.synonyms import SYNONYMS, did_you_mean, suggestions
from holdfast.metrics.rules import RULES
from holdfast.stages.families import families, family, option, options

FAMILIES = [known.name for known in families()]


@pytest.mark.parametrize("word", SYNONYMS)
def test_every_name_of_the_table_is_registered(word):
    assert word == word.lower()
    labels = {label for known in families() for one in options(known) for label in one.labels}
    others = {*FAMILIES, *RULES, *names("reader"), *names("head"), *root().commands}
    assert set(SYNONYMS[word]) <= labels | others


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("PIL", "decode=pillow"),
        ("acl", "colour=nv12"),
        ("int8", "precision=int8"),
        ("fp16", "precision=fp16"),
        ("FP16", "precision=fp16"),
        ("post-processing", "boxes"),
        ("TensorRT", "precision=int8-entropy"),
        ("TFLite", "precision=int8-minmax"),
        ("OpenVINO", "runtime=openvino"),
        ("libjpeg", "decode=ijg"),
        ("dali", "decode=dali"),
        ("cv2", "decode=opencv"),
        ("nearest", "resize=opencv-nearest"),
        ("bilinear", "resize=opencv-bilinear"),
    ],
)
def test_a_name_of_a_product_leads_to_a_noise_option(word, meant):
    assert suggestions(word, FAMILIES)[0] == meant
    with pytest.raises(UnknownName, match=f"Did you mean '{meant}'"):
        family(word)
    with pytest.raises(InputError, match=f"Did you mean '{meant}'"):
        option(word)


def test_within_a_family_only_its_options_are_meant():
    with pytest.raises(UnknownName, match=r"Did you mean 'pillow'\?"):
        part("decode", "PIL")
    with pytest.raises(UnknownName, match=r"Did you mean 'opencv-nearest' or 'pillow-nearest'\?"):
        option("resize=nearest")
    assert suggestions("resize=cv2", ["resize=opencv-bilinear"]) == ("resize=opencv-bilinear",)


def test_a_word_of_a_name_is_found_without_the_table():
    assert suggestions("hamming", names("resize")) == ("pillow-hamming",)
    assert did_you_mean("Hamming", names("resize")) == "Did you mean 'pillow-hamming'?"
    assert did_you_mean("something else", names("resize")) == ""


def test_the_command_line_asks_the_same_question(fails):
    words = ["signs-yolo", "signs:0:2"]
    assert "Did you mean 'boxes'?" in fails("noise", *words, "--only", "post-processing")
    assert "Did you mean 'pillow'?" in fails("evaluate", *words, "--stage", "decode=PIL")
    assert "Did you mean 'voc'?" in fails("evaluate", *words, "--rule", "pascal")
    assert "Did you mean 'evaluate'?" in fails("eval")

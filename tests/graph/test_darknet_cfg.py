"""The .cfg reader: what it takes, and what every error names."""

from pathlib import Path

import pytest

from holdfast.core.errors import ModelError
from holdfast.core.types import Size
from holdfast.graph.darknet.convert import read_cfg, strides, trace
from holdfast.graph.darknet.layers import KINDS
from holdfast.graph.darknet.nodes import ACTIVATE

HEAD = (
    "[convolutional]\nfilters=18\nactivation=linear\n\n[yolo]\nanchors=4,6, 10,14, 20,30\nnum=3\nclasses=1\n"
)


def cfg(folder: Path, text: str) -> Path:
    path = folder / "net.cfg"
    path.write_text(text, encoding="utf-8")
    return path


def network(folder: Path, middle: str, net: str = "[net]\nwidth=64\nheight=64\n"):
    return read_cfg(cfg(folder, net + middle + "\n" + HEAD))


def facts(layer) -> dict[str, object]:
    return {name: value for name, value in vars(layer).items() if name != "section"}


CONVOLUTION = {"strides": (1, 1), "dilation": 1, "groups": 1, "batch_normalize": False}


def refused(folder: Path, middle: str) -> str:
    with pytest.raises(ModelError) as problem:
        trace(network(folder, middle))
    message = str(problem.value)
    assert "net.cfg" in message
    assert "\n" not in message
    return message


def test_comments_blanks_synonyms_and_order(tmp_path):
    text = "# hello\n[network]\r\nwidth = 96 ; why\nheight=64\n\n"
    text += "[conv]\nfilters = 4 # four\nsize=3\npad=1\nactivation=leaky\n"
    found = read_cfg(cfg(tmp_path, text + HEAD))
    assert found.size == Size(96, 64)
    assert [p.section.kind for p in found.layers] == ["convolutional", "convolutional", "yolo"]
    assert [p.section.index for p in found.layers] == [0, 1, 2]
    assert found.layers[0].section.line == 6
    own = {"sources": (-1,), "filters": 4, "size": 3, "padding": 1, "activation": "leaky"}
    assert facts(found.layers[0]) == CONVOLUTION | own


def test_darknets_defaults(tmp_path):
    middle = "[convolutional]\n[maxpool]\nstride=2\n[dropout]\n[upsample]\n"
    middle += "[shortcut]\nfrom=0\n[route]\nlayers=-1,0\n"
    layers = [facts(layer) for layer in network(tmp_path, middle).layers]
    own = {"sources": (-1,), "filters": 1, "size": 1, "padding": 0}
    assert layers[:4] == [
        CONVOLUTION | own | {"activation": "logistic"},  # darknet's default is not "linear"
        {"sources": (0,), "size": 2, "strides": (2, 2), "padding": 1},
        {"sources": (1,)},
        {"sources": (2,), "stride": 2, "scale": 1.0},
    ]
    assert layers[4] == {"sources": (3, 0), "activation": "linear"}
    assert layers[5] == {"sources": (4, 0), "groups": 1, "group_id": 0}
    anchors = ((4, 6), (10, 14), (20, 30))
    assert layers[-1] == {"sources": (6,), "anchors": anchors, "classes": 1, "scale_xy": 1.0}


def test_pad_means_half_the_kernel_and_padding_is_in_pixels(tmp_path):
    middle = "[convolutional]\nsize=5\npad=1\npadding=7\n[convolutional]\nsize=5\npadding=1\n"
    first, second = network(tmp_path, middle).layers[:2]
    assert (first.padding, second.padding) == (2, 1)


def test_mask_chooses_anchors(tmp_path):
    text = "[net]\n" + HEAD.replace("filters=18", "filters=14").replace(
        "num=3", "num=3\nmask=2,0\nscale_x_y=1.05"
    )
    (head,) = read_cfg(cfg(tmp_path, text.replace("classes=1", "classes=2"))).heads
    assert (head.anchors, head.classes, head.scale_xy) == (((20, 30), (4, 6)), 2, 1.05)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", "no section at all"),
        ("width=3\n[net]\n" + HEAD, "line 1: expected [net] before the first option, got 'width=3'"),
        ("[convolutional]\n", "net.cfg:1: expected [net] as the first section, got [convolutional]"),
        ("[net]\n", "expected layers after [net], got none"),
        ("[net]\nwidth\n" + HEAD, "line 2: expected key=value, got 'width'"),
        ("[net\nwidth=3\n" + HEAD, "line 1: expected a section like [convolutional], got '[net'"),
        ("[net]\nwidth=\n=3\n" + HEAD, "line 3: expected key=value, got '=3'"),
        ("[net]\nwidth=wide\n" + HEAD, "net.cfg:2: [net]: expected width= integers"),
        ("[net]\nwidth=0\n" + HEAD, "expected width= one integer of at least 1, got '0'"),
        ("[net]\nchannels=1\n" + HEAD, "expected channels=3 (RGB), got channels=1"),
        ("[net]\n[dropout]\n", "at least one [yolo] section, got none"),
        ("[net]\n\0", "binary data; give the .cfg first"),
    ],
)
def test_malformed_files_name_the_line(tmp_path, text, wanted):
    with pytest.raises(ModelError) as problem:
        read_cfg(cfg(tmp_path, text))
    assert wanted in str(problem.value)
    assert "net.cfg" in str(problem.value)


def test_all_malformed_lines_are_told_at_once(tmp_path):
    with pytest.raises(ModelError, match=r"line 2: .*line 4: "):
        read_cfg(cfg(tmp_path, "[net]\nx\ny=1\nz\n" + HEAD))


def test_everything_unsupported_is_listed_at_once(tmp_path):
    message = refused(
        tmp_path,
        "[lstm]\nactivation=gelu\n[convolutional]\nactivation=stair\nxnor=1\nbinary=0\n[Gaussian_yolo]\n"
        "[shortcut]\nfrom=-1\nweights_type=per_feature\n[convolutional]\nstrides=2\nshare_index=0\n",
    )
    for wanted in (
        "8 unsupported items",
        "line 4: [lstm] is not a supported section",
        "line 5: [lstm] unknown activation 'gelu'",
        "line 7: [convolutional] unknown activation 'stair'",
        "line 8: [convolutional] xnor=1 is not supported",
        "line 10: [gaussian_yolo] is not a supported section",
        "line 13: [shortcut] weights_type=per_feature is not supported",
        "line 15: unknown key 'strides', did you mean 'stride'?",
        "line 16: [convolutional] share_index=0 is not supported",
        *KINDS,
        *ACTIVATE,
    ):
        assert wanted in message
    assert "binary" not in message


@pytest.mark.parametrize(
    ("middle", "wanted"),
    [
        ("[dropout]\n[route]\nlayers=-3\n", "net.cfg:5: layer 1 [route]: expected layers= earlier layers"),
        ("[dropout]\n[route]\nlayers=1\n", "got 1, that is layer 1"),
        ("[dropout]\n[route]\n", "layer 1 [route]: expected layers=..., got no such line"),
        ("[dropout]\n[route]\nlayers=0\ngroups=2\n", "multiple of groups=2, got 3 from layer 0"),
        ("[dropout]\n[route]\nlayers=0\ngroups=3\ngroup_id=3\n", "expected group_id below groups=3, got 3"),
        ("[dropout]\n[shortcut]\nfrom=-2\n", "got -2, that is layer -1"),
        (
            "[maxpool]\nstride=2\n[route]\nlayers=-1,0\n[upsample]\n[shortcut]\nfrom=0\n",
            "6 × 64 × 64 and 3 × 32 × 32",
        ),
        (
            "[maxpool]\nstride=2\n[upsample]\n[route]\nlayers=0,1\n",
            "3 × 32 × 32 from layer 0 and 3 × 64 × 64",
        ),
        ("[convolutional]\nfilters=4\ngroups=2\n", "multiples of groups=2, got 3 channels and filters=4"),
        ("[convolutional]\nsize=99\n", "expected an input map that its window fits into, got 3 × 64 × 64"),
        ("[maxpool]\nsize=3\npadding=3\n", "expected padding below size=3, got padding=3"),
        (
            "[convolutional]\nsize=3\npadding=2\ndilation=2\n",
            "expected pad=1 and an odd size with dilation=2",
        ),
        ("[convolutional]\nstride=two\n", "net.cfg:5: layer 0 [convolutional]: expected stride= integers"),
        (
            "[convolutional]\nstride=1\nstride=2\n",
            ":6: layer 0 [convolutional]: stride=2, but line 5 says stride=1",
        ),
        ("[convolutional]\nfilters=2,3\n", "expected filters= one integer of at least 1, got '2,3'"),
        ("[upsample]\nscale=big\n", "expected scale= numbers"),
        ("[dropout]\n[scale_channels]\nfrom=0\n", "expected 3 × 1 × 1 factors before it, got 3 × 64 × 64"),
        (HEAD + "[dropout]\n", "layer 2 [dropout]: reads layer 1, a [yolo]"),
        (
            HEAD.replace("filters=18", "filters=17"),
            "expected filters=18 before it, 3 anchors × (5 + 1 classes), got 17",
        ),
        (HEAD.replace("num=3", "num=4"), "expected anchors= 8 numbers for num=4, got 6"),
        (HEAD.replace("num=3", "num=3\nmask=1,3"), "expected mask= numbers from 0 to 2, got [3]"),
        (HEAD.replace("10,14", "10,-14"), "expected anchors= positive"),
        (
            HEAD.replace("classes=1", "classes=2").replace("18", "21") + "[route]\nlayers=-2\n",
            "same classes= in every [yolo], got [1, 2]",
        ),
    ],
)
def test_layers_that_do_not_fit_say_what_was_expected(tmp_path, middle, wanted):
    assert wanted in refused(tmp_path, middle)


def test_missing_file(tmp_path):
    with pytest.raises(ModelError, match="no such file"):
        read_cfg(tmp_path / "none.cfg")
    with pytest.raises(ModelError, match="readable"):
        read_cfg(tmp_path)


def test_old_code_pages_in_comments(tmp_path):
    path = tmp_path / "net.cfg"
    path.write_bytes(b"# caf\xe9\n[net]\n" + HEAD.encode())
    assert len(read_cfg(path).layers) == 2


def test_strides_are_the_inputs_pixels_per_cell(tmp_path):
    found = network(tmp_path, "[maxpool]\nstride=2\n[maxpool]\nstride=4\n")
    assert strides(trace(found), Size(64, 64)) == (8,)
    assert strides(trace(found, Size(96, 32)), Size(96, 32)) == (8,)
    odd = Size(63, 64)
    with pytest.raises(ModelError, match=r"7.875 × 8 for the input 63×64; take .* multiples of 32"):
        strides(trace(found, odd), odd)

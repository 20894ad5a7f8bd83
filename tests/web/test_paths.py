"""No path outside the root can be named: each way out is tried."""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.core.errors import InputError
from holdfast.web.form import SHOWN, inside, listing

WAYS_OUT = [
    "..", "../secret", "../secret/secret.onnx", "scenes/../../secret/secret.onnx", "scenes/..", "./..",
    "/etc/passwd", "//etc/passwd", "\\etc", "..\\secret\\secret.onnx", "scenes\\..\\..\\secret", "C:\\secret",
    "C:secret", "net.onnx\0", "\0", "scenes/\0/..", "a" * 5000, "a" * 300, "link/secret.onnx", "link",
    "file.onnx",
    "circle", "circle/x", "missing", "\udcff",
]  # fmt: skip


@pytest.fixture
def linked(folders):
    """The root, with links in it that lead out, to within, and in a circle."""
    root = folders[0]
    (root / "link").symlink_to(root.parent / "secret", target_is_directory=True)
    (root / "file.onnx").symlink_to(root.parent / "secret" / "secret.onnx")
    (root / "circle").symlink_to(root / "circle")
    (root / "same").symlink_to(root / "scenes", target_is_directory=True)
    return root


@pytest.mark.parametrize("text", WAYS_OUT)
def test_what_leads_out_or_to_nothing_is_refused_in_one_line(linked, text):
    with pytest.raises(InputError) as told:
        inside(linked, text)
    assert "below the root" in str(told.value)
    assert "\n" not in str(told.value)
    assert len(str(told.value)) < 400


def test_what_is_inside_is_found_also_over_a_link_that_stays_inside(linked):
    assert inside(linked, "net.onnx") == linked / "net.onnx"
    assert inside(linked, "same/images") == linked / "scenes" / "images"
    assert inside(linked, "") == linked
    assert inside(linked, "./scenes//images") == linked / "scenes" / "images"


def test_a_root_that_is_a_link_itself_is_followed(linked):
    other = linked.parent / "other"
    other.symlink_to(linked, target_is_directory=True)
    assert inside(other, "net.onnx") == linked / "net.onnx"


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    st.lists(st.sampled_from(["..", ".", "", "scenes", "link", "a", "\\", "%2e%2e", "secret"]), max_size=8)
)
def test_no_row_of_names_leads_out(tmp_path_factory, parts):
    root = tmp_path_factory.getbasetemp() / "hyp" / "root"
    (root / "scenes" / "a").mkdir(parents=True, exist_ok=True)
    (root.parent / "secret").mkdir(exist_ok=True)
    if not (root / "link").is_symlink():
        (root / "link").symlink_to(root.parent / "secret")
    try:
        found = inside(root, "/".join(parts))
    except InputError:
        return
    assert found.is_relative_to(root)


def test_the_list_has_models_data_and_folders_and_no_way_out(linked):
    (linked / "notes.txt").write_text("")
    found = listing(linked, "")
    assert [(i.name, i.model, i.data) for i in found.items] == [
        ("net.onnx", True, False),
        ("same", False, True),
        ("scenes", False, True),
    ]
    assert found.above == ()
    inner = listing(linked, "scenes/images")
    assert inner.above == (("scenes", "scenes"), ("images", "scenes/images"))
    assert [i.path for i in listing(linked, "scenes").items] == ["scenes/annotations.json", "scenes/images"]


def test_a_file_is_not_listed_and_a_long_folder_says_how_many_are_left_out(linked):
    with pytest.raises(InputError, match="expected a folder"):
        listing(linked, "net.onnx")
    for number in range(SHOWN + 7):
        (linked / "scenes" / "images" / f"{number}.json").touch()
    found = listing(linked, "scenes/images")
    assert (len(found.items), found.more) == (SHOWN, 7)


@pytest.mark.skipif(os.name == "nt", reason="names of bytes are of Unix")
def test_a_name_that_is_no_text_is_left_out(linked):
    try:
        (linked / os.fsdecode(b"\xff.onnx")).touch()
    except OSError:
        pytest.skip("this file system takes no such name")
    assert [i.name for i in listing(linked, "").items if i.model] == ["net.onnx"]

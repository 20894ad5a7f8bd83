import gzip
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import InputError
from holdfast.verify.vnncomp.instances import (
    Instance,
    allotted,
    category_of,
    limited,
    read_instances,
    sampled,
)


def made(networks, each):
    return [
        Instance("c", f"{n}.onnx", f"{i}.vnnlib", 60.0, Path("n"), Path("s"), Path("f"))
        for n in range(networks)
        for i in range(each)
    ]


def test_files_are_found_beside_the_csv_also_packed(tmp_path):
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx" / "a.onnx.gz").write_bytes(gzip.compress(b"a"))
    (tmp_path / "b.onnx").write_bytes(b"b")
    (tmp_path / "p.vnnlib").write_bytes(b"p")
    listing = tmp_path / "instances.csv"
    listing.write_bytes(b"\xef\xbb\xbfonnx/a.onnx,p.vnnlib,350\r\n\r\n b.onnx , p.vnnlib , 1.5\r\n")
    first, second = read_instances(listing)
    assert first.network == "onnx/a.onnx"
    assert first.network_path.name == "a.onnx.gz"
    assert (second.network, second.spec, second.limit) == ("b.onnx", "p.vnnlib", 1.5)
    assert first.category == tmp_path.name
    assert read_instances(tmp_path) == (first, second)


def test_a_header_is_skipped(tmp_path):
    for name in ("n.onnx", "p.vnnlib"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "x_instances.csv").write_text("onnx,vnnlib,timeout\nn.onnx,p.vnnlib,9\n")
    (only,) = read_instances(tmp_path / "x_instances.csv")
    assert (only.category, only.limit) == ("x", 9.0)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "got none"),
        ("n.onnx,p.vnnlib\n", r"instances.csv:1: expected network,specification,seconds, got 2 fields"),
        ("n.onnx,p.vnnlib,soon\n", r":1: expected a time limit in seconds, got 'soon'"),
        ("n.onnx,p.vnnlib,-4\n", "expected a time limit"),
        ("n.onnx,p.vnnlib,nan\n", "expected a time limit"),
        ("n.onnx,p.vnnlib,9\nm.onnx,p.vnnlib,9\n", r":2: no file m.onnx \(nor m.onnx.gz\)"),
        ("n.onnx,q.vnnlib,9\n", "no file q.vnnlib"),
    ],
)
def test_bad_listings_are_told_with_their_line(tmp_path, text, told):
    for name in ("n.onnx", "p.vnnlib"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "instances.csv").write_text(text)
    with pytest.raises(InputError, match=told):
        read_instances(tmp_path / "instances.csv")


def test_a_missing_listing_is_told(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_instances(tmp_path / "instances.csv")
    with pytest.raises(InputError, match="expected one"):
        read_instances(tmp_path)


@pytest.mark.parametrize(
    ("path", "category"),
    [("d/acasxu/instances.csv", "acasxu"), ("d/x/mnistfc_instances.csv", "mnistfc"), ("d/x/few.csv", "few")],
)
def test_the_category_is_the_name_of_the_csv_or_of_its_folder(path, category):
    assert category_of(Path(path)) == category


def test_limits_are_scaled_and_capped():
    limits = [i.limit for i in limited(made(1, 2), scale=0.5)]
    assert limits == [30.0, 30.0]
    assert limited(made(1, 1), scale=2.0, most=100.0)[0].limit == 100.0
    for bad in ({"scale": 0.0}, {"most": -1.0}, {"scale": float("nan")}):
        with pytest.raises(InputError, match="expected a number above 0"):
            limited(made(1, 1), **bad)


def test_the_sample_is_stratified_and_repeatable():
    instances = made(1, 60) + [
        Instance("c", "z.onnx", f"{i}", 9.0, Path("n"), Path("s"), Path("f")) for i in range(30)
    ]
    one = sampled(instances, 9, seed=3)
    assert Counter(i.network for i in one) == {"0.onnx": 6, "z.onnx": 3}
    assert one == sampled(instances, 9, seed=3)
    assert one != sampled(instances, 9, seed=4)
    assert [i for i in instances if i in one] == one
    assert sampled(instances, 900) == instances
    with pytest.raises(InputError, match="at least 1"):
        sampled(instances, 0)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.data())
def test_shares_fit(sizes, data):
    count = data.draw(st.integers(1, sum(sizes)))
    shares = allotted(sizes, count)
    assert sum(shares) == count
    assert all(0 <= share <= size for share, size in zip(shares, sizes, strict=True))
    if count >= len(sizes):
        assert min(shares) >= 1
    for share, size in zip(shares, sizes, strict=True):
        exact = size * count / sum(sizes)
        assert share <= max(1, exact + 1)

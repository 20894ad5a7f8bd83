import json
import math
from fractions import Fraction

import numpy as np
import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.metrics import scan
from holdfast.metrics.scan import scan_records

NUMBER = st.one_of(
    st.integers(-(10**6), 10**6),
    st.floats(-1e4, 1e4).map(lambda v: round(v, 2)),
    st.floats(0, 1),
    st.floats(0, 1000, width=32),
    st.integers(0, 10**19 - 1).map(lambda v: v / 10**16),
)
RECORD = st.builds(
    lambda image, box, score: {"image_id": image, "bbox": box, "score": score},
    st.integers(0, 10**7),
    st.lists(NUMBER, min_size=4, max_size=4),
    NUMBER,
)


def columns(records):
    return {key: np.array([record[key] for record in records], dtype=float) for key in records[0]}


def check(data: bytes):
    """The scan gives nothing, or exactly what the ordinary parser gives."""
    scanned = scan_records(data)
    if scanned is None:
        return False
    records = orjson.loads(data)
    wanted = columns(records)
    assert list(scanned.columns) == list(wanted)
    for key, column in wanted.items():
        np.testing.assert_array_equal(scanned.columns[key], column)
        whole = all(type(v) is int for r in records for v in np.ravel(np.array(r[key], dtype=object)))
        assert (key in scanned.whole) == whole
    return True


@settings(max_examples=200, deadline=None)
@example([{"a": 0}, {"a": 1.2411300498524905e-41}], (", ", ": "), None)
@example([{"a": 0}, {"a": 1.0000000000000000000000000001}], (", ", ": "), None)
@given(
    st.lists(RECORD, min_size=2, max_size=8),
    st.sampled_from([(", ", ": "), (",", ":")]),
    st.sampled_from([None, 1]),
)
def test_equal_to_the_ordinary_parser(records, separators, indent):
    data = json.dumps(records, separators=separators, indent=indent).encode()
    many_exponents = data.count(b"e+") or data.count(b"E")
    assert check(data) or many_exponents


@settings(max_examples=200, deadline=None)
@given(st.lists(RECORD, min_size=2, max_size=3), st.data())
def test_a_changed_byte_is_never_misread(records, data):
    text = bytearray(json.dumps(records).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(text) - 1))
        text[place : place + data.draw(st.integers(0, 1))] = data.draw(
            st.sampled_from(b'0123456789.-eE+,:[]{}" /'.decode())
        ).encode()
    try:
        orjson.loads(bytes(text))
    except orjson.JSONDecodeError:
        assert scan_records(bytes(text)) is None
    else:
        try:
            columns(orjson.loads(bytes(text)))
        except (TypeError, ValueError, KeyError, AttributeError, IndexError):
            assert scan_records(bytes(text)) is None
        else:
            check(bytes(text))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 10**9), st.integers(0, 10**11), st.integers(1, 11)), min_size=2, max_size=30
    )
)
@example([(0, 0, 1), (9007199, 25474099300, 11)])
def test_decimals_of_any_length_are_rounded_once(parts):
    texts = [f"{whole}.{fraction:0{digits}d}" for whole, fraction, digits in parts]
    data = ("[" + ",".join(f'{{"v":{t}}}' for t in texts) + "]").encode()
    scanned = scan_records(data)
    assert scanned is not None
    assert scanned.columns["v"].tolist() == [float(t) for t in texts]


def test_half_way_cases_are_rounded_once():
    """Numbers next to the middle between two floats, where rounding twice goes wrong."""
    rng = np.random.default_rng(0)
    texts = []
    for value in rng.random(3000) * 8 + 1:
        middle = Fraction(value) + Fraction(math.ulp(value)) / 2
        texts.append(f"{float(middle):.0f}." + str(int((middle % 1) * 10**17)).rjust(17, "0"))
    data = ("[" + ",".join(f'{{"v":{t}}}' for t in texts) + "]").encode()
    scanned = scan_records(data)
    assert scanned is not None
    assert scanned.columns["v"].tolist() == [float(t) for t in texts]


@pytest.mark.parametrize(
    "text",
    [
        '[{"a":1},{"a":01}]',
        '[{"a":1},{"a":1.}]',
        '[{"a":1},{"a":.5}]',
        '[{"a":1},{"a":-}]',
        '[{"a":1},{"a":--1}]',
        '[{"a":1},{"a":1-2}]',
        '[{"a":1},{"a":1.2.3}]',
        '[{"a":1},{"a":}]',
        '[{"a":1},{1"a":}]',
        '[{"a":1},{"b":1}]',
        '[{"a":1},{"a":1}',
        '[{"a":1},{"a":"1"}]',
        '[{"a":1},{"a":[1]}]',
        '[{"a":1},{"a":1e5}]',
        '[{"a":1}]',
        "[]",
        "{}",
        '[{"a":1},{"a":1e-}]',
        '[{"a":1},{"a":1e-1.5}]',
        '[{"a":1},{"a":0e-5-}]',
        '[{"a1":1},{"a2":1}]',
        "[{},{}]",
        '[{"a":"x"},{"a":"x"}]',
        '[{"a":[]},{"a":[]}]',
        '[{"a":1,"a":2},{"a":1,"a":2}]',
        '[{"a":1},{"a":-01}]',
        '[{"a":{"b":1}},{"a":{"b":1}}]',
        '[{"a":1}{"a":1}]',
        '[{"a":1},5{"a":1}]',
        '5[{"a":1},{"a":1}]',
    ],
)
def test_what_is_not_regular_is_left_to_the_ordinary_reader(text):
    assert scan_records(text.encode()) is None


@pytest.mark.parametrize(
    "text",
    [
        '[{"a":1},{"a":2}]',
        '[{"a":-0},{"a":-0.0}]',
        '[{"a":0.5},{"a":12345678901234567890}]',
        '[{"a":5e-05},{"a":1}]',
        '[{"a":-1.5e-7},{"a":0e-5}]',
        '[{"a":1.00000000000000000000000000001},{"a":0.1234567890123456789012}]',
        ' [ {"a": [1, 2.5]} ,\n {"a": [3, -4]} ,\n {"a": [3, -4]} ]\n',
        '[{"a":12345678},{"a":123456789}]',
        '[{"a":1234567.8},{"a":123456.78}]',
        '[{"a":18446744073709551615},{"a":1234567890.123456789}]',
    ],
)
def test_what_is_regular_is_read(text):
    data = text.encode()
    scanned = scan_records(data)
    assert scanned is not None
    np.testing.assert_array_equal(
        scanned.columns["a"], np.array([r["a"] for r in json.loads(data)], dtype=float)
    )


@pytest.mark.parametrize("size", [64, 200, 1000])
def test_pieces_do_not_change_the_values(monkeypatch, size):
    monkeypatch.setattr(scan, "PIECE", size)
    assert check(json.dumps([{"a": k / 7, "b": [k, -k / 3]} for k in range(50)]).encode())
    faulty = [{"a": k} for k in range(50)] + [{"b": 3}] + [{"a": k} for k in range(50)]
    assert scan_records(json.dumps(faulty).encode()) is None
    assert scan_records(b'[{"a":1},' + b" " * 5000 + b'{"a":1},{"a":1}]') is None

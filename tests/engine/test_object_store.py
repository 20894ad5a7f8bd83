"""Cells in object stores: in memory, and on an S3-compatible server that fails."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest

from helpers.s3 import s3_server
from holdfast.core import fingerprint
from holdfast.core.errors import InputError
from holdfast.engine import object_store
from holdfast.engine.object_store import ObjectStore, StoreError
from holdfast.engine.store import FolderStore, open_store

pytest.importorskip("obstore", reason="obstore is not installed: pip install 'holdfast[ray]'")
KEY = "evaluate." + fingerprint.of("key")
NAME = f"{KEY.split('.')[1][:2]}/{KEY}.json"


@pytest.fixture
def memory():
    object_store._open.cache_clear()
    return open_store("memory://cells")


@pytest.fixture(scope="module")
def server():
    pytest.importorskip("moto", reason="moto is not installed: pip install 'holdfast[dev]'")
    with s3_server("bucket") as proxy:
        yield proxy


@pytest.fixture
def s3(server, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.server_port}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "secret-of-the-test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setattr(object_store, "FIRST_DELAY", 0.001)
    monkeypatch.setattr(object_store, "TIMEOUT", 1.0)
    object_store._open.cache_clear()
    server.faults.clear()
    yield open_store(f"s3://bucket/{fingerprint.of(id(server))[:8]}/cells")
    object_store._open.cache_clear()


def test_a_cell_is_read_as_it_was_written(memory):
    memory.put(KEY, b'{"value": 1}')
    memory.flush()
    assert memory.get(KEY) == b'{"value": 1}'
    assert memory.read(KEY) == {"value": 1}
    assert memory.get(f"evaluate.{fingerprint.of(1)}") is None


def test_the_first_writer_wins_and_a_damaged_cell_is_replaced(memory):
    import obstore

    memory.put(KEY, b"1")
    memory.flush()
    memory.put(KEY, b"2")
    memory.flush()
    assert memory.get(KEY) == b"1"
    obstore.put(object_store._open(memory.address), NAME, b"damaged")
    assert memory.get(KEY) is None
    memory.put(KEY, b"3")
    memory.flush()
    assert memory.get(KEY) == b"3"


def test_a_store_goes_to_other_processes_by_its_address(memory):
    assert pickle.loads(pickle.dumps(memory)) == memory  # noqa: S301
    assert memory.url == "memory://cells"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://host/cells", "expected a folder or a URL with file://"),
        ("s3://name:password@bucket/cells", "without credentials"),
        ("s3://bucket/cells?X-Amz-Signature=1", "without credentials"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused(url, message):
    with pytest.raises(InputError, match=message) as caught:
        open_store(url)
    assert "password" not in str(caught.value)


def test_a_file_url_is_a_folder(tmp_path):
    assert open_store(f"file://{tmp_path}/a%20b") == FolderStore(tmp_path / "a b")


@pytest.mark.parametrize("fault", ["500", "503", "late", "cut"])
def test_a_request_that_fails_is_repeated(s3, server, fault):
    key = f"evaluate.{fingerprint.of(fault)}"
    server.faults[:] = [fault, fault] if fault != "cut" else []
    s3.put(key, b"0" * 1000)
    s3.flush()
    server.faults[:] = [fault]
    assert s3.get(key) == b"0" * 1000


def test_two_writers_of_one_cell_are_both_right(s3):
    keys = [f"evaluate.{fingerprint.of(n)}" for n in range(20)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: [s3._create(key, b"content of " + key.encode()) for key in keys], range(2)))
    assert list(s3.load_all(keys)) == [b"content of " + key.encode() for key in keys]


def test_a_store_that_keeps_failing_is_one_line_without_secrets(s3, server):
    server.faults[:] = ["500"] * 50
    with pytest.raises(StoreError, match=r"7 attempts \(HTTP status 500\); completed cells") as caught:
        s3.get(KEY)
    s3.put(KEY, b"1")
    with pytest.raises(StoreError, match="could not be written to"):
        s3.flush()
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_bucket_that_does_not_exist_is_reported(s3, monkeypatch):
    other = open_store("s3://no-such-bucket/cells")
    other.put(KEY, b"1")
    with pytest.raises(StoreError, match="s3://no-such-bucket/cells"):
        other.flush()


def test_the_entries_of_a_store_are_listed_and_deleted(s3):
    s3.put(KEY, b"1")
    s3.flush()
    names = {entry.name for entry in s3.entries() if entry.key == KEY}
    assert names == {NAME}
    s3.delete(sorted(names))
    assert s3.get(KEY) is None


def test_object_stores_have_addresses():
    assert ObjectStore("s3://bucket/cells").where(KEY) == f"s3://bucket/cells/{NAME}"

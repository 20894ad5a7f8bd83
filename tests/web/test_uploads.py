"""Uploads: bounded while they come in, known by their content, under safe names; each attack is tried."""

import io
import zipfile

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from holdfast.web import uploads

HERE = {"sec-fetch-site": "same-origin", "origin": "null"}


def picture(form="PNG", size=(8, 8)):
    out = io.BytesIO()
    Image.new("RGB", size, "red").save(out, form)
    return out.getvalue()


def model(external=False, nested=False):
    weight = numpy_helper.from_array(np.zeros(2, np.float32), "w")
    if external:
        weight.data_location = TensorProto.EXTERNAL
        weight.external_data.add(key="location", value="../../../etc/passwd")
    node = helper.make_node("Add", ["x", "w"], ["y"])
    nodes, weights = [node], [weight]
    if nested:
        nodes, weights = [helper.make_node("Constant", [], ["w"], value=weight), node], []
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    return helper.make_model(helper.make_graph(nodes, "g", value[:1], value[1:], weights)).SerializeToString()


def send(client, name, data, **more):
    return client.post(
        "/upload", data={"token": client.token}, files={"file": (name, data)}, headers=HERE, **more
    )


def kept(folders):
    folder = folders[1] / "uploads"
    return sorted(p.name for p in folder.iterdir()) if folder.exists() else []


def test_a_model_and_a_picture_are_kept_and_can_be_used(site, folders):
    with site() as client:
        found = send(client, "my net.onnx", model())
        assert found.headers["location"] == "/?model=upload%3Amy-net.onnx#start"
        assert send(client, "my net.onnx", model()).status_code == 303
        assert send(client, "a.jpeg", picture("JPEG", (64, 48))).headers["location"] == "/#uploads"
        assert kept(folders) == ["a.jpg", "my-net-2.onnx", "my-net.onnx"]
        text = client.get("/").text
        assert "upload:my-net.onnx" in text
        fields = {"model": "upload:my-net.onnx", "data": "scenes", "budget": "1m", "token": client.token}
        assert client.post("/start", data=fields, headers=HERE).status_code == 303
        shown = client.get("/picture/a.jpg")
        assert shown.status_code == 200
        assert "data:image" in shown.text
        assert "sandbox" in shown.headers["content-security-policy"]
        assert client.get("/picture/my-net.onnx").status_code == 404


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("../../../etc/cron.d/x.onnx", "x"),
        ("..\\..\\x.onnx", "x"),
        ("/etc/passwd", "passwd"),
        ("..", "upload"),
        (".bashrc", "upload"),
        ("-o.onnx", "o"),
        ("<img src=x onerror=alert(1)>.onnx", "img-src-x-onerror-alert-1"),
        ("a\0b.onnx", "a-b"),
        ("ä" * 300 + ".onnx", "upload"),
        ("CON.onnx", "CON"),
        ("", "upload"),
    ],
)
def test_names_are_made_safe(name, stem):
    assert uploads.safe_stem(name) == stem


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.text())
def test_any_name_becomes_one_plain_word(name):
    stem = uploads.safe_stem(name)
    assert stem
    assert len(stem) <= 80
    assert set(stem) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
    assert stem[0] not in ".-"


def test_the_content_says_what_it_is_not_the_name(site, folders):
    with site() as client:
        assert send(client, "page.html", picture()).status_code == 303
        assert send(client, "net.png", model()).status_code == 303
        assert kept(folders) == ["net.onnx", "page.png"]


def bomb():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("zeros", b"\0" * (20 << 20))
    return out.getvalue()


def large_picture():
    """A PNG of a few hundred bytes that says it is 50,000 pixels wide and high."""
    data = bytearray(picture())
    data[16:24] = (50_000).to_bytes(4, "big") * 2
    import zlib

    data[29:33] = zlib.crc32(bytes(data[12:29])).to_bytes(4, "big")
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "status", "line"),
    [
        (b"", 415, "expected an ONNX model"),
        (b"<script>alert(1)</script>", 415, "expected an ONNX model"),
        (bomb(), 415, "expected an ONNX model"),
        (b"\x7fELF" + b"\0" * 100, 415, "expected an ONNX model"),
        (picture()[:40], 415, "cannot be decoded"),
        (b"\xff\xd8\xff" + b"\0" * 100, 415, "cannot be decoded"),
        (large_picture(), None, "expected a"),
        (model(external=True), 415, "external weights"),
        (model(external=True, nested=True), 415, "external weights"),
        (onnx.ModelProto().SerializeToString() + b"\x08\x07", 415, "expected an ONNX model"),
    ],
)
def test_anything_else_is_refused_and_nothing_is_kept(site, folders, data, status, line):
    with site() as client:
        found = send(client, "net.onnx", data)
    assert found.status_code == status if status else found.status_code in (413, 415)
    assert line in found.text
    assert kept(folders) == []


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(uploads, "LIMIT", 2_000_000)  # beyond what is held in memory
    monkeypatch.setattr(uploads, "_ENVELOPE", 1_000)


def body(token, size):
    head = f'--b\r\nContent-Disposition: form-data; name="token"\r\n\r\n{token}\r\n'
    head += '--b\r\nContent-Disposition: form-data; name="file"; filename="a.onnx"\r\n\r\n'
    return head.encode(), b"\r\n--b--\r\n", size


def test_one_that_says_it_is_too_long_is_refused_at_once(site, folders, small):
    with site() as client:
        found = send(client, "a.onnx", b"x" * 3_000_000)
    assert found.status_code == 413
    assert kept(folders) == []


def test_one_without_a_length_is_stopped_at_the_first_byte_too_many(site, folders, small):
    read = []

    def stream(token):
        head, end, _ = body(token, 0)
        yield head
        for number in range(1000):
            read.append(number)
            yield b"x" * 100_000
        yield end

    with site() as client:
        kind = {**HERE, "content-type": "multipart/form-data; boundary=b"}
        found = client.post("/upload", content=stream(client.token), headers=kind)
    assert found.status_code == 413
    assert kept(folders) == []


@pytest.mark.parametrize("told", ["10", "-5", "1e3", "99999999999999999999999999", "x"])
def test_one_that_lies_about_its_length_is_stopped_too(site, folders, small, told):
    with site() as client:
        head, end, _ = body(client.token, 0)
        kind = {**HERE, "content-type": "multipart/form-data; boundary=b", "content-length": told}
        found = client.post("/upload", content=head + b"x" * 3_000_000 + end, headers=kind)
    assert found.status_code in (400, 413)
    assert kept(folders) == []


def test_two_files_no_file_and_no_form_are_refused(site, folders):
    with site() as client:
        two = [("file", ("a.onnx", model())), ("file", ("b.onnx", model()))]
        assert (
            client.post("/upload", data={"token": client.token}, files=two, headers=HERE).status_code == 400
        )
        empty = {"file": ("", b"")}
        assert (
            client.post("/upload", data={"token": client.token}, files=empty, headers=HERE).status_code == 400
        )
        assert client.post("/upload", data={"token": client.token}, headers=HERE).status_code == 415
        kind = {**HERE, "content-type": "multipart/form-data; boundary=b"}
        assert client.post("/upload", content=b"no form at all", headers=kind).status_code in (400, 403)
        assert client.post("/upload", content=b"--b\r\n\r\n\r\n\r\n--b", headers=kind).status_code in (
            400,
            403,
        )
    assert kept(folders) == []


def test_all_uploads_together_are_bounded(site, folders, monkeypatch):
    monkeypatch.setattr(uploads, "FOLDER_LIMIT", 500)
    with site() as client:
        first = send(client, "a.onnx", model())
        codes = [send(client, "a.onnx", model()).status_code for _ in range(10)]
    assert first.status_code == 303
    assert codes[-1] == 413
    assert sum(p.stat().st_size for p in (folders[1] / "uploads").iterdir()) <= 500


def test_a_file_that_is_there_is_never_written_over_not_even_over_a_link(folders, tmp_path):
    folder = folders[1] / "uploads"
    folder.mkdir()
    (folder / "a.png").symlink_to(tmp_path / "elsewhere")
    assert uploads.keep(uploads.Upload("a.png", picture()), folder).name == "a-2.png"
    assert not (tmp_path / "elsewhere").exists()

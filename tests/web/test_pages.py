"""What the pages show: runs with their headline, names escaped, files below the root, two runs compared."""

import asyncio
import os
import re
from dataclasses import replace
from html.parser import HTMLParser
from urllib.parse import unquote

import pytest

from helpers.audit import sample_audit
from holdfast.audit.result import save

BAD = "<img src=x onerror=alert(1)>\"'&"


def keys(text):
    return re.findall(r'name="run" value="([0-9a-f]{16})"', text)


def test_no_run_yet_says_what_to_do(site):
    with site() as client:
        text = client.get("/").text
    assert "No runs yet." in text
    assert "No audit is running" in text
    assert 'value="signs-yolo"' in text


def test_runs_are_listed_newest_first_with_their_number(site, two_runs):
    with site() as client:
        text = client.get("/").text
    assert len(keys(text)) == 2
    assert text.index("mAP@.5 0.930") < text.index("mAP@.5 0.910")
    assert "resize=opencv-nearest" in text
    assert "2026-02-03 04:05" in text


def test_an_audit_opens_as_the_page_in_its_folder_in_an_origin_of_its_own(site, two_runs):
    (two_runs[1] / "report.html").write_text("<h1>written</h1>")
    with site() as client:
        newest = keys(client.get("/").text)[0]
        found = client.get(f"/run/{newest}")
    assert found.text == "<h1>written</h1>"
    policy = found.headers["content-security-policy"]
    assert "sandbox allow-scripts;" in policy
    assert "allow-same-origin" not in policy
    assert "form-action 'none'" in policy
    assert found.headers["cache-control"] == "no-store"
    assert found.headers["x-frame-options"] == "SAMEORIGIN"


def test_an_audit_without_a_page_gets_one(site, two_runs):
    pytest.importorskip("holdfast.audit.page")
    with site() as client:
        found = client.get(f"/run/{keys(client.get('/').text)[0]}")
    assert found.status_code == 200
    assert "0.93" in found.text


def test_a_page_that_is_a_link_out_is_not_followed(site, two_runs, tmp_path):
    (tmp_path / "secret" / "page.html").write_text("the secret")
    (two_runs[0] / "report.html").symlink_to(tmp_path / "secret" / "page.html")
    with site() as client:
        assert "the secret" not in client.get(f"/run/{keys(client.get('/').text)[1]}").text


def test_a_run_that_is_a_link_out_is_none(site, folders, tmp_path):
    save(sample_audit(), tmp_path / "secret" / "audit")
    (folders[1] / "audit-link").symlink_to(tmp_path / "secret" / "audit", target_is_directory=True)
    other = folders[1] / "audit-other"
    other.mkdir()
    (other / "audit.json").symlink_to(tmp_path / "secret" / "audit" / "audit.json")
    with site() as client:
        assert keys(client.get("/").text) == []


@pytest.mark.parametrize(
    "address",
    [
        "/run/..", "/run/%2e%2e", "/run/%2e%2e%2f%2e%2e%2fetc%2fpasswd", "/run/..%5c..", "/run/%00",
        "/run/audit-net-on-scenes-000001",
        "/log/..",
        "/log/%2e%2e%2fjob.json", "/log/%00", "/page/..", "/picture/..", "/picture/%2e%2e%2fnet.onnx",
        "/picture/%00",
        "/static/../app.py", "/static/%2e%2e/app.py", "/static/style.css/..%2fapp.py", "/../../etc/passwd",
    ],
)  # fmt: skip
def test_addresses_that_try_to_climb_lead_nowhere(site, two_runs, address):
    with site() as client:
        status, text = asyncio.run(raw(client.app, address))
    assert status in (400, 404)
    assert "root:" not in text
    assert "import" not in text


async def raw(app, address):
    """Status and text for an address as it is: a client would tidy `..` away before it is sent."""
    sent = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "path": unquote(address),
        "raw_path": address.encode(),
        "scheme": "http",
        "query_string": b"",
        "headers": [(b"host", b"localhost:8765")],
        "http_version": "1.1",
        "root_path": "",
        "server": ("127.0.0.1", 8765),
        "client": ("127.0.0.1", 1),
        "asgi": {"version": "3.0"},
    }
    await app(scope, receive, send)
    return sent[0]["status"], b"".join(m.get("body", b"") for m in sent[1:]).decode()


def test_evaluations_noise_and_attacks_are_listed_and_shown(site, folders, holdfast):
    runs = folders[1]
    assert holdfast("evaluate", "signs-yolo", "signs", "--images", 4, "--runs", runs, "--jobs", 1).code == 0
    attack = runs / "attack-1"
    attack.mkdir()
    (attack / "attack.json").write_text(
        '{"about": {"created": "2026-01-01T00:00:00+00:00", "model": {"name": "net"}, "data": {"name": "d"}},'
        '"effects": [{"before": 0.5, "after": 0.25}], "mean_pixels": 70.4}'
    )
    with site() as client:
        text = client.get("/").text
        made, without_page = (client.get(f"/run/{key}") for key in keys(text))
    assert "mAP 0.500 → 0.250" in text
    assert "70 pixels per image" in text
    assert "signs-yolo on signs" in text
    assert made.status_code == 200
    assert "holdfast <span>evaluation</span>" in made.text
    assert without_page.status_code == 400
    assert "has no report.html" in without_page.text


class Tags(HTMLParser):
    """The tags and attributes of a page as a browser would see them."""

    def __init__(self):
        super().__init__()
        self.seen, self.attributes = set(), set()

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        self.attributes |= {name for name, _ in attrs}


def test_names_are_escaped_everywhere(site, folders):
    root, runs = folders
    (root / f"{BAD}.onnx").touch()
    (root / f"folder {BAD}").mkdir()
    audit = sample_audit()
    bad = replace(audit, model={**audit.model, "name": BAD}, clean=replace(audit.clean, title=BAD))
    save(bad, runs / f"audit {BAD}")
    with site() as client:
        texts = [client.get("/").text, client.get("/files").text]
        texts.append(client.get("/files", params={"at": f"folder {BAD}"}).text)
        texts.append(client.get("/", params={"model": BAD, "data": BAD, "budget": BAD, "fail-if": BAD}).text)
        texts.append(client.get("/choose", params={"model": BAD}).text)
        texts.append(client.get("/files", params={"at": BAD}).text)
        started = {"model": f"{BAD}.onnx", "data": f"folder {BAD}", "budget": "1m", "token": client.token}
        headers = {"sec-fetch-site": "same-origin"}
        assert client.post("/start", data=started, headers=headers).status_code == 303
        texts.append(client.get("/").text)
        texts.append(client.post("/start", data={**started, "model": BAD}, headers=headers).text)
    for text in texts:
        assert "onerror=alert(1)" in text  # it is there, but as text
        tags = Tags()
        tags.feed(text)
        assert "a" in tags.seen or "p" in tags.seen
        assert "img" not in tags.seen
        assert not [name for name in tags.attributes if name.startswith("on")]


def test_a_damaged_manifest_is_a_line_not_an_error(site, folders):
    for name, content in (("a", b"{"), ("b", b"[]"), ("c", b'{"clean": 3}'), ("d", b"\xff\xfe")):
        (folders[1] / name).mkdir()
        (folders[1] / name / "audit.json").write_bytes(content)
    with site() as client:
        text = client.get("/").text
        assert text.count("audit.json cannot be read") == 4
        for key in keys(text):
            found = client.get(f"/run/{key}")
            assert found.status_code == 400
            assert "expected the audit.json" in found.text


def test_a_run_whose_files_fail_in_any_way_is_a_line(site, two_runs, monkeypatch):
    from holdfast.web import run_page

    def fails(run):
        raise ZeroDivisionError("of a number in the file")

    monkeypatch.setitem(run_page.PAGES, "audit", ("audit.json", fails, "report.html"))
    with site() as client:
        found = client.get(f"/run/{keys(client.get('/').text)[0]}")
    assert found.status_code == 400
    assert "a file of the run is damaged; run the same command again" in found.text


@pytest.mark.skipif(os.name == "nt", reason="named pipes are of Unix")
def test_pipes_in_the_place_of_files_are_not_waited_for(site, folders, two_runs):
    started = folders[1] / "started"
    for folder in (folders[1] / "piped", started / "20260101-000000-000000-00000000"):
        folder.mkdir(parents=True)
        for name in ("audit.json", "progress.json", "report.html", "job.json", "log.txt"):
            os.mkfifo(folder / name)
    (started / "link").symlink_to(two_runs[0], target_is_directory=True)
    (two_runs[0] / "job.json").write_text(
        '{"values": {}, "state": "done", "created": "2026", "note": "", "pid": 0}'
    )
    with site() as client:
        assert client.get("/").status_code == 200
        assert client.get("/log/20260101-000000-000000-00000000").status_code == 404
        assert client.get("/log/link").status_code == 404


def test_files_are_browsed_and_chosen_with_and_without_script(site):
    with site() as client:
        page = client.get("/files", params={"at": "scenes", "model": "net.onnx"})
        assert page.text.startswith("<!doctype html>")
        assert "/?model=net.onnx&amp;data=scenes#start" in page.text
        part = client.get("/files", params={"at": "scenes"}, headers={"hx-request": "true"})
        assert part.text.startswith("<h3>")
        assert 'value="scenes/a&amp;b"' in client.get("/choose", params={"data": "scenes/a&b"}).text
        out = client.get("/files", params={"at": "../secret"})
        assert out.status_code == 400
        assert "secret.onnx" not in out.text
        part = client.get("/files", params={"at": ".."}, headers={"hx-request": "true"})
        assert part.text.startswith('<p class="alert"')


def test_two_runs_are_compared_the_older_one_first(site, two_runs, monkeypatch):
    compare = pytest.importorskip("holdfast.compare.run")
    asked = []
    real = compare.compare_runs
    monkeypatch.setattr(compare, "compare_runs", lambda a, b: asked.append((a, b)) or real(a, b))
    with site() as client:
        found = client.get("/compare", params={"run": keys(client.get("/").text)})
    assert asked == [two_runs]
    assert found.status_code == 200
    assert "0.93" in found.text
    assert "sandbox" in found.headers["content-security-policy"]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_other_than_two_runs_are_not_compared(site, two_runs, count):
    with site() as client:
        chosen = (keys(client.get("/").text) * 2)[:count]
        found = client.get("/compare", params={"run": chosen})
        assert found.status_code == 400
        assert f"got {count}" in found.text
        assert client.get("/compare", params={"run": ["x", "y"]}).status_code == 404


def test_runs_are_grouped_by_model_and_dataset_and_filtered(site, two_runs):
    with site() as client:
        text = client.get("/").text
        none = client.get("/runs", params={"filter": "no such run"}).text
        some = client.get("/", params={"filter": "audit 0.93"}).text
    assert text.count('scope="rowgroup"') == 1
    assert "AP rule" in text or "n = 40" in text
    assert "No run matches the filter." in none
    assert len(keys(some)) == 1

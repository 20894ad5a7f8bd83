"""Attacks from other sites: a foreign Host, a foreign form, a form without our token, a frame, a fetch."""

import re

import pytest

HERE = {"sec-fetch-site": "same-origin", "origin": "null"}
FIELDS = {"model": "net.onnx", "data": "scenes", "budget": "1m", "fail-if": ""}


@pytest.mark.parametrize(
    "host",
    [
        "evil.example:8765", "evil.example", "localhost", "localhost:80", "127.0.0.1:8766",
        "127.0.0.1:8765.evil.example", "localhost.evil.example:8765",
        "user@localhost:8765", "0.0.0.0:8765", "[::]:8765", "127.0.0.2:8765",
        "",
    ],
)  # fmt: skip
def test_a_name_that_was_made_to_lead_here_gets_400(site, host):
    with site() as client:
        found = client.get("/", headers={"host": host})
    assert found.status_code == 400
    assert "token" not in found.text
    assert "Traceback" not in found.text


def test_two_hosts_are_one_too_many(site):
    with site() as client:
        assert (
            client.get("/", headers=[("host", "localhost:8765"), ("host", "evil.example")]).status_code == 400
        )


@pytest.mark.parametrize("host", ["localhost:8765", "127.0.0.1:8765", "[::1]:8765", "LocalHost:8765"])
def test_this_machine_is_answered(site, host):
    with site() as client:
        assert client.get("/", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("address", ["/start", "/cancel", "/upload"])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:8765"},  # another origin than 127.0.0.1
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "https://127.0.0.1:8765"},
        {"sec-fetch-site": "cross-site", "origin": "null"},
        {"sec-fetch-site": "same-site", "origin": "http://127.0.0.1:8765"},
        {"sec-fetch-site": "none"},
        {"sec-fetch-site": "same-origin", "origin": "http://evil.example"},
    ],
)
def test_a_form_of_another_site_is_refused_even_with_the_token(site, address, headers):
    with site() as client:
        found = client.post(address, data={**FIELDS, "token": client.token}, headers=headers)
        assert found.status_code == 403
        assert client.queue.jobs() == []


@pytest.mark.parametrize("headers", [HERE, {"origin": "http://127.0.0.1:8765"}])
def test_a_form_of_ours_is_taken(site, headers):
    with site() as client:
        assert (
            client.post("/start", data={**FIELDS, "token": client.token}, headers=headers).status_code == 303
        )
        assert len(client.queue.jobs()) == 1


@pytest.mark.parametrize("token", ["", "wrong", "ä", None])
def test_without_the_token_nothing_is_started_or_cancelled(site, token):
    given = {} if token is None else {"token": token}
    with site() as client:
        for address in ("/start", "/cancel"):
            assert client.post(address, data={**FIELDS, **given}, headers=HERE).status_code == 403
        upload = client.post("/upload", data=given, files={"file": ("a.onnx", b"x")}, headers=HERE)
        assert upload.status_code == 403
        assert client.queue.jobs() == []


def test_every_server_has_a_token_of_its_own(site):
    with site() as first, site() as second:
        assert first.token != second.token
        assert len(first.token) >= 32


def test_nothing_is_done_by_get(site):
    with site() as client:
        for address in ("/start", "/cancel", "/upload"):
            assert client.get(address, params={**FIELDS, "token": client.token}).status_code == 405
        assert client.queue.jobs() == []


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
def test_other_methods_are_refused_and_no_cors_is_offered(site, method):
    with site() as client:
        found = client.request(method, "/", headers={"origin": "http://evil.example"})
    assert found.status_code == 405
    assert not [name for name in found.headers if name.startswith("access-control")]


def test_parts_of_the_page_are_not_given_to_other_sites(site):
    with site() as client:
        fetch = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
        assert client.get("/", headers=fetch).status_code == 403
        assert client.get("/", headers={**fetch, "sec-fetch-mode": "navigate"}).status_code == 200


def test_a_long_form_is_refused(site):
    with site() as client:
        found = client.post("/start", data={"token": client.token, "fail-if": "x" * 70_000}, headers=HERE)
        assert found.status_code == 413
        many = {f"f{n}": "" for n in range(200)}
        assert client.post("/start", data=many, headers=HERE).status_code == 400
        kind = {**HERE, "content-type": "text/plain"}
        assert client.post("/start", content=b"token=x", headers=kind).status_code == 415
        kind = {**HERE, "content-type": "application/x-www-form-urlencoded"}
        assert client.post("/start", content=b"token=%ff%fe", headers=kind).status_code == 400


@pytest.mark.parametrize(
    "address", ["/", "/nowhere", "/run/nowhere", "/static/style.css", "/static/htmx.js", "/files"]
)
def test_every_answer_has_the_headers(site, address):
    with site() as client:
        found = client.get(address)
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.headers["referrer-policy"] == "no-referrer"
    assert found.headers["x-frame-options"] == "DENY"
    assert found.headers["cross-origin-resource-policy"] == "same-origin"
    assert "cache-control" in found.headers
    policy = found.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy


def test_the_one_script_is_named_by_its_hash_and_nothing_is_inline(site):
    with site() as client:
        text = client.get("/").text
        policy = client.get("/").headers["content-security-policy"]
        [script] = re.findall(r"<script[^>]*>", text)
        digest = re.search(r'integrity="([^"]+)"', script).group(1)
        assert f"script-src '{digest}'" in policy
        address = re.search(r'src="([^"]+)"', script).group(1)
        code = client.get(address)
        from holdfast.report.html import integrity

        assert integrity(code.text) == digest
        assert code.headers["content-type"].startswith("text/javascript")
    assert "style=" not in text
    assert not re.search(r"\son\w+=", text)


def test_an_error_inside_is_a_line_without_a_traceback(site, monkeypatch):
    from holdfast.web import pages

    def broken(*_given, **_named):
        raise ZeroDivisionError("/a/secret/path")

    monkeypatch.setattr(pages, "index", broken)
    with site() as client:
        found = client.get("/")
    assert found.status_code == 500
    assert "internal error" in found.text
    assert "ZeroDivisionError" in found.text
    assert "secret" not in found.text
    assert "Traceback" not in found.text

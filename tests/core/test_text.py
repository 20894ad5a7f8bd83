"""Control characters from files reach neither a terminal nor a page."""

import io
import subprocess
import sys

import pytest

from holdfast.core.text import PrintableStream, printable, terminal
from holdfast.report.parts import environment

HOSTILE = "\x1b[31mred\x07\r\x9b2J\u202eevil\u2028\x00"
SHOWN = r"\x1b[31mred\x07\x0d\x9b2J\u202eevil\u2028\x00"


@pytest.mark.parametrize(
    ("text", "shown"),
    [(HOSTILE, SHOWN), ("Wien, Größe ×\t日本\n", "Wien, Größe ×\t日本\n"), ("a\udcbd", r"a\xbd"), ("", "")],
)
def test_control_characters_are_shown_as_escapes(text, shown):
    assert printable(text) == shown
    stream = io.StringIO()
    assert PrintableStream(stream).write(text) == len(text)
    assert stream.getvalue() == shown


def test_a_progress_line_may_control_the_terminal():
    stream = io.StringIO()
    assert terminal(PrintableStream(stream)) is stream
    assert terminal(stream) is stream


def test_pages_show_escapes():
    page = environment("holdfast.report").from_string("<p>{{ name }}</p>").render(name=HOSTILE + "<b>")
    assert page == f"<p>{SHOWN}&lt;b&gt;</p>"


def test_names_of_files_are_escaped_by_the_command_line(tmp_path):
    name = "\x1b]0;title\x07net.onnx"
    (tmp_path / name).write_bytes(b"no model")
    command = [sys.executable, "-P", "-m", "holdfast", "model", "info", name]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    assert found.returncode == 2
    assert rb"\x1b]0;title\x07net.onnx" in found.stderr
    assert b"\x1b" not in found.stdout + found.stderr

"""A notebook shows the same page, in a frame that keeps both styles apart."""

import dataclasses
import html
import re

import pytest

from helpers.audit import sample_audit
from helpers.pages import Reader
from holdfast.audit.page import page, show, write
from holdfast.audit.result import open_audit, save
from holdfast.core.errors import InputError
from holdfast.report.parts import Figure, Section


def framed(shown):
    (frame,) = [attrs for tag, attrs in Reader(shown._repr_html_()).tags if tag == "iframe"]
    return frame


def test_the_frame_holds_exactly_the_page():
    audit = sample_audit()
    frame = framed(show(audit))
    assert frame["srcdoc"] == page(audit)
    assert frame["sandbox"] == "allow-scripts"  # not its origin: it can reach nothing of the notebook
    assert frame["title"] == "Audit of net on scenes"
    assert "<style" not in re.sub(r'srcdoc="[^"]*"', "", show(audit)._repr_html_())


def test_a_name_cannot_leave_its_attribute():
    audit = dataclasses.replace(sample_audit(), model={"name": '"><script>alert(1)</script>'})
    shown = show(audit, height=500)
    assert [tag for tag, _ in Reader(shown._repr_html_()).tags] == ["iframe"]
    assert framed(shown)["height"] == "500"


def test_a_run_shows_the_page_written_beside_it(tmp_path):
    audit = sample_audit()
    manifest = save(audit, tmp_path)
    assert framed(show(tmp_path))["srcdoc"] == page(audit)
    write(audit, tmp_path / "report.html", [Section("curves", "Curves", (Figure("", "<p>a curve</p>"),))])
    for path in (tmp_path, manifest, str(tmp_path)):
        shown = show(path)
        assert "<p>a curve</p>" in html.unescape(shown._repr_html_())
        assert shown.audit == audit == open_audit(tmp_path)


def test_the_text_is_the_verdict():
    lines = repr(show(sample_audit())).splitlines()
    assert len(lines) == 5
    assert lines[3].startswith("Smallest attack: 100 px (indication). 100 scattered pixels hide")


def test_nothing_there_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="no such file or folder"):
        show(tmp_path / "none")

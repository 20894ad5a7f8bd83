"""An audit is data: what is written is what is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.audit import better_audit, sample_audit
from holdfast.audit.result import MANIFEST, open_audit, save
from holdfast.core.errors import InputError


def test_what_is_written_is_read(tmp_path: Path) -> None:
    for audit in (sample_audit(), better_audit()):
        save(audit, tmp_path)
        assert open_audit(tmp_path) == audit
        assert open_audit(tmp_path / MANIFEST) == audit


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"holdfast": 2, "kind": "noise"}', '{"holdfast": 9, "kind": "audit"}']
)
def test_another_file_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(InputError, match=r"expected the audit.json of an audit, got"):
        open_audit(tmp_path)


def test_what_follows_from_the_rows() -> None:
    audit = sample_audit()
    assert audit.worst is audit.noises[0]
    assert [f.image for f in audit.findings] == ["scene-4.jpg"]
    square, pixels = audit.bounds
    assert (square.certified, square.attacked, square.images) == (5, 5, 8)
    assert (pixels.certified, pixels.attacked) == (0, 1)
    assert audit.attacks[0].effect == pytest.approx(1 - 0.7 / 0.92)
    assert {s.effect for s in audit.matrix.cells} == {"", "adds up", "overlaps"}

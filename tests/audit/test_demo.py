"""What the demo shows beyond pictures, on the least of it."""

from pathlib import Path

import pytest

from holdfast.audit import cli
from holdfast.audit.options import DemoOptions


@pytest.mark.slow
def test_both_tables_are_on_the_page(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(cli, "SPEECH", ("fast-speech", "clips"))
    pytest.importorskip("tokenizers")
    section = cli.other_models_section(DemoOptions(runs=tmp_path, jobs=1, questions=2, clips=2))
    language, speech = section.figures
    assert "road-winogrande" in language.body
    assert "fast-speech" in speech.body
    said = capfd.readouterr().out
    assert "road-lm" in said
    assert "STFT" in said


def test_without_tokenizers_the_line_that_installs_them_is_said(monkeypatch, capfd):
    monkeypatch.setattr("holdfast.core.extras.is_installed", lambda module: False)
    assert cli._language(DemoOptions(runs=Path("nowhere"), jobs=1, questions=2)) == []
    assert "holdfast[language]" in capfd.readouterr().err

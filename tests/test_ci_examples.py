"""The workflows of examples/ci are what the guide shows, and their gates and options exist."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from holdfast.audit.gates import check, gate_of, gates_of
from holdfast.audit.options import AuditOptions
from holdfast.config.parser import parse

ROOT = Path(__file__).parents[1]
DOC = (ROOT / "docs" / "how-to" / "gate-a-release.md").read_text("utf-8")
FILES = sorted((ROOT / "examples" / "ci").glob("*.yml"))


def commands(node):
    """Every line of a workflow that calls holdfast."""
    if isinstance(node, dict):
        node = list(node.values())
    if isinstance(node, list):
        return [line for part in node for line in commands(part)]
    return [node] if isinstance(node, str) and node.startswith("holdfast ") else []


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.name)
def test_the_document_shows_the_file(file):
    assert f"```{{literalinclude}} ../../examples/ci/{file.name}\n" in DOC


def test_there_is_one_for_github_and_one_for_gitlab():
    assert [f.name for f in FILES] == ["github.yml", "gitlab.yml"]


def test_the_command_of_a_workflow_can_be_called():
    file = ROOT / "examples" / "ci" / "gitlab.yml"  # test_repository.py has what the action for GitHub calls
    (line,) = commands(yaml.safe_load(file.read_text("utf-8")))
    holdfast, word, *words = shlex.split(line)
    assert (holdfast, word) == ("holdfast", "audit")
    options = parse(AuditOptions, words)
    check([gate_of(text) for text in options.fail_if])
    assert (str(options.junit), str(options.sarif), str(options.out)) == (
        "audit.xml", "audit.sarif", "report.html",
    )  # fmt: skip
    text = file.read_text("utf-8")
    assert all(name in text for name in ("holdfast-runs", "always"))  # kept, also after a failure


def test_every_gate_in_the_document_exists():
    texts = re.findall(r"[`\"]((?:[\w-]+\.)+[\w-]+ (?:[<>]=?|==|!=) [-\d.]+)[`\"]", DOC)
    gates = [gate_of(text) for text in texts]
    assert len(gates) > 8
    check(gates)


def test_the_tables_of_the_document_are_gates():
    import tomllib

    (block,) = re.findall(r"```toml\n(.*?)```", DOC, re.DOTALL)
    gates = gates_of(tomllib.loads(block)["gates"], "gate-a-release.md")
    assert len(gates) == 4
    check(gates)

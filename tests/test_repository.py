"""Workflows, action, templates and citation are well-formed and agree with the package."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from helpers.models import blob_coco, detector
from holdfast import __version__
from holdfast.audit.gates import check, gate_of
from holdfast.audit.options import AuditOptions
from holdfast.config.parser import parse

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
EXAMPLE = yaml.safe_load((ROOT / "examples" / "ci" / "github.yml").read_text("utf-8"))
SCHEMAS = {
    "vendor.github-actions": ["action.yml"],
    "vendor.github-workflows": [".github/workflows/*.yml", "examples/ci/github.yml"],
    "custom.github-workflows-require-timeout": [".github/workflows/*.yml", "examples/ci/github.yml"],
    "vendor.github-issue-forms": [".github/ISSUE_TEMPLATE/[bf]*.yml"],
    "vendor.github-issue-config": [".github/ISSUE_TEMPLATE/config.yml"],
    "vendor.citation-file-format": ["CITATION.cff"],
    "vendor.gitlab-ci": ["examples/ci/gitlab.yml"],
}


@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_fit_their_schemas(schema):
    pytest.importorskip("check_jsonschema", reason="no check-jsonschema: pip install 'holdfast[dev]'")
    files = [str(file) for pattern in SCHEMAS[schema] for file in ROOT.glob(pattern)]
    more = ["--data-transform", "gitlab-ci"] if schema == "vendor.gitlab-ci" else []
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *more, *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert files
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_hooks_are_a_valid_configuration():
    pytest.importorskip("pre_commit", reason="no pre-commit: pip install 'holdfast[dev]'")
    command = [sys.executable, "-m", "pre_commit", "validate-config", str(ROOT / ".pre-commit-config.yaml")]
    subprocess.run(command, check=True, capture_output=True)


def test_versions_agree():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert (citation["version"], citation["license"]) == (__version__, PROJECT["license"])
    uses = [step.get("uses") for step in EXAMPLE["jobs"]["audit"]["steps"]]
    assert f"holdfast-dev/holdfast@v{__version__}" in uses


def test_every_supported_python_is_tested():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text("utf-8"))
    tested = workflow["jobs"]["tests"]["strategy"]["matrix"]["python"]
    stated = [c.split(" :: ")[-1] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)]
    assert tested == stated


def test_extras_named_in_ci_exist():
    texts = [ACTION["inputs"]["extras"]["default"]]
    for file in (ROOT / "examples" / "ci").iterdir():
        texts += re.findall(r"holdfast\[([\w,]+)\]", file.read_text("utf-8"))
    assert {extra for text in texts for extra in text.split(",")} <= set(PROJECT["optional-dependencies"])


@pytest.fixture
def act(tmp_path):
    """A function that runs the action's audit step with a program `holdfast` that ends with a given code."""
    (step,) = [one for one in ACTION["runs"]["steps"] if one.get("id") == "audit"]
    program, output = tmp_path / "bin" / "holdfast", tmp_path / "output"
    program.parent.mkdir()

    def run(code=0, **inputs):
        program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/words\nexit {code}\n')
        program.chmod(0o755)
        given = {name: one.get("default", "") for name, one in ACTION["inputs"].items()} | inputs
        known = {key: given[re.search(r"inputs\.([\w-]+)", text)[1]] for key, text in step["env"].items()}
        path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            env={**known, "PATH": path, "GITHUB_OUTPUT": str(output)},
            capture_output=True,
            text=True,
            check=False,
        )
        return done, (tmp_path / "words").read_text().splitlines(), output.read_text()

    return run


def test_the_action_calls_an_audit_that_can_be_parsed(act):
    (step,) = [s for s in EXAMPLE["jobs"]["audit"]["steps"] if "holdfast" in s["uses"]]
    given = {name: str(value) for name, value in step["with"].items()}
    assert set(given) <= set(ACTION["inputs"])
    done, (command, *words), output = act(**given, arguments="--images 40 --seed 3")
    options = parse(AuditOptions, words)
    assert (done.returncode, command, output) == (0, "audit", "exit-code=0\n"), done.stderr
    assert (options.model, options.data, options.images, options.seed) == (
        given["model"],
        given["data"],
        40,
        3,
    )
    assert list(options.fail_if) == given["fail-if"].strip().splitlines()
    check([gate_of(text) for text in options.fail_if])


def test_an_action_without_gates_or_arguments_passes_none(act):
    _, words, _ = act(model="my net.onnx", data="data")
    assert words[:3] == ["audit", "my net.onnx", "data"]
    assert "--fail-if" not in words
    assert "" not in words


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (1, 1), (2, 2), (4, 0), (5, 5)])
def test_the_action_fails_where_the_audit_does(act, code, expected):
    done, _, output = act(code, model="net.onnx", data="data")
    assert (done.returncode, output) == (expected, f"exit-code={code}\n")
    assert ("::warning::" in done.stdout) == (code == 4)
    assert ("::error::" in done.stdout) == (code == 5)


def test_gates_are_pytest_tests(tmp_path):
    text = (ROOT / "examples" / "ci" / "test_model.py").read_text("utf-8")
    net, data = detector(tmp_path), blob_coco(tmp_path / "data", 20)
    for old, new in {
        '"models/net.onnx"': repr(str(net)),
        '"data/validation"': repr(str(data)),
        '"--budget", "10m"': '"--only", "evaluate", "--jobs", "1"',
        '"attack.300px.Se > 0.5"': '"clean.map50 > 0.1"',
    }.items():
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "test_model.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider", "test_model.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "PASSED test_model.py::test_gate[clean.map50 < 0.8]" in done.stdout, done.stdout
    assert "FAILED test_model.py::test_gate[clean.map50 > 0.1]" in done.stdout

"""Gates as tests: one audit per session, one pytest test per gate.

Copy this file to your tests, set MODEL, DATA and GATES, and run pytest. A gate is a condition under which the
build fails. One that rests on too few images to decide is skipped, with the reason.
"""

import json
import subprocess
import sys

import pytest

MODEL = "models/net.onnx"
DATA = "data/validation"
EFFORT = ("--budget", "10m")
GATES = (
    "clean.map50 < 0.8",
    "attack.300px.Se > 0.5",
    "verify.violated > 0",
)


@pytest.fixture(scope="session")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    """Run the audit and return the verdict on each gate, by the text of the gate."""
    folder = tmp_path_factory.mktemp("audit")
    files = ("--json", folder / "audit.json", "-o", folder / "report.html")
    gates = [word for gate in GATES for word in ("--fail-if", gate)]
    command = [sys.executable, "-m", "holdfast", "audit", MODEL, DATA, *EFFORT, *files, *gates]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1, 4, 5):  # a gate failed, images could not be read, a gate is not decided
        pytest.fail(done.stderr)
    found = json.loads((folder / "audit.json").read_text("utf-8"))["gates"]
    return {verdict["gate"]["text"]: verdict for verdict in found}


@pytest.mark.parametrize("gate", GATES)
def test_gate(verdicts: dict[str, dict], gate: str) -> None:
    """The gate does not fail."""
    verdict = verdicts[gate]
    if not verdict["decided"]:
        pytest.skip(verdict["reason"])
    assert not verdict["failed"], f"{gate}: got {verdict['value']}. {verdict['reason']}"

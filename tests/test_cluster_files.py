"""The files for Slurm, Kubernetes and GitHub Actions in the documentation fit the command."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from holdfast.config.parser import parse
from holdfast.engine.execution import Part
from holdfast.noise.options import NoiseOptions

FILES = Path(__file__).parents[1] / "docs" / "how-to" / "cluster"
SBATCH = {"job-name", "array", "cpus-per-task", "mem", "time", "output"}


def noise_options(text, **values):
    """The options of the `holdfast noise` line in a text, with its variables replaced."""
    line = re.search(r"holdfast noise .*", text.replace("\\\n", " ").replace("\n", " "))[0]
    for name, value in values.items():
        line = line.replace(name, value)
    return parse(NoiseOptions, shlex.split(line)[2:])


def test_slurm():
    file = FILES / "slurm.sh"
    subprocess.run(["bash", "-n", str(file)], check=True)
    directives = dict(re.findall(r"^#SBATCH --([a-z-]+)=(\S+)$", file.read_text(), re.M))
    assert directives.keys() == SBATCH
    assert re.fullmatch(r"1-\d+", directives["array"]), "parts are numbered from 1"
    code = file.read_text().partition("set -euo pipefail")[2]
    values = {"$SLURM_ARRAY_TASK_ID": "3", "$SLURM_ARRAY_TASK_COUNT": "8", "${SLURM_CPUS_PER_TASK:-0}": "4"}
    options = noise_options(code, **values)
    assert Part.parse(options.part) == Part(3, 8)
    assert options.jobs == 4


def test_kubernetes():
    job = yaml.safe_load((FILES / "kubernetes.yaml").read_text())
    assert (job["apiVersion"], job["kind"], job["spec"]["completionMode"]) == ("batch/v1", "Job", "Indexed")
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "OnFailure"
    (container,) = job["spec"]["template"]["spec"]["containers"]
    (line,) = container["args"]
    options = noise_options(line, **{"$((JOB_COMPLETION_INDEX + 1))": "1"})
    assert Part.parse(options.part).count == job["spec"]["completions"]
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in job["spec"]["template"]["spec"]["volumes"]}


def test_github():
    file = FILES / "github.yml"
    check = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.github-workflows",
        str(file),
    ]
    done = subprocess.run(check, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    jobs = yaml.safe_load(file.read_text())["jobs"]
    parts = jobs["part"]["strategy"]["matrix"]["part"]
    (line,) = [s["run"] for s in jobs["part"]["steps"] if "holdfast noise" in s.get("run", "")]
    options = noise_options(line, **{"${{ matrix.part }}": "1"})
    assert parts == list(range(1, Part.parse(options.part).count + 1))
    (joined,) = [s["run"] for s in jobs["join"]["steps"] if "holdfast noise" in s.get("run", "")]
    assert noise_options(joined).part is None


@pytest.mark.slow
def test_the_slurm_script_runs_as_two_tasks(tmp_path):
    given = {"MODEL": "signs-class", "DATA": "signs:0:2", "STORE": str(tmp_path / "cells"), "USER": "me"}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for task in ("1", "2"):
        environment = {
            **os.environ,
            **given,
            "PATH": path,
            "SLURM_ARRAY_TASK_ID": task,
            "SLURM_ARRAY_TASK_COUNT": "2",
        }
        done = subprocess.run(
            ["bash", str(FILES / "slurm.sh")],
            cwd=tmp_path, env=environment, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "cells").glob("*/*.json"))) > 20

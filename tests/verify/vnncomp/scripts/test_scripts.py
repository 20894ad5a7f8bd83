"""The competition's scripts, run as the competition runs them, with an interpreter that obeys."""

import os
import re
import shutil
import signal
import subprocess
import textwrap
import time
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[4]  # the top level of a clone: links into vnncomp
pytestmark = pytest.mark.skipif(os.name == "nt", reason="bash scripts")

# Called as: python -P -m holdfast vnncomp instance ONNX VNNLIB RESULT TIMEOUT --protocol NAME
INTERPRETER = textwrap.dedent(
    """\
    #!/usr/bin/env bash
    [ "$1 $2 $3 $4 $5 $#" = "-P -m holdfast vnncomp instance 11" ] || exit 64
    case $(cat "$7") in
        good) printf 'answer %s %s %s\\n' "$6" "$9" "${11}" >"$8" ;;
        silent) ;;
        crash) printf 'half' >"$8"; exit 1 ;;
        die) printf 'half' >"$8"; kill -SEGV $$ ;;
        hang) echo $$ >"$7.pid"; exec sleep 600 ;;
    esac
    """
)


@pytest.fixture
def case(tmp_path):
    """A function that runs a script from another folder on a specification that says what is to happen."""
    (tmp_path / "elsewhere").mkdir()
    interpreter = tmp_path / "py thon"
    interpreter.write_text(INTERPRETER)
    interpreter.chmod(0o755)
    network = tmp_path / "a net.onnx"
    network.write_bytes(b"")
    spec, result = tmp_path / "it's a spec.vnnlib", tmp_path / "the result"

    def run(script, *arguments, what="good", wait=True, **environment):
        spec.write_text(what)
        named = {"ONNX": network, "VNNLIB": spec, "RESULT": result, "NONE": tmp_path / "none"}
        command = [str(SCRIPTS / script), *(str(named.get(a, a)) for a in arguments)]
        where = {"HOLDFAST_PYTHON": str(interpreter), **environment}
        process = subprocess.Popen(
            command, cwd=tmp_path / "elsewhere", env={**os.environ, **where}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        if not wait:
            return process, result, Path(f"{spec}.pid")
        said = process.communicate(timeout=30)
        return process.returncode, (result.read_text() if result.exists() else None), said[1].strip()

    return run


BENCHMARK = ("run_benchmark.sh", "v1", "ONNX", "VNNLIB", "RESULT", "20")
INSTANCE = ("run_instance.sh", "v1", "acasxu", "ONNX", "VNNLIB", "RESULT", "20")
LATER = ("run_instance.sh", "v2", "acasxu", "ONNX", "VNNLIB", "RESULT", "20")


@pytest.mark.parametrize(
    ("script", "protocol"), [(BENCHMARK, "document"), (INSTANCE, "2021"), (LATER, "2022")]
)
def test_each_script_asks_for_its_protocol(case, script, protocol):
    code, result, said = case(*script)
    assert (code, said) == (0, "")
    words = result.split()
    assert words[0] == "answer"
    assert words[-2:] == ["20", protocol]


def test_a_harness_that_says_v1_gets_later_results_by_the_environment(case):
    assert case(*INSTANCE, HOLDFAST_VNNCOMP="2024")[1].split()[-1] == "2022"
    code, _, said = case(*INSTANCE, HOLDFAST_VNNCOMP="then")
    assert code == 1
    assert "expected a year" in said


@pytest.mark.parametrize("what", ["crash", "die"])
@pytest.mark.parametrize(("script", "text"), [(BENCHMARK, ""), (INSTANCE, "error\n"), (LATER, "error\n")])
def test_a_crash_is_an_error_and_the_harness_goes_on(case, script, text, what):
    code, result, said = case(*script, what=what)
    assert code == 0
    assert result == text or (script is BENCHMARK and re.fullmatch(r"error \d+\.\d{6}\n", result))
    assert "holdfast ended with code" in said


def test_nothing_said_is_a_timeout(case):
    assert case(*INSTANCE, what="silent")[1] == "timeout\n"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
@pytest.mark.parametrize("script", [BENCHMARK, INSTANCE, LATER])
def test_a_kill_is_a_timeout(case, script, how):
    process, result, pid = case(*script, what="hang", wait=False)
    deadline = time.monotonic() + 20
    while not (pid.exists() and pid.read_text().strip()) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(how)
    process.communicate(timeout=20) if how != signal.SIGKILL else process.wait(timeout=20)
    word, *seconds = result.read_text().split()
    assert word == "timeout"
    assert len(seconds) == (script is BENCHMARK)
    assert all(re.fullmatch(r"\d+\.\d{6}", number) for number in seconds)
    child = int(pid.read_text())
    if how == signal.SIGKILL:
        os.kill(child, signal.SIGKILL)  # only the real one ends with its parent
        process.communicate()
        return
    assert process.returncode == 0
    deadline = time.monotonic() + 10
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not alive(child)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    "arguments",
    [
        ("setup_benchmark.sh", "v1", "ONNX", "VNNLIB"),
        ("prepare_instance.sh", "v1", "acasxu", "ONNX", "VNNLIB"),
        ("prepare_instance.sh", "v2", "acasxu", "ONNX", "VNNLIB"),
    ],
)
def test_preparing_finds_what_is_there_and_tells_what_is_not(case, arguments):
    assert case(*arguments)[0] == 0
    code, _, said = case(*[a if a != "ONNX" else "NONE" for a in arguments])
    assert code == 1
    assert said.endswith("none")
    assert "no file" in said
    code, _, said = case(*arguments, HOLDFAST_PYTHON="/none/python")
    assert code == 1
    assert "run install_tool.sh v1 first" in said


def test_packed_files_are_found(case, tmp_path):
    (tmp_path / "none.gz").write_bytes(b"")
    assert case("prepare_instance.sh", "v1", "c", "NONE", "VNNLIB")[0] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("install_tool.sh",),
        ("install_tool.sh", "v3"),
        ("setup_benchmark.sh", "v1"),
        ("setup_benchmark.sh", "v2", "ONNX", "VNNLIB"),
        ("run_benchmark.sh", "v2", "ONNX", "VNNLIB", "RESULT", "20"),
        ("run_benchmark.sh", "v1", "ONNX", "VNNLIB", "RESULT"),
        ("prepare_instance.sh", "v1", "ONNX", "VNNLIB"),
        ("run_instance.sh", "v9", "acasxu", "ONNX", "VNNLIB", "RESULT", "20"),
        ("run_instance.sh", "v1", "acasxu", "ONNX", "VNNLIB", "RESULT"),
    ],
)
def test_wrong_arguments_are_told_in_one_line(case, arguments):
    code, result, said = case(*arguments)
    assert code == 1
    assert result is None
    assert said.startswith(f"{arguments[0]}: expected")
    assert "\n" not in said


def test_a_python_that_is_too_old_is_told(case):
    code, _, said = case("install_tool.sh", "v1", HOLDFAST_BASE_PYTHON="false")
    assert code == 1
    assert "no Python 3.11 or newer" in said


def test_scripts_can_be_run_and_called_through_a_link(case, tmp_path):
    for script in SCRIPTS.glob("*_*.sh"):
        assert os.access(script, os.X_OK), script.name
        subprocess.run(["bash", "-n", str(script)], check=True)
    link = tmp_path / "run_instance.sh"
    link.symlink_to(SCRIPTS / "run_instance.sh")
    assert case(str(link), *INSTANCE[1:])[1].startswith("answer")


# Python 3.8 of an old system: the check of the version fails, everything else is refused.
OLD = '#!/bin/sh\n[ "$1" = -c ] && exit 1\nexit 64\n'
UV = """#!/bin/sh
echo "$*" >>"$LOG"
case "$1 $2" in
    "python install") exit "$INSTALLED" ;;
    "python find") [ "$INSTALLED" = 0 ] && echo "$NEW" || exit 2 ;;
esac
"""
NEW = """#!/bin/sh
echo "$*" >>"$LOG"
case "$1 $2" in
    "-m venv") mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
esac
exit 0
"""


@pytest.mark.parametrize("installed", [True, False])
def test_an_old_system_gets_its_python_or_a_plain_reason(tmp_path, installed):
    clone, tools, log = tmp_path / "clone", tmp_path / "bin", tmp_path / "log"
    shutil.copytree(SCRIPTS / "vnncomp", clone / "vnncomp", ignore=shutil.ignore_patterns(".*"))
    (clone / "install_tool.sh").symlink_to("vnncomp/install_tool.sh")
    (clone / "pyproject.toml").touch()
    tools.mkdir()
    programs = dict.fromkeys(("python3", "python3.11", "python3.12", "python3.13"), OLD)
    id_of_a_user = "#!/bin/sh\necho 1000\n"
    for name, text in {**programs, "uv": UV, "id": id_of_a_user, "python-new": NEW}.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    known = {"NEW": str(tools / "python-new"), "LOG": str(log), "INSTALLED": str(int(not installed))}
    environment = {"PATH": f"{tools}:/usr/bin:/bin", **known}
    command = [str(clone / "install_tool.sh"), "v1"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    if installed:
        assert done.returncode == 0, done.stderr
        assert "-m venv" in log.read_text()
        assert "vnncomp warm" in log.read_text()
        assert (clone / "vnncomp" / ".venv" / "bin" / "python").exists()
    else:
        assert done.returncode == 1
        assert "no Python 3.11 or newer found (uv: " in done.stderr
        assert "not root" in done.stderr

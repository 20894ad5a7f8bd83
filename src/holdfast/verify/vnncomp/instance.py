"""One instance in a new process, which is monitored, ended in time, and whose result is checked.

Only a complete, consistent answer counts: the word on the first line with its exit code, both in time.
A process that dies is an error, one that must be killed a timeout.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import HoldfastError, InputError
from holdfast.core.model import existing_file
from holdfast.core.processes import python
from holdfast.engine.store import write_atomic
from holdfast.verify.cli import EXIT_CODES
from holdfast.verify.vnncomp.instances import Instance
from holdfast.verify.vnncomp.results import STATUSES, Protocol, result_text

if TYPE_CHECKING:
    from holdfast.core.property import Status

LATE = 0.0  # seconds after the limit until which an answer counts: none, by the rules of 2026
GRACE = 2.0  # seconds after the limit at which a process that does not end is killed
SPARE = 0.05, 0.5  # of the limit, at most seconds: left for the start and the end of the process
WORK = ".holdfast-vnncomp-"  # how the names of working folders begin
_POLL = 0.005  # seconds between checks of the processes
_PDEATHSIG = 1  # Linux: prctl(PR_SET_PDEATHSIG, …)
WARM_SECONDS = 180.0  # for each: an engine does not start to compile in less than a minute
# Name, sizes of the layers, and the bound as a share of the largest output at random points. Slightly above
# 1 the property may hold with a small margin, so that the engines must split; below 1 it is violated.
WARM_PROBLEMS = (
    ("one input", (1, 16, 16, 1), 1.1),
    ("five inputs", (5, 20, 20, 5), 1.2),
    ("five inputs, violated", (5, 20, 20, 5), 0.7),
    ("64 inputs", (64, 32, 32, 10), 12.0),
)


@dataclass(frozen=True)
class InstanceOutcome:
    """The outcome of one process; `witness` is the text of the counterexample it wrote, empty if none."""

    status: Status
    seconds: float
    cpu_seconds: float
    engine: str = ""
    margin: float | None = None
    witness: str = ""
    note: str = ""


@dataclass(frozen=True, eq=False)
class InstanceProcess:
    """A process at work on an instance, with the folder its files go to."""

    instance: Instance
    process: subprocess.Popen[bytes]
    folder: tempfile.TemporaryDirectory[str]
    began: float  # of time.monotonic
    cores: tuple[int, ...]


def verify_command() -> list[str]:
    """The command every instance is run by: `holdfast verify` in this very interpreter."""
    return python("-m", "holdfast", "verify")


def begin(
    command: Sequence[str],
    instance: Instance,
    cores: Sequence[int] = (),
    within: Path | None = None,
    jobs: int = 0,
) -> InstanceProcess:
    """Start the command on an instance, on these cores (all if none), with `jobs` threads (0: all cores)."""
    folder = tempfile.TemporaryDirectory(prefix=WORK, dir=within, ignore_cleanup_errors=True)
    inside = Path(folder.name)
    own = instance.limit - min(SPARE[0] * instance.limit, SPARE[1])
    arguments = [instance.network_path, instance.spec_path, "--timeout", f"{own:g}"]
    arguments += ["--jobs", jobs] if jobs else []
    arguments += ["--json", inside / "verdict.json", "--witness", inside / "witness.txt"]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"), str(len(cores))) if cores else {}
    try:
        with (inside / "out").open("wb") as out, (inside / "err").open("wb") as err:
            began = time.monotonic()
            process = subprocess.Popen(
                [*command, *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, **threads},
                start_new_session=True,
                preexec_fn=_tied_to(os.getpid(), cores),
            )
    except OSError:
        folder.cleanup()
        raise
    return InstanceProcess(instance, process, folder, began, tuple(cores))


def wait(running: Sequence[InstanceProcess]) -> list[tuple[InstanceProcess, InstanceOutcome]]:
    """Wait until at least one process has ended or was killed; return those with their outcomes."""
    while True:
        now = time.monotonic()
        ended = [one for one in running if _has_ended(one) or now > one.began + one.instance.limit + GRACE]
        if ended:
            return [(one, _finish(one)) for one in ended]
        time.sleep(_POLL)


def abandon(running: Sequence[InstanceProcess]) -> None:
    """End the processes and remove their files."""
    for one in running:
        with one.folder:
            _end(one)


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent ends (Linux only)."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _tied_to(parent: int, cores: Sequence[int]) -> Any:
    """Setup of the new process: it must not survive a killed runner and disturb the next one."""
    if sys.platform != "linux":
        return None
    import ctypes  # here and not in the new process, where an import may wait for ever for a lock

    prctl = ctypes.CDLL(None).prctl

    def tie() -> None:
        prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)
        if cores:
            os.sched_setaffinity(0, cores)

    return tie


def _has_ended(one: InstanceProcess) -> bool:
    """Whether the process has ended; it is not reaped, so that its group stays its own."""
    return os.waitid(os.P_PID, one.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _end(one: InstanceProcess) -> tuple[int, Any]:
    """Kill the process and its children; return its exit code and resource usage."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(one.process.pid, signal.SIGKILL)
    _, status, usage = os.wait4(one.process.pid, 0)
    one.process.returncode = os.waitstatus_to_exitcode(status)
    return one.process.returncode, usage


def _finish(one: InstanceProcess) -> InstanceOutcome:
    """End the process and read the outcome from its files and its exit code."""
    late = not _has_ended(one)
    seconds = time.monotonic() - one.began
    code, usage = _end(one)
    attempt = partial(InstanceOutcome, seconds=seconds, cpu_seconds=usage.ru_utime + usage.ru_stime)
    with one.folder:
        if late:
            return attempt("timeout", note=f"killed {GRACE:g} s after the time limit")
        folder, over = Path(one.folder.name), seconds - one.instance.limit
        last = _text(folder / "err").strip().rpartition("\n")[2].strip()[:200]
        problem = f": {last}" if last else ""
        if code < 0:
            return attempt("error", note=f"ended by {signal.Signals(-code).name}{problem}")
        first_line = _text(folder / "out").partition("\n")[0].strip()
        status = next((s for s in STATUSES if s == first_line), None)
        if status is None or EXIT_CODES[status] != code:
            output = f"said {first_line[:60]!r}" if first_line else "no output"
            return attempt("error", note=f"exit code {code}, {output}{problem}")
        verdict = read_mapping(folder / "verdict.json")
        margin, note = verdict.get("margin", verdict.get("bound")), str(verdict.get("note") or "")
        margin = float(margin) if isinstance(margin, int | float) else None
        attempt = partial(attempt, engine=str(verdict.get("engine") or ""), margin=margin)
        if status == "error":
            return attempt(status, note=note or last)
        if status in ("holds", "violated") and over > LATE:
            return attempt("timeout", note=f"{status} came {over:.1f} s after the limit")
        if status == "holds" and verdict.get("real_arithmetic_only"):  # runtimes do not compute in it
            return attempt("unknown", note=note)
        witness = _text(folder / "witness.txt") if status == "violated" else ""
        return attempt(status, witness=witness, note=note)


def read_mapping(path: Path) -> dict[str, Any]:
    """The mapping in a JSON file; an empty one if there is none."""
    import orjson

    try:
        content = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return {}
    return content if isinstance(content, dict) else {}


def _text(path: Path) -> str:
    return path.read_text("utf-8", "replace") if path.is_file() else ""


def answer(
    network: Path, spec: Path, result: Path, limit: float, protocol: Protocol, command: Sequence[str] = ()
) -> InstanceOutcome:
    """Run an instance, write the result file in that protocol, and return the outcome.

    Any problem, including one on this side, is an error in the file. Only a failed write raises.
    """
    began = time.monotonic()
    try:
        if not limit > 0:
            raise InputError(f"expected a time limit in seconds, got {limit:g}")
        for path in (network, spec):
            if existing_file(path) is None:
                raise InputError(f"{path}: no such file")
        files = [existing_file(path) or path for path in (network, spec)]
        instance = Instance(
            "", str(network), str(spec), limit, files[0], spec_path=files[1], folder=network.parent
        )
        ((_, attempt),) = wait([begin(command or verify_command(), instance)])
    except (HoldfastError, OSError) as problem:
        attempt = InstanceOutcome("error", time.monotonic() - began, 0.0, note=str(problem))
    write_atomic(result, result_text(protocol, attempt.status, attempt.seconds, attempt.witness).encode())
    return attempt


def warm_up(command: Sequence[str] = ()) -> Iterator[tuple[str, InstanceOutcome]]:
    """Compile the kernels on small problems; return the name and the outcome of each."""
    with tempfile.TemporaryDirectory(prefix="holdfast-warm-") as name:
        for number, (what, sizes, share) in enumerate(WARM_PROBLEMS):
            network, spec = Path(name) / f"{number}.onnx", Path(name) / f"{number}.vnnlib"
            _write_problem(network, spec, sizes, share, number)
            problem = Instance(
                "warm", network.name, spec.name, WARM_SECONDS, network, spec_path=spec, folder=Path(name)
            )
            ((_, attempt),) = wait([begin(command or verify_command(), problem)])
            yield what, attempt


def _write_problem(network: Path, spec: Path, sizes: Sequence[int], share: float, number: int) -> None:
    """Write layers of random weights with ReLU between them, and a bound on the first output.

    Inputs are from -1 to 1. The last bias is such that the outputs are 0 in the middle of the box.
    """
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    from holdfast.core.fingerprint import generator
    from holdfast.verify.vnnlib import Disjunct, Spec, print_vnnlib

    rng = generator(0, "vnncomp", "warm", number)
    layers = []
    for n, m in pairwise(sizes):
        weight = rng.normal(0, (2 / n) ** 0.5, (n, m)).astype(np.float32)
        layers.append((weight, rng.normal(0, 0.1, m).astype(np.float32)))

    def outputs(values: Any) -> Any:
        for weight, bias in layers[:-1]:
            values = np.maximum(values @ weight + bias, 0)
        return values @ layers[-1][0] + layers[-1][1]

    layers[-1] = layers[-1][0], layers[-1][1] - outputs(np.zeros((1, sizes[0]), np.float32))[0]
    nodes, weights, last = [], [], "x"
    for i, (weight, bias) in enumerate(layers):
        weights += [numpy_helper.from_array(weight, f"w{i}"), numpy_helper.from_array(bias, f"b{i}")]
        nodes.append(helper.make_node("Gemm", [last, f"w{i}", f"b{i}"], [f"z{i}"]))
        nodes.append(helper.make_node("Relu", [f"z{i}"], [last := f"r{i}"]))
    first = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, sizes[0]])
    last_output = helper.make_tensor_value_info(f"z{i}", TensorProto.FLOAT, [1, sizes[-1]])
    graph = helper.make_graph(nodes[:-1], "warm", [first], [last_output], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    network.write_bytes(model.SerializeToString())
    points = generator(1, "vnncomp", "warm", number).uniform(-1, 1, (20_000, sizes[0])).astype(np.float32)
    least = share * float(outputs(points)[:, 0].max())
    box, row = np.ones(sizes[0]), -np.eye(1, sizes[-1])
    case = Disjunct(-box, box, row, np.array([-least]), np.zeros(1, np.bool_))
    spec.write_text(print_vnnlib(Spec(sizes[0], sizes[-1], (case,))))

"""One instance as the competition's scripts ask for it: a result file, written whole, whatever happens."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from holdfast.core.errors import HoldfastError, InputError
from holdfast.core.model import found_file
from holdfast.engine.store import write_atomic
from holdfast.verify.vnncomp.attempt import Attempt, begin, verify_command, wait
from holdfast.verify.vnncomp.instances import Instance
from holdfast.verify.vnncomp.protocol import Protocol, result_text


def answer(
    network: Path,
    spec: Path,
    result: Path,
    limit: float,
    protocol: Protocol,
    command: Sequence[str] | None = None,
) -> Attempt:
    """What came of the instance, after the result file was written in that protocol.

    The verifier runs in a process of its own, so that a crash of it is an error and a process that does not
    end a timeout; a problem on this side is an error too. Only a result file that cannot be written raises.
    """
    began = time.monotonic()
    try:
        attempt = _attempted(network, spec, limit, command or verify_command())
    except (HoldfastError, OSError) as problem:
        attempt = Attempt("error", time.monotonic() - began, 0.0, note=str(problem))
    write_atomic(result, result_text(protocol, attempt.status, attempt.seconds, attempt.witness).encode())
    return attempt


def _attempted(network: Path, spec: Path, limit: float, command: Sequence[str]) -> Attempt:
    if not limit > 0:
        raise InputError(f"expected a time limit in seconds, got {limit:g}")
    files = []
    for path in (network, spec):
        file = found_file(path)
        if file is None:
            raise InputError(f"{path}: no such file")
        files.append(file)
    instance = Instance("", str(network), str(spec), limit, files[0], files[1], network.parent)
    ((_, attempt),) = wait([begin(command, instance)])
    return attempt

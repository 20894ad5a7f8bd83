"""`holdfast verify`: whether any input of a set breaks a network, proven."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.config.output import say
from holdfast.verify.options import VerifyOptions

if TYPE_CHECKING:
    from holdfast.core.property import Property, Verdict

EXIT_CODES: Mapping[str, int] = {"holds": 0, "violated": 1, "error": 2, "unknown": 3, "timeout": 3}
_SHOWN = 8  # inputs and outputs printed; a file holds all
_EVERY_SECONDS = 10.0


def verify(options: VerifyOptions) -> int:
    """Prove that no input of the property's set violates it, or find one that does.

    The first line is holds, violated, unknown or timeout. Exit code 0 means holds, 1 violated, 3 unknown or
    timeout, 2 bad input.
    """
    from holdfast.core.model import found_file

    net = found_file(options.net) or options.net
    if options.check:
        return _check(net)
    from holdfast.core.errors import InputError
    from holdfast.core.model import Network
    from holdfast.core.property import Budget, Verdict
    from holdfast.verify.run import verify as decide
    from holdfast.verify.vnnlib import property_of, read_vnnlib
    from holdfast.verify.watch import memory_bytes, watched

    began = time.monotonic()
    if options.prop is None:
        raise InputError(f"expected a VNN-LIB file behind {net} (see holdfast verify --help)")

    limit = int(options.memory * 1e9) if options.memory is not None else memory_bytes()

    def give_up(late: bool) -> int:
        note = "stopped by the clock" if late else f"more than {limit / 1e9:.3g} GB of memory in use"
        verdict = Verdict("timeout" if late else "unknown", "none", time.monotonic() - began, note=note)
        return _tell(verdict, options)

    with watched(options.timeout, limit, give_up) as speak:
        question = property_of(read_vnnlib(options.prop), Network(net.stem, net))
        left = began + options.timeout - time.monotonic()
        budget = Budget(left, limit, options.jobs or _cores(), options.seed)
        verdict = decide(question, budget, _progress())
        speak()
    return _tell(verdict, options, question)


def _cores() -> int:
    import os

    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _check(net: Path) -> int:
    """List every node and return the exit code: 0 if all are supported, 3 if one is not."""
    from holdfast.graph.support import report

    text, supported = report(net)
    say(text)
    return 0 if supported else 3


def _tell(verdict: Verdict, options: VerifyOptions, question: Property | None = None) -> int:
    """Print and write the verdict, and return the exit code."""
    say(verdict.status)
    for name, value in _lines(verdict, question):
        say(f"{name:8} {value}")
    sys.stdout.flush()
    if options.json is not None:
        from holdfast.config.output import write_json

        write_json(options.json, _facts(verdict))
    if options.witness is not None and verdict.witness is not None and verdict.status == "violated":
        _write_witness(options.witness, verdict)
    if verdict.status == "error":
        sys.stderr.write(f"holdfast: {verdict.note}\n")
    return EXIT_CODES[verdict.status]


def _lines(verdict: Verdict, question: Property | None) -> list[tuple[str, str]]:
    lines = [("engine", verdict.engine), ("seconds", f"{verdict.seconds:.3f}")]
    if verdict.bound is not None:
        lines.append(("margin" if verdict.status == "holds" else "bound", f"{verdict.bound:.6g}"))
    if verdict.status == "violated" and verdict.witness is not None and verdict.replay is not None:
        lines.append(("witness", _values("X", verdict.witness.ravel(), _free(question))))
        outputs = verdict.replay.output
        shown = _values("Y", outputs, list(range(outputs.size)))
        lines.append(("replay", f"{shown} (ONNX Runtime, original file)"))
    if verdict.note:
        lines.append(("note", verdict.note))
    return lines


def _free(question: Property | None) -> list[int]:
    """The places of the inputs that the property leaves free."""
    from holdfast.core.property import Box

    box = None if question is None else question.threat
    return [] if not isinstance(box, Box) else (box.lower < box.upper).ravel().nonzero()[0].tolist()


def _values(letter: str, values: Any, shown: list[int]) -> str:
    digits = 17 if values.dtype == "float64" and letter == "X" else 9
    text = ", ".join(f"{letter}_{i} = {float(values[i]):.{digits}g}" for i in shown[:_SHOWN])
    more = (
        f" and {len(values) - len(shown):,} fixed ones" if letter == "X" and len(values) > len(shown) else ""
    )
    return text + (f", … ({len(shown):,} values)" if len(shown) > _SHOWN else "") + more


def _facts(verdict: Verdict) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "status": verdict.status,
        "engine": verdict.engine,
        "seconds": verdict.seconds,
        "margin": verdict.bound,
        "real_arithmetic_only": verdict.real_only,
        "note": verdict.note,
    }
    if verdict.status == "violated" and verdict.witness is not None and verdict.replay is not None:
        facts["witness"] = [float(value) for value in verdict.witness.ravel()]
        facts["outputs"] = [float(value) for value in verdict.replay.output]
    return facts


def _write_witness(path: Path, verdict: Verdict) -> None:
    from holdfast.engine.store import write_atomic
    from holdfast.verify.vnncomp.results import Counterexample, counterexample_text

    if verdict.witness is None or verdict.replay is None:
        return
    found = Counterexample(verdict.witness.ravel().astype("float64"), verdict.replay.output.astype("float64"))
    write_atomic(path, counterexample_text(found).encode(), durable=False)


def _progress() -> Callable[[str, int, float], None]:
    """A function that shows on standard error how it goes: in place on a terminal, now and then elsewhere."""
    began = last = time.monotonic()
    terminal = sys.stderr is not None and sys.stderr.isatty()
    every = 0.1 if terminal else _EVERY_SECONDS

    def tell(what: str, domains: int, bound: float) -> None:
        nonlocal last
        now = time.monotonic()
        if sys.stderr is None or now - last < every:
            return
        last = now
        line = f"{now - began:.0f} s: {what}, {domains:,} open, best bound {bound:.4g}"
        sys.stderr.write(f"\r\x1b[K{line}\r" if terminal else f"{line}\n")
        sys.stderr.flush()

    return tell

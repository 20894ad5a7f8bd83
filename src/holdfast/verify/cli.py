"""`holdfast verify`: whether any input of a set breaks a network, proven."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.config.output import say, write_json
from holdfast.core.text import terminal
from holdfast.verify.options import VerifyOptions

if TYPE_CHECKING:
    from holdfast.core.property import Property, Verdict

EXIT_CODES: Mapping[str, int] = {"holds": 0, "violated": 1, "error": 2, "unknown": 3, "timeout": 3}
_SHOWN = 8  # inputs and outputs printed; a file holds all
_EVERY_SECONDS = 10.0  # progress on a standard error that is no terminal
_GRACE = 1.0  # seconds after the limit in which the command may still end by itself
_WATCH_SECONDS = 0.2


def verify(options: VerifyOptions) -> int:
    """Prove that no input violates a property, or find a counterexample.

    The first line is holds, violated, unknown or timeout. Exit code 0 means holds, 1 violated, 3 unknown or
    timeout, 2 bad input.
    """
    net = find_network(options.net)
    if options.check:
        from holdfast.graph.support import report

        text, support = report(net)
        say(text)
        if options.json is not None:
            write_json(options.json, support.to_dict())
        return 0 if support.supported else 3
    from holdfast.core.errors import InputError
    from holdfast.core.model import Network
    from holdfast.core.property import Budget, Verdict
    from holdfast.engine.executor import cores
    from holdfast.verify.run import verify as decide
    from holdfast.verify.vnnlib import property_of, read_vnnlib

    began = time.monotonic()
    if options.prop is None:
        raise InputError(f"expected a VNN-LIB file after {net} (see holdfast verify --help)")
    limit = int(options.memory * 1e9) if options.memory is not None else memory_bytes()

    def give_up(late: bool) -> int:
        note = "stopped at the time limit" if late else f"more than {limit / 1e9:.3g} GB of memory in use"
        verdict = Verdict("timeout" if late else "unknown", "none", time.monotonic() - began, note=note)
        return _report(verdict, options)

    with _watched(options.timeout, limit, give_up) as speak:
        question = property_of(read_vnnlib(options.prop), Network(net.stem, net))
        left = began + options.timeout - time.monotonic()
        budget = Budget(left, limit, options.jobs or cores(), options.seed)
        verdict = decide(question, budget, progress_line())
        speak()
    return _report(verdict, options, question)


def find_network(net: str | Path) -> Path:
    """The file of a network: its path (or its .gz), or the name of a shipped model."""
    from holdfast.core.model import existing_file

    if file := existing_file(Path(net)):
        return file
    from holdfast.graph.load import find_model  # here, because it imports much that a file does not need

    return find_model(str(net))


def _report(verdict: Verdict, options: VerifyOptions, question: Property | None = None) -> int:
    say(verdict.status)
    for name, value in _lines(verdict, question):
        say(f"{name:8} {value}")
    sys.stdout.flush()
    write_verdict(verdict, options)
    if verdict.status == "error":
        sys.stderr.write(f"holdfast: {verdict.note}\n")
    return EXIT_CODES[verdict.status]


def write_verdict(verdict: Verdict, options: VerifyOptions) -> None:
    """Write the verdict and the counterexample to the files that the options name."""
    if options.json is not None:
        write_json(options.json, verdict.to_dict())
    if options.witness is not None and (counterexample := _counterexample(verdict)) is not None:
        from holdfast.engine.store import write_atomic
        from holdfast.verify.vnncomp.results import Counterexample, counterexample_text

        values = Counterexample(*(value.astype("float64") for value in counterexample))
        write_atomic(options.witness, counterexample_text(values).encode(), durable=False)


def _counterexample(verdict: Verdict) -> tuple[Any, Any] | None:
    """Flat inputs that violate the property and their outputs; None if there are none."""
    if verdict.status != "violated" or verdict.witness is None or verdict.replay is None:
        return None
    return verdict.witness.ravel(), verdict.replay.output


def _lines(verdict: Verdict, question: Property | None) -> Iterator[tuple[str, str]]:
    from holdfast.core.property import InputBox

    yield "engine", verdict.engine
    yield "seconds", f"{verdict.seconds:.3f}"
    if verdict.bound is not None:
        yield "margin" if verdict.status == "holds" else "bound", f"{verdict.bound:.6g}"
    if (counterexample := _counterexample(verdict)) is not None:
        inputs, outputs = counterexample
        box = None if question is None else question.threat
        free = (box.lower < box.upper).ravel().nonzero()[0].tolist() if isinstance(box, InputBox) else []
        yield "witness", _values("X", inputs, free)
        yield "replay", f"{_values('Y', outputs, range(outputs.size))} (ONNX Runtime, original file)"
    if verdict.note:
        yield "note", verdict.note


def _values(letter: str, values: Any, shown: Sequence[int]) -> str:
    digits = 17 if values.dtype == "float64" and letter == "X" else 9
    text = ", ".join(f"{letter}_{i} = {float(values[i]):.{digits}g}" for i in shown[:_SHOWN])
    if len(shown) > _SHOWN:
        text += f", … ({len(shown):,} values)"
    fixed = len(values) - len(shown)
    return f"{text} and {fixed:,} fixed ones" if fixed else text


def progress_line() -> Callable[[str, int, float], None]:
    """A function that shows on standard error how it goes: in place on a terminal, now and then elsewhere."""
    began = last = time.monotonic()
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    every = 0.1 if is_terminal else _EVERY_SECONDS

    def tell(what: str, domains: int, bound: float) -> None:
        nonlocal last
        now = time.monotonic()
        if sys.stderr is None or now - last < every:
            return
        last = now
        line = f"{now - began:.0f} s: {what}, {domains:,} open, best bound {bound:.4g}"
        terminal(sys.stderr).write(f"\r\x1b[K{line}\r" if is_terminal else f"{line}\n")
        sys.stderr.flush()

    return tell


@contextmanager
def _watched(seconds: float, memory: int, give_up: Callable[[bool], int]) -> Iterator[Callable[[], None]]:
    """A function to call before the result is printed; until then the watch may end the process.

    When it is too late, or the process has grown too large, `give_up(late)` reports instead, and the process
    ends at once with the exit code that it returns. The two never both report.
    """
    speaking, done = threading.Lock(), threading.Event()
    until = time.monotonic() + seconds + _GRACE

    def watch() -> None:
        while not done.wait(min(_WATCH_SECONDS, max(until - time.monotonic(), 0.0))):
            late, large = time.monotonic() >= until, _resident_bytes() > memory
            if not late and not large:
                continue
            if speaking.acquire(blocking=False):
                os._exit(give_up(late))
            return

    def speak() -> None:
        done.set()
        speaking.acquire()  # if the watch speaks already, it ends the process: wait for that

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield speak
    finally:
        done.set()


def _resident_bytes() -> int:
    """What the process holds in memory now; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def memory_bytes() -> int:
    """The memory of the machine, or 8 GiB where the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return 8 << 30

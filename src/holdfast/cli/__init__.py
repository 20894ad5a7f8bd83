"""The command line: thin commands around public functions. Nothing heavy is imported before it is needed."""

import contextlib
import errno
import gc
import io
import os
import select
import signal
import sys
import threading

GROUPS = {
    "data": "Inspect a dataset, write the embedded one, crop single targets.",
    "model": "Inspect a model, write its card, convert darknet files.",
    "store": "Inspect, verify and prune a store of completed cells.",
}
COMMANDS = {
    "Measure": {
        "data info": "commands:data_info",
        "data make": "commands:data_make",
        "data crop": "commands:data_crop",
        "model info": "commands:model_info",
        "model card": "commands:model_card",
        "model check": "commands:model_check",
        "model list": "commands:model_list",
        "model convert": "commands:model_convert",
    },
    "Run": {
        "report": "commands:report",
        "store info": "store:info",
        "store verify": "store:verify",
        "store prune": "store:prune",
        "doctor": "doctor:doctor",
    },
}
INTERRUPTED = 130
# A full disk, a failing one, too many open files or processes, no memory.
MACHINE_TROUBLE = ("ENOSPC", "EDQUOT", "EIO", "EMFILE", "ENFILE", "EAGAIN", "ENOMEM")
KEPT = "Interrupted. Completed work is saved; run the same command again to resume."
_ending = threading.Lock()  # held by the thread that answers Ctrl-C


def main() -> None:
    """Run one command and exit with its code, one of `core.errors.EXIT_CODES`."""
    from holdfast.core.text import PrintableStream

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _stop)
    if "HOLDFAST_END_WITH_STDIN" in os.environ:
        from holdfast.core.processes import end_with_stdin

        end_with_stdin()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ─ or Δ must not end a run
    # Names from files must not control the terminal.
    sys.stdout, sys.stderr = (stream and PrintableStream(stream) for stream in (sys.stdout, sys.stderr))
    # What is made at the start stays; to look for waste in it again and again takes 8 ms of a short command.
    gc.set_threshold(50_000, 20, 20)
    code = run(sys.argv[1:])
    _flush()
    gc.freeze()  # the collections at exit would walk through all modules: half a second with torch
    sys.exit(code)


def _listen_for_interrupts() -> None:
    """Answer Ctrl-C in a thread too: Python calls handlers only between two steps of the main thread.

    A network that runs for minutes is one such step.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)  # a signal handler must not wait
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def answer() -> None:
        while number := os.read(reader, 1):  # unless the command has a handler of its own by then
            if number[0] == signal.SIGINT and signal.getsignal(signal.SIGINT) is _stop:
                _stop(signal.SIGINT, None)

    threading.Thread(target=answer, name="interrupts", daemon=True).start()


def _stop(_signal: int, _frame: object) -> None:
    """End the process at once; workers notice and end within half a second.

    An exception would be no way out: raised inside an import or a library's start-up it is lost, or aborts.
    """
    if not _ending.acquire(blocking=False):
        return  # the other thread is ending the process
    cursor = b"\x1b[?25h" if os.isatty(2) else b""  # a progress bar may have hidden it
    line = cursor + f"\nholdfast: {KEPT}\n".encode()[0 if cursor else 1 :]
    with contextlib.suppress(OSError, ValueError):  # closed
        if select.select([], [2], [], 0)[1]:  # nobody may read a pipe: never wait for room
            os.write(2, line)
    os._exit(INTERRUPTED)


def _flush() -> None:
    """Flush what was printed; drop it if nobody can take it, or Python would report that when it exits."""
    for stream in (sys.stdout, sys.stderr):
        if stream is None or stream.closed:  # None: begun with it closed
            continue
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code; every error is one line on standard error."""
    # numpy is used for small arrays only: threads of its own would cost start-up time and crowd the workers.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if signal.getsignal(signal.SIGINT) is _stop:
        _listen_for_interrupts()
    from holdfast.cli.app import execute
    from holdfast.core.errors import HoldfastError, MachineError

    try:
        if "_HOLDFAST_COMPLETE" in os.environ:
            from holdfast.cli.complete import answer

            with contextlib.suppress(Exception):  # an error would spoil the line the user is typing
                answer(os.environ["_HOLDFAST_COMPLETE"])
            return 0
        code = execute(arguments)
        if sys.stdout is not None:  # None: begun with its output closed
            sys.stdout.flush()
        return code
    except HoldfastError as problem:
        return _say(str(problem), problem.exit_code)
    except KeyboardInterrupt:
        return _say(KEPT, INTERRUPTED)
    except BrokenPipeError:  # nobody reads on, as in `holdfast … | head -1`
        return 0
    except OSError as problem:  # a folder that may not be entered, a disk that is gone
        where = f"{problem.filename}: " if problem.filename else ""
        code = MachineError.exit_code if errno.errorcode.get(problem.errno or 0) in MACHINE_TROUBLE else 2
        return _say(f"{where}{problem.strerror or problem}", code)
    except MemoryError:
        return _say("out of memory; try fewer --jobs", MachineError.exit_code)
    except BaseException as problem:  # the last line of defence: no traceback for the user
        is_panic = type(problem).__name__ == "PanicException"  # of a library in Rust; no Exception
        if os.environ.get("HOLDFAST_TRACEBACK") or not (isinstance(problem, Exception) or is_panic):
            raise
        what = f"{type(problem).__name__}: {problem}"
        return _say(
            f"internal error ({what}); please report it. Set HOLDFAST_TRACEBACK=1 to see the traceback", 70
        )


def _say(line: str, code: int) -> int:
    sys.stderr.write(f"holdfast: {line}\n")
    return code

"""One sentence spoken by espeak-ng's library, with the times at which its words begin.

The library keeps a state from one sentence to the next, so that what it says hangs on what it said before.
This file is therefore also a small program, standard library only: a process of its own for each sentence
makes the recordings repeat, in any order and after any kill.
"""

import ctypes
import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

LIBRARIES: Final = ("libespeak-ng.so.1", "libespeak-ng.so", "libespeak-ng.dylib", "libespeak-ng.dll")
INSTALLER: Final = "scripts/install-speech.sh"
_LIST_END, _WORD, _SYNCHRONOUS, _UTF8 = 0, 1, 2, 1


@dataclass(frozen=True)
class Spoken:
    """16-bit little-endian samples as bytes, their rate, and the sample at which each word begins."""

    samples: bytes
    rate: int
    words: tuple[int, ...]


class _Id(ctypes.Union):
    _fields_ = (("number", ctypes.c_int), ("name", ctypes.c_char_p), ("string", ctypes.c_char * 8))


class _Event(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("unique", ctypes.c_uint),
        ("place", ctypes.c_int),
        ("length", ctypes.c_int),
        ("milliseconds", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user", ctypes.c_void_p),
        ("id", _Id),
    )


def library_name() -> str | None:
    """The name under which espeak-ng's library loads, or None if it is not installed."""
    for name in LIBRARIES:
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return name
    return None


def version() -> str:
    """What `espeak-ng --version` says of itself, without where its data lie; empty if it cannot be asked."""
    program = shutil.which("espeak-ng")
    if program is None:
        return ""
    said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=20, check=False)
    return said.stdout.split("  ")[0].strip()


def speak(text: str, voice: str) -> Spoken:
    """The sentence spoken in a process of its own."""
    command = [sys.executable, "-I", str(Path(__file__)), voice, text]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    if done.returncode != 0:
        raise OSError(done.stderr.decode(errors="replace").strip().splitlines()[-1])
    head, _, samples = done.stdout.partition(b"\n")
    rate, words = json.loads(head)
    return Spoken(samples, int(rate), tuple(words))


def _spoken(text: str, voice: str) -> Spoken:
    """The sentence spoken in this process, which should not speak again."""
    name = library_name()
    if name is None:
        raise OSError(f"espeak-ng's library is not installed: run {INSTALLER}")
    library = ctypes.CDLL(name)
    parts: list[bytes] = []
    words: list[int] = []

    def take(wave: Any, count: int, events: Any) -> int:
        if wave and count > 0:
            parts.append(ctypes.string_at(wave, 2 * count))
        at = 0
        while events[at].type != _LIST_END:
            if events[at].type == _WORD:
                words.append(events[at].sample)
            at += 1
        return 0

    shape = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event)
    )
    callback = shape(take)
    rate = library.espeak_Initialize(_SYNCHRONOUS, 0, None, 0)
    if rate <= 0 or library.espeak_SetVoiceByName(voice.encode()) != 0:
        raise OSError(f"espeak-ng has no voice {voice!r}: run {INSTALLER}")
    library.espeak_SetSynthCallback(callback)
    raw = text.encode()
    library.espeak_Synth(raw, len(raw) + 1, 0, 1, 0, _UTF8, None, None)
    library.espeak_Synchronize()
    return Spoken(b"".join(parts), rate, tuple(words))


def _main() -> int:
    voice, text = sys.argv[1:]
    spoken = _spoken(text, voice)
    sys.stdout.buffer.write(json.dumps([spoken.rate, spoken.words]).encode() + b"\n" + spoken.samples)
    sys.stdout.buffer.flush()
    return 0


if __name__ == "__main__":
    sys.exit(_main())

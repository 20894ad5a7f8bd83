"""The runs of a folder, newest first, each with its headline number; asked for by a key, not by a path."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson

from holdfast.engine.store import printable
from holdfast.web.refusal import Refusal

LARGEST = 64 << 20  # bytes of a manifest


@dataclass(frozen=True)
class Headline:
    """What a list of runs says of one: what it is of, when it was made, its number and a few words."""

    subject: str
    created: str
    value: str
    words: str


@dataclass(frozen=True)
class Run:
    """A run of any kind, in its folder."""

    key: str  # of the folder's name
    kind: str
    folder: Path
    headline: Headline

    @property
    def name(self) -> str:
        """The folder's name, as it can be shown."""
        return printable(self.folder.name)

    @property
    def when(self) -> str:
        """The time it was made, to the minute."""
        return self.headline.created[:16].replace("T", " ")


def runs_in(folder: Path) -> list[Run]:
    """The runs that lie directly in a folder, newest first; links that lead elsewhere are no runs."""
    try:
        inner = [p for p in folder.iterdir() if p.is_dir() and not p.is_symlink()]
    except OSError:
        return []
    found = [run for p in inner if (run := _run(p)) is not None]
    return sorted(found, key=lambda r: (r.headline.created, r.name), reverse=True)


def run_of(folder: Path, key: str) -> Run:
    """The run of that key; Refusal if there is none."""
    for run in runs_in(folder):
        if run.key == key:
            return run
    raise Refusal("there is no such run; load the page again", 404)


def _run(folder: Path) -> Run | None:
    for name, (kind, _) in KINDS.items():
        path = folder / name
        try:
            state = path.lstat()
        except OSError:
            continue
        if path.is_symlink() or not path.is_file():
            continue
        key = hashlib.sha256(os.fsencode(folder.name)).hexdigest()[:16]
        return Run(key, kind, folder, _headline(path, state.st_mtime_ns, state.st_size))
    return None


@lru_cache(maxsize=4096)
def _headline(path: Path, changed: int, size: int) -> Headline:
    """What the manifest says; the time and size of the file are there to read it again when it is another."""
    made = datetime.fromtimestamp(changed / 1e9, UTC).isoformat(timespec="seconds")
    if size > LARGEST:
        return Headline(path.parent.name, made, "", f"{path.name} is too large to be read")
    try:
        plain = orjson.loads(path.read_bytes())
        head = KINDS[path.name][1](plain)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
        return Headline(printable(path.parent.name), made, "", f"{path.name} cannot be read")
    return Headline(head.subject[:200], head.created[:40] or made, head.value[:60], head.words[:200])


def _evaluation(plain: Mapping[str, Any]) -> Headline:
    from holdfast.evaluate.page import cards

    about = plain["about"]
    large, small = cards(plain["result"])
    first = (*large, *small)[0]
    subject = f"{about['model']['name']} on {about['data']['name']}"
    return Headline(
        subject, str(about["created"]), f"{first.name} {first.text}", f"{about['data']['images']} images"
    )


def _noise(plain: Mapping[str, Any]) -> Headline:
    first = plain["models"][0]
    drops = [(r["drop"], f"{r['family']}={r['option']}") for r in first["rows"] if r["drop"] is not None]
    drop, label = max(drops, default=(None, ""))
    words = f"clean {100 * first['clean']:.2f}" + (f"; worst: {label}" if label else "")
    names = ", ".join(str(m["model"]) for m in plain["models"])
    value = "" if drop is None else _lost(drop, 2)
    return Headline(f"{names} on {plain['data']}", str(plain["created"]), value, words)


def _lost(points: float, digits: int) -> str:
    text = f"{points:.{digits}f}"
    return f"−{text} points" if float(text) > 0 else "takes nothing"


def _attack(plain: Mapping[str, Any]) -> Headline:
    about, first = plain["about"], plain["effects"][0]
    pixels = plain["mean_pixels"]
    words = "nothing to attack" if pixels is None else f"{pixels:.0f} pixels an image"
    subject = f"{about['model']['name']} on {about['data']['name']}"
    return Headline(
        subject, str(about["created"]), f"mAP {first['before']:.3f} → {first['after']:.3f}", words
    )


def _audit(plain: Mapping[str, Any]) -> Headline:
    clean = plain["clean"]
    drops = [(c["drop"], c["label"]) for c in plain["causes"] if c["drop"] is not None]
    drop, label = max(drops, default=(None, ""))
    words = "" if drop is None else f"worst noise {_lost(100 * drop, 1)}: {label}"
    subject = f"{plain['model']['name']} on {plain['data']['name']}"
    return Headline(subject, str(plain["created"]), f"{clean['title']} {clean['value']:.3f}", words)


def _other(plain: Mapping[str, Any]) -> Headline:
    """A noise suite of language or speech: its models."""
    names = ", ".join(str(m["model"]) for m in plain["models"])
    return Headline(names, str(plain["created"]), "", f"{len(plain['models'])} models")


# manifest -> kind, and who reads its headline; the audit first: its folder may hold the runs of its parts
KINDS: dict[str, tuple[str, Callable[[Mapping[str, Any]], Headline]]] = {
    "audit.json": ("audit", _audit),
    "attack.json": ("attack", _attack),
    "noise.json": ("noise", _noise),
    "language.json": ("language", _other),
    "speech.json": ("speech", _other),
    "run.json": ("evaluation", _evaluation),
}

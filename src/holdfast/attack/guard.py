"""What an attack makes sure of: its folder is its own, the model stays what it was, files keep apart."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path, PurePosixPath

import numpy as np
import orjson

from holdfast.attack.judge import open_judge
from holdfast.attack.plan import AttackPlan
from holdfast.core import fingerprint
from holdfast.core.dataset import Entry
from holdfast.core.errors import DataError
from holdfast.engine.store import printable, to_json, write_atomic

CLAIM = "claim.json"
LOOKED_AT = 8  # images whose outputs are compared before and after


def claim(folder: Path, setup: str, entries: tuple[Entry, ...], shared: bool = False) -> None:
    """Nothing; the folder is this attack's. DataError if it holds another one, or images beyond these.

    A shared one may hold others: of an audit, which attacks more images as its time allows, and other data.
    """
    path, names = folder / CLAIM, [e.name for e in entries]
    try:
        held = orjson.loads(path.read_bytes())
        more = set(held["images"]) - set(map(printable, names))
        same = held["setup"] == setup and (shared or not more)
    except FileNotFoundError:
        same = True
    except (OSError, ValueError, KeyError, TypeError):
        same = False
    if not same:
        raise DataError(
            f"{folder}: holds another attack (other model, data, options or version of holdfast); "
            "give another --out, or delete it"
        )
    write_atomic(path, to_json({"setup": setup, "images": names}))


def state_of(plan: AttackPlan, entries: tuple[Entry, ...]) -> dict[str, str]:
    """The hash of the model's file and of what the model says of the first images that can be read."""
    model = plan.plan.model
    content = hashlib.sha256(model.read()).hexdigest()
    judge = open_judge(model, plan.plan.pipeline, plan.method.rule)
    said: dict[str, list[tuple[str, str]]] = {}
    for entry in entries[:LOOKED_AT]:
        try:
            tensor = judge.prepared(judge.machine.decode(entry.load().data)).tensor
        except DataError:
            continue
        outputs = judge.machine.run(tensor)
        said[entry.name] = [
            (n, fingerprint.of_bytes(np.ascontiguousarray(v).tobytes())) for n, v in outputs.items()
        ]
    return {"sha256": content, "images": str(len(said)), "outputs": fingerprint.of(said)}


def file_names(entries: tuple[Entry, ...]) -> dict[str, str]:
    """Image -> its name in the folder of results: without its ending, unless two images then meet."""
    short = {e.name: str(PurePosixPath(_inside(e.name)).with_suffix("")) for e in entries}
    times = Counter(name.casefold() for name in short.values())
    taken: set[str] = {name.casefold() for name in short.values() if times[name.casefold()] == 1}
    found = {}
    for name, stem in short.items():
        chosen, number = stem, 1
        if times[stem.casefold()] > 1:
            chosen = _inside(name)
            while chosen.casefold() in taken:
                number += 1
                chosen = f"{_inside(name)}-{number}"
            taken.add(chosen.casefold())
        found[name] = chosen
    return found


def _inside(name: str) -> str:
    """The name as a path that cannot leave the folder it is put into."""
    parts = [p for p in PurePosixPath(name.replace("\\", "/")).parts if p not in ("/", "..", ".")]
    return "/".join(parts) or "image"

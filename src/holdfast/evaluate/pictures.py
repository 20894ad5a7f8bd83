"""The encoded images of a run by name, as long as its data set is where it was."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.errors import HoldfastError
from holdfast.data.open import open_dataset
from holdfast.engine.store import printable
from holdfast.evaluate.result import Evaluation


def pictures(evaluation: Evaluation) -> Callable[[str], bytes | None]:
    """A function that gives an image of the run, encoded; None if it cannot be had or was changed since."""
    source = evaluation.about.data["source"]
    if "data" not in source:
        return lambda name: None
    try:
        dataset = open_dataset(
            source["data"],
            task=evaluation.about.task,
            format=source.get("format"),
            split=source.get("split"),
        )
    except HoldfastError:
        return lambda name: None
    entries = {printable(entry.name): entry for entry in dataset.entries}

    def picture(name: str) -> bytes | None:
        try:
            known = evaluation.content.get(name)
            if known is not None and known != entries[name].key():
                return None  # another image by now: the boxes do not belong to it
            return entries[name].load().data
        except (KeyError, HoldfastError):
            return None

    return picture

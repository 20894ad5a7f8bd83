"""The records of a noise suite, one set per option, as files per image need them."""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

from holdfast.core.model import Task
from holdfast.engine.pipelines import read_records
from holdfast.evaluate.classes import Alignment, realign
from holdfast.evaluate.per_image import RecordSet
from holdfast.evaluate.result import CELLS
from holdfast.evaluate.score import Settings
from holdfast.noise.vision.result import NoiseSuite
from holdfast.noise.vision.sweep import CLEAN


def record_sets(suite: NoiseSuite, runs: Path, *, clean: bool = True) -> Iterator[RecordSet]:
    """The records of every option that was run, read from the cells; the column `option` names it."""
    for model in suite.models:
        alignment, settings = Alignment.from_plain(model.alignment), Settings.from_plain(model.settings)
        task = cast(Task, model.task)
        named = {row.label: row for row in model.rows if row.setup}
        if model.combined is not None and model.combined.setup:
            named["combined"] = model.combined
        for option, row in [*([(CLEAN, None)] if clean else []), *named.items()]:
            records = realign(read_records(model.cells(runs / CELLS, row)).records, alignment, task)
            labels = {"model": model.model} if len(suite.models) > 1 else {}
            yield RecordSet(records, task, alignment.names, settings, {**labels, "option": option})

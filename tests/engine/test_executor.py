"""Jobs on processes: what a cell's name depends on, and stages that cannot be sent."""

import dataclasses
import math
import multiprocessing
import sys
import time

import numpy as np
import pytest

from helpers import models as making
from helpers.counter_work import Counting, in_shards
from holdfast.core.errors import BudgetSpent, InputError
from holdfast.core.pipeline import pipeline_of
from holdfast.data.open import open_dataset
from holdfast.engine import executor, workers
from holdfast.engine.executor import choose_executor, silent
from holdfast.engine.pipelines import ImagePipeline, PipelineWork
from holdfast.evaluate.run import EvaluationPlan, evaluate
from holdfast.graph.load import load_model

PLUG_IN = '''
from holdfast import stage


@stage("colour")
def vendor_dim(image):
    """The pixels, darker."""
    return image // {by}
'''


@pytest.fixture
def plan(tmp_path):
    making.classifier(tmp_path)
    making.image_folder(tmp_path / "data", 30)  # two cells
    model = load_model(tmp_path / "tiny.onnx")
    return EvaluationPlan(
        model, open_dataset(tmp_path / "data"), pipeline_of(model.card), runs=tmp_path / "runs"
    )


def dimmed(plan, by):
    pipeline = plan.pipeline.replace(colour=lambda image: (image * by).astype(np.uint8))
    return dataclasses.replace(plan, pipeline=pipeline)


def test_a_local_function_runs_in_this_process_unless_more_were_asked_for(plan):
    assert evaluate(dataclasses.replace(dimmed(plan, 1.0), jobs=0)).result["images"] == 30
    with pytest.raises(InputError, match="--jobs 2: worker processes cannot run this work: a stage is not"):
        evaluate(dataclasses.replace(dimmed(plan, 1.0), jobs=2))


def test_two_functions_of_one_source_do_not_share_cells(plan):
    bright, dark = (evaluate(dimmed(plan, by)).result["metrics"]["top1"] for by in (1.0, 0.0))
    assert dark == 0.5 < bright


def test_a_program_that_cannot_be_read_again_runs_in_this_process(plan, monkeypatch):
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "<stdin>", raising=False)
    assert evaluate(dataclasses.replace(plan, jobs=0)).result["images"] == 30


def test_a_plug_in_is_known_to_other_processes_and_its_source_to_the_cells(plan, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    results = []
    for by in (1, 200):
        (tmp_path / "vendor_plug_in.py").write_text(PLUG_IN.format(by=by))
        sys.modules.pop("vendor_plug_in", None)
        __import__("vendor_plug_in")
        named = dataclasses.replace(plan, pipeline=plan.pipeline.replace(colour="vendor-dim"), jobs=2)
        results.append(evaluate(named).result["metrics"]["top1"])
    assert results[1] == 0.5 < results[0]


def test_a_cell_is_named_by_all_that_can_change_a_number(plan):
    model, pipeline = plan.model, plan.pipeline
    card = model.card

    def name(model, pipeline, *more, **strict):
        return PipelineWork(model, (ImagePipeline(pipeline),), *more, **strict).setups()[0].name

    others = [
        dataclasses.replace(model, sha256="0" * 64),
        *(
            dataclasses.replace(model, card=dataclasses.replace(card, **change))
            for change in (
                {"score": 0.5},
                {"nms_iou": 0.1},
                {"max_detections": 3},
                {"input": dataclasses.replace(card.input, pad=0)},
                {"input": dataclasses.replace(card.input, place="corner")},
                {"head": dataclasses.replace(card.head, options={"activation": "softmax"})},
            )
        ),
    ]
    names = [name(other, pipeline, 2) for other in (model, *others)]
    names += [name(model, pipeline.replace(resize="pillow-box"), 2)]
    names += [name(model, pipeline, 3), name(model, pipeline, 2, 255)]
    assert len(set(names)) == len(names)
    assert name(model, pipeline, 2, strict=True) == names[0]


ENDS = """
import os
from holdfast import stage


@stage("colour")
def vendor_{how}(image):
    \"\"\"Nothing: the process ends, or something nobody expects is raised.\"\"\"
    {what}
"""


@pytest.mark.parametrize(
    ("how", "what", "error", "words"),
    [
        ("dies", "os._exit(7)", workers.WorkerLost, "a worker process ended unexpectedly"),
        ("raises", "raise ZeroDivisionError('by nought')", RuntimeError, "ZeroDivisionError in a worker"),
        (
            "ends",
            "raise EOFError('of a file')",
            RuntimeError,
            "EOFError in a worker process: of a file",
        ),
    ],
)
def test_a_worker_that_ends_or_raises_ends_the_run_and_no_process_is_left(
    plan, tmp_path, monkeypatch, how, what, error, words
):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / f"vendor_{how}.py").write_text(ENDS.format(how=how, what=what))
    __import__(f"vendor_{how}")
    with pytest.raises(error, match=words):
        evaluate(dataclasses.replace(plan, pipeline=plan.pipeline.replace(colour=f"vendor-{how}"), jobs=2))
    assert multiprocessing.active_children() == []


LEAVES = """
import atexit
import multiprocessing
import os
from pathlib import Path
from holdfast import stage

if multiprocessing.parent_process() is not None:
    atexit.register(lambda: Path(os.environ["LEFT"], str(os.getpid())).touch())


@stage("colour")
def vendor_leaves(image):
    \"\"\"The same; what is registered for the end of the process leaves a file.\"\"\"
    return image
"""


def test_what_a_part_registered_for_the_end_is_done_in_every_worker(plan, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("LEFT", str(tmp_path / "left"))
    (tmp_path / "left").mkdir()
    (tmp_path / "vendor_leaves.py").write_text(LEAVES)
    __import__("vendor_leaves")
    evaluate(dataclasses.replace(plan, pipeline=plan.pipeline.replace(colour="vendor-leaves"), jobs=2))
    assert 1 <= len(list((tmp_path / "left").iterdir())) <= 2


def execute(task, shards, jobs, progress=silent, until=math.inf):
    return choose_executor(jobs, len(shards)).run(task, shards, progress, until)


@pytest.mark.parametrize("jobs", [1, 2])
def test_work_that_begins_too_late_says_so(jobs):
    with pytest.raises(BudgetSpent, match="before the first image was finished"):
        execute(Counting(stuck_at=0), in_shards(range(6)), jobs, until=time.monotonic())


def test_a_shard_that_gives_up_ends_the_work_in_this_process():
    class Late(Counting):
        def process(self, state, shard, threads):
            if 3 in shard:
                raise BudgetSpent("late")
            return super().process(state, shard, threads)

    assert execute(Late(), in_shards(range(6), 2), 1) == [(0, 1)]


def test_processes_are_killed_in_the_middle_of_a_shard_and_what_is_finished_is_the_answer(monkeypatch):
    """The end comes once all shards but the stuck one are finished, whenever that is."""
    ends = []

    class Timer:
        daemon = False

        def __init__(self, seconds, end):
            ends.append(end)

        def start(self):
            pass

        cancel = start

    done = []

    def progress(images, found):
        done.append(images)
        if len(done) == 5:
            ends[0]()

    monkeypatch.setattr(executor.threading, "Timer", Timer)
    shards = in_shards(range(6))
    found = execute(Counting(stuck_at=2), shards, 2, progress, until=time.monotonic() + 1e6)
    assert len(done) == 5
    assert found == [(0,), (1,)]  # 3, 4 and 5 are finished too, but not all before them


def test_a_worker_that_is_lost_before_the_end_is_still_an_error():
    def progress(images, found):
        for process in multiprocessing.active_children():
            process.kill()

    with pytest.raises(workers.WorkerLost):
        execute(Counting(stuck_at=2), in_shards(range(6)), 2, progress, until=time.monotonic() + 1e6)

"""The folder of an attack that a page of more is made of."""

import re

from holdfast.attack.plan import AttackPlan, apart, task_of
from holdfast.attack.run import claim
from holdfast.attack.types import Method
from holdfast.audit.cli import MODEL
from holdfast.data.open import open_dataset
from holdfast.evaluate.run import EvaluationPlan, alignment_of
from holdfast.graph.load import load_model


def test_no_distance_is_none_from_python_too(tmp_path):
    plan = EvaluationPlan(load_model(MODEL), open_dataset("signs:0:2", task="detect"))
    setups = {
        features: task_of(AttackPlan(plan, tmp_path, features=features), alignment_of(plan)).setup.name
        for features in ("none", "", "signs")
    }
    assert setups["none"] == setups[""] != setups["signs"]


def test_what_another_version_attacked_is_not_in_the_way(tmp_path, monkeypatch):
    data = open_dataset("signs:0:2", task="detect")
    plan = EvaluationPlan(load_model(MODEL), data)
    wanted = AttackPlan(plan, tmp_path / "attack", Method(black_box=True), features="")
    folders = set()
    for code in ("a", "b", "a"):
        monkeypatch.setattr("holdfast.engine.cells.code_of", lambda kind, code=code: code)
        mine = apart(wanted, alignment_of(plan))
        claim(
            mine.out, task_of(mine, alignment_of(plan)).setup.name, data.entries
        )  # DataError if it is another's
        folders.add(mine.out.name)
    assert len(folders) == 2
    assert all(re.fullmatch("attack-[0-9a-f]{8}", name) for name in folders)

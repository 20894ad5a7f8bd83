"""The whole way from a recipe to a model that loads, and the command line around it."""

import sys
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from holdfast.graph.load import load_model  # noqa: E402
from holdfast.train.loop import Job, Stage  # noqa: E402
from models import __main__ as command  # noqa: E402
from models.signs import (  # noqa: E402
    INPUTS,
    pool,
    recipes,
)
from models.signs.make import Order, make  # noqa: E402


@pytest.fixture
def small_recipes(monkeypatch):
    """Recipes on a few pictures and steps, rendered in this process."""

    def few(folder, render, seed, count, processes=2):
        rows = [render(seed, index) for index in range(8)]
        return pool.Pool({name: np.stack([row[name] for row in rows]) for name in rows[0]}, "few")

    monkeypatch.setattr(pool, "open_pool", few)
    monkeypatch.setattr(recipes, "CERTIFIED_STAGES", recipes.stages(6, side=3, batch=4, rate=1e-3))
    for name in ("SINGLE", "CLASS"):
        monkeypatch.setattr(recipes, f"{name}_STAGES", (Stage("crops", 4, 4, 64, 1e-3, 1e-4),))
    for name in ("YOLO", "FREE", "PLAIN"):
        monkeypatch.setattr(recipes, f"{name}_STAGES", (Stage("windows", 2, 2, 64, 1e-3, 1e-4),))
    monkeypatch.setattr(recipes, "SEG_STAGES", (Stage("scenes", 2, 2, 256, 1e-3, 1e-4),))


@pytest.mark.parametrize("name", list(INPUTS))
def test_made_model_loads_with_its_card_and_is_scored(name, small_recipes, tmp_path):
    said: list[str] = []
    made = make(Order(name, tmp_path / "out", tmp_path / "work", held_out=3), said.append)
    loaded = load_model(tmp_path / "out" / f"{name}.onnx")
    assert loaded.card == made.model.card
    assert loaded.sha256 == made.model.sha256
    assert loaded.card.input == INPUTS[name]
    assert 0 <= made.value <= 1
    assert said[-1].startswith(f"{name}: {made.figure} ")
    assert list((tmp_path / "work").glob(f"{name}-*.pt"))


def test_making_again_from_the_checkpoint_gives_the_same_file(small_recipes, tmp_path):
    files = []
    for run in ("a", "b"):
        make(Order("signs-single", tmp_path / run, tmp_path / "work", held_out=1), len)
        files.append((tmp_path / run / "signs-single.onnx").read_bytes())
    assert files[0] == files[1]


def test_fraction_shortens_every_stage_but_keeps_one_step():
    stages = (Stage("a", 100, 1, 1, 1, 1, warmup=20), Stage("b", 3, 1, 1, 1, 1))
    job = Job("x", torch.nn.Conv2d(1, 1, 1), lambda *_: (), lambda *_: torch.zeros(()), stages, 0)
    short = recipes.shortened(job, 0.1)
    assert short.stages == (replace(stages[0], steps=10, warmup=2), replace(stages[1], steps=1))


def test_unknown_model_is_told_with_the_nearest_name(capsys):
    assert command.main(["signs-yol"]) == 2
    assert "Did you mean 'signs-yolo'?" in capsys.readouterr().err


def test_missing_torch_is_told_with_the_line_that_installs_it(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert command.main(["signs-class", "--out", str(tmp_path), "--work", str(tmp_path)]) == 2
    assert "pip install 'holdfast[train]'" in capsys.readouterr().err


def test_every_recipe_has_an_input_and_a_name_on_the_command_line():
    assert set(recipes.RECIPES) == set(INPUTS) == set(command.NAMES)

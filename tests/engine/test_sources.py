"""Cells and code: what work runs through is in its key, and a cell under another's name is not taken."""

import ast
import shutil
from pathlib import Path

import pytest

from helpers import models as making
from helpers.small_jobs import HOME, JOBS, code_in, evaluated, rewritten, traced, undeclared
from holdfast.core import sources
from holdfast.core.property import Budget
from holdfast.data.open import open_dataset
from holdfast.engine.store import Store
from holdfast.evaluate.run import EvaluationPlan
from holdfast.graph import artifacts as keeping
from holdfast.graph.load import load_model
from holdfast.noise.suite import NoiseSelection
from holdfast.noise.vision.run import NoisePlan
from holdfast.noise.vision.run import measure as measure_noise
from holdfast.noise.vision.run import prepare as prepare_noise
from holdfast.verify.run import verify
from holdfast.verify.vnnlib import property_of, read_vnnlib


def each(*kinds, slow=("train",)):
    """The kinds as parameters; what needs torch is slow."""
    return [pytest.param(kind, marks=[pytest.mark.slow] * (kind in slow)) for kind in kinds]


@pytest.mark.parametrize("kind", each(*JOBS))
def test_every_module_that_work_runs_through_is_declared(kind, tmp_path):
    job, roots = JOBS[kind]
    run = job(tmp_path)
    with traced({code_in(place) for place in roots}) as called:
        run(tmp_path / "runs")
    assert called
    assert undeclared(kind.split(",")[0], called) == []


@pytest.mark.slow
def test_every_module_that_a_proof_runs_through_is_declared(tmp_path):
    model = load_model(making.classifier(tmp_path))
    bounds = [f"(assert (>= X_{i} 0.6))(assert (<= X_{i} 1.0))" for i in range(3 * 16 * 16)]
    names = [*(f"X_{i}" for i in range(3 * 16 * 16)), "Y_0", "Y_1"]
    lines = [*(f"(declare-const {n} Real)" for n in names), *bounds, "(assert (>= Y_0 Y_1))"]
    (tmp_path / "bright.vnnlib").write_text("\n".join(lines))
    with traced({code_in("verify.run:verify")}) as called:
        found = verify(property_of(read_vnnlib(tmp_path / "bright.vnnlib"), model), Budget(60.0))
    assert found.status == "holds"
    assert undeclared("verify", called) == []


# Modules that hand work out, read results or print them: no result depends on them.
AROUND = (
    "engine.execution", "engine.executor", "engine.manifest", "engine.object_store",
    "engine.ray_actors", "engine.workers", "evaluate.run", "evaluate.result", "evaluate.score", "noise.suite",
    "noise.vision", "config.completions", "config.options", "config.parser", "config.output", "report",
    "_version",
)  # fmt: skip
# What a kind's modules import for something else: errors, attacks (which have their own keys), scores.
ASIDE = {
    "signs": ("core",),
    "verify": ("metrics", "stages"),
    "contest": ("attack", "stages.families"),
    "language": ("data.files", "stages.families"),
    "speech": ("stages.families",),
    "train": ("metrics", "noise"),
}


def is_in(name, packages):
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def is_shown(name):
    return any(word.split("_")[-1] in sources.SHOWING for word in name.split("."))


@pytest.fixture(scope="module")
def imports():
    """Module -> modules of ours that it imports, inside functions too, but for types alone."""
    files = {".".join(p.relative_to(HOME).with_suffix("").parts): p for p in Path(HOME).rglob("*.py")}
    found = {}
    for name, file in files.items():
        tree = ast.parse(file.read_bytes())
        typed = {id(inner) for node in ast.walk(tree) if is_typing(node) for inner in ast.walk(node)}
        froms = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and id(n) not in typed]
        named = {f"{n.module}.{a.name}" for n in froms for a in n.names} | {str(n.module) for n in froms}
        found[name] = {n.removeprefix("holdfast.") for n in named} & set(files)
    return found


def is_typing(node):
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


@pytest.mark.parametrize("kind", sources.SOURCES)
def test_what_declared_modules_import_is_declared_too(kind, imports):
    declared = sources.SOURCES[kind]
    assert all(is_in(name, imports) or any(is_in(m, [name]) for m in imports) for name in declared)
    known = (*declared, *AROUND, *ASIDE.get(kind, ()))
    own = [name for name in imports if is_in(name, declared) and (name in declared or not is_shown(name))]
    shown = {m for m in imports if is_shown(m) and m not in declared and not is_in(m, AROUND)}
    used = {(m, other) for m in own for other in imports[m]}
    assert {(m, other) for m, other in used if other in shown or not is_in(other, known)} == set()


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A copy of the source, which a test may change."""
    only = lambda folder, names: [n for n in names if not n.endswith(".py") and "." in n]  # noqa: E731
    return shutil.copytree(HOME, tmp_path_factory.mktemp("copy") / "holdfast", ignore=only)


def forget():
    for cached in (sources.code_of, sources._hash):
        cached.cache_clear()


@pytest.fixture
def changed(package, monkeypatch):
    """A function that makes holdfast one with a change in a module."""
    written = {}

    def change(*modules):
        for file, text in written.items():
            file.write_text(text)
        for module in modules:
            file = package / f"{module.replace('.', '/')}.py"
            written.setdefault(file, file.read_text())
            file.write_text(f"{written[file]}# changed\n")
        monkeypatch.setattr(sources, "PACKAGE", package)
        forget()

    yield change
    monkeypatch.undo()
    for file, text in written.items():
        file.write_text(text)
    forget()


@pytest.fixture
def writes(monkeypatch):
    """The names of kept results, as they are written."""
    found = []
    for module, name in ((Store, "put"), (keeping, "_write")):
        plain = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, plain=plain: found.append(a[-2]) or plain(*a))
    return found


NOT_OURS = ("evaluate.cli", "attack.cli", "attack.page", "evaluate.detect_page", "audit.page", "web.serve")
REDONE = {
    "evaluate": (
        "graph.nms",
        "graph.heads.grids",
        "graph.candidates",
        "stages.decode.libjpeg",
        "data.images",
    ),
    "evaluate, segments": ("metrics.classification", "data.signs.scene"),
    "certify": ("certify.work", "stages.defence", "stages.masks"),
    "certify attack": ("certify.attacked", "attack.random_search", "stages.defence"),
    "attack": ("attack.random_search", "metrics.similarity", "attack.work"),
    "squares": ("audit.squares", "graph.nms"),
    "contest": ("contest.judging", "contest.make", "graph.nms"),
    "language": ("noise.language.model", "noise.language.graph"),
    "speech": ("noise.speech.spectrum", "metrics.speech"),
    "train": ("train.loop", "stages.resize.libraries"),
    "rewrite": ("graph.rewrite.types", "stages.normalise"),
}


PICTURES = {
    "evaluate",
    "certify",
    "certify attack",
    "attack",
    "squares",
    "contest",
    "patched",
    "train",
    "rewrite",
}
EVERY = set(sources.SOURCES)
# A changed module -> the kinds of work whose cells are computed again, and no others.
DEPENDS = {
    "graph.heads.grids": PICTURES | {"verify"},
    "graph.nms": PICTURES | {"verify"},
    "stages.decode.libjpeg": PICTURES,
    "metrics.detection": {"certify attack", "attack", "squares", "contest", "language", "speech"},
    "metrics.classification": {
        "evaluate",
        "certify",
        "certify attack",
        "attack",
        "squares",
        "contest",
        "language",
        "speech",
    },
    "graph.rewrite.types": PICTURES | {"verify", "language", "speech"},
    "stages.deployed": PICTURES,  # calibration
    "engine.cells": EVERY - {"signs", "rewrite", "patched"},
    "attack.masks": {"certify attack", "attack", "squares"},
    "core.fingerprint": EVERY,
    "core.registry": EVERY - {"signs"},
    "report.tables": set(),
    "evaluate.cli": set(),
}


@pytest.mark.parametrize("module", DEPENDS)
def test_a_changed_line_names_the_cells_of_exactly_the_work_that_depends_on_it(module, changed):
    changed()
    before = {kind: sources.code_of(kind) for kind in sources.SOURCES}
    changed(module)
    assert {kind for kind, code in before.items() if sources.code_of(kind) != code} == DEPENDS[module]


@pytest.mark.parametrize("kind", each(*REDONE, slow=("attack", "contest", "language", "speech", "train")))
def test_results_are_made_again_after_a_change_of_code_and_only_then(kind, tmp_path, changed, writes):
    run = JOBS[kind][0](tmp_path)
    changed()
    first = run(tmp_path / "runs")
    assert writes
    writes.clear()
    changed(*NOT_OURS)
    assert run(tmp_path / "runs") == first
    assert writes == []
    for module in REDONE[kind]:
        writes.clear()
        changed(module)
        assert run(tmp_path / "runs") == first
        assert writes, module


@pytest.mark.parametrize(
    "kind", each("evaluate", "attack", "squares", "contest", "language", "speech", "train")
)
def test_cells_under_names_of_others_are_made_again(kind, tmp_path, writes):
    run = JOBS[kind][0](tmp_path)
    first = run(tmp_path / "runs")
    cells = [file for file in sorted((tmp_path / "runs").rglob("*.json")) if is_cell(file)]
    assert len(cells) > 1
    held = [file.read_bytes() for file in cells]
    for file, other in zip(cells, held[1:] + held[:1], strict=True):
        file.write_bytes(other)
    writes.clear()
    assert run(tmp_path / "runs") == first
    assert writes


def is_cell(file):
    return len(file.read_bytes().partition(b"\n")[0]) == 64


def test_rewritten_models_under_names_of_others_are_made_again(tmp_path):
    run = rewritten(tmp_path)
    first = run(tmp_path / "runs")
    for endings in ((".onnx",), (".json",), (".onnx", ".json")):
        for ending in endings:
            one, other = sorted((tmp_path / "runs").glob(f"*{ending}"))
            one.rename(tmp_path / "aside")
            other.rename(one)
            (tmp_path / "aside").rename(other)
        assert run(tmp_path / "runs") == first


def test_noise_audit_and_evaluate_share_cells(tmp_path, writes):
    run = evaluated(tmp_path)
    run(tmp_path / "runs")
    keys = set(writes)
    writes.clear()
    plan = EvaluationPlan(
        load_model(tmp_path / "blobs.onnx"), open_dataset(tmp_path / "data"), runs=tmp_path / "runs"
    )
    measure_noise(prepare_noise(NoisePlan(plan, NoiseSelection(only=("resize=opencv-nearest",)))))
    assert writes
    assert not keys & set(writes)

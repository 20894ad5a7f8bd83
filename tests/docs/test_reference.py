"""The generated reference is complete: commands, options, exit codes, gate names, cards, parts, the API."""

import ast
from pathlib import Path

import generate
import pytest
from generate.commands import value_of
from generate.files import example_of, kind_of
from generate.markdown import INTRO, cell
from generate.parts import KINDS

import holdfast
from holdfast.audit.values import PATTERNS, pattern_of
from holdfast.cli.app import ROOT_OPTIONS, Group, load, root
from holdfast.config.options import fields_of
from holdfast.core import registry
from holdfast.core.errors import EXIT_CODES
from holdfast.experiment.plan import DOES, DatasetEntry, ModelEntry
from holdfast.metrics.rules import RULES
from holdfast.stages.families import families, options


@pytest.fixture(scope="module")
def reference():
    """Name -> text of every page."""
    return dict(generate.all_pages())


def homes():
    """Words and module:function of every command."""
    for word, node in root().commands.items():
        if isinstance(node, Group):
            yield from ((f"{word} {name}", home) for name, home in node.commands.items())
            if node.itself:
                yield word, node.itself
        else:
            yield word, node


@pytest.mark.parametrize(("words", "home"), list(homes()), ids=lambda value: value)
def test_every_command_and_option_is_on_its_page(reference, words, home):
    page = reference[f"commands/{words.split()[0]}.md"]
    assert f"# `holdfast {words}`" in page
    for spec in fields_of(load(home).options):
        assert f"`{spec.label}`" in page
        assert cell(spec.option.help) in page


def test_the_list_of_commands_has_all_and_the_options_of_holdfast_itself(reference):
    page = reference["commands/index.md"]
    assert all(f"({word}.md)" in page for word in root().commands)
    assert all(f"`{option}`" in page for option in ROOT_OPTIONS)


def returned_codes():
    """Every whole number that a function of a command line module returns as it is, or by a condition."""
    home = Path(holdfast.__file__).parent
    for path in [*home.rglob("cli.py"), *home.glob("cli/*.py")]:
        returns = [n.value for n in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(n, ast.Return)]
        parts = [
            part
            for one in returns
            for part in ([one.body, one.orelse] if isinstance(one, ast.IfExp) else [one])
        ]
        yield from (p.value for p in parts if isinstance(p, ast.Constant) and type(p.value) is int)


def test_every_exit_code_is_explained(reference):
    from holdfast.cli import INTERRUPTED
    from holdfast.core.errors import HoldfastError
    from holdfast.verify.cli import EXIT_CODES as VERDICTS

    used = {*returned_codes(), INTERRUPTED, HoldfastError.exit_code, *VERDICTS.values(), 70}
    assert used <= set(EXIT_CODES)
    assert all(f"| `{code}` |" in reference["exit-codes.md"] for code in EXIT_CODES)


def test_every_gate_name_is_listed_with_an_example_that_exists(reference):
    for pattern in PATTERNS:
        assert (
            f"| `{pattern.text}`{' ±' * pattern.interval} | `{example_of(pattern.text)}` |"
            in reference["gates.md"]
        )
        assert pattern_of(example_of(pattern.text)) == pattern


def test_every_key_of_an_experiment_is_listed(reference):
    for shape in (ModelEntry, DatasetEntry, *DOES.values()):
        for spec in fields_of(shape):
            row = f"| `{spec.key}` | {kind_of(spec)} | {value_of(spec)} | {cell(spec.option.help)} |"
            assert row in reference["experiment.md"]


def test_every_field_of_a_card_and_of_a_rule_is_listed(reference):
    for name in (
        "task",
        "classes",
        "size",
        "layout",
        "colour",
        "policy",
        "nms_iou",
        "max_detections",
        "decode",
    ):
        assert f"| `{name}` |" in reference["card.md"]
    assert all(f"| `{name}` |" in reference["rules.md"] for name in RULES)


def test_every_kind_of_part_has_a_page():
    assert set(KINDS) == set(registry._HOMES)


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_registered_part_is_on_the_page_of_its_kind(reference, kind):
    page = reference[f"parts/{kind}.md"]
    for name in registry.names(kind):
        if registry._is_own(registry.part(kind, name)):
            assert f"## `{name}`" in page
            assert cell(registry.part(kind, name).summary) in page


def test_every_noise_option_is_listed(reference):
    for family in families():
        assert f": `{family.name}`" in reference["noise-options.md"]
        assert all(f"`{one.label}`" in reference["noise-options.md"] for one in options(family))


def test_every_public_name_of_the_package_is_in_the_api(reference):
    for name in holdfast.__all__:
        assert (
            name.startswith("_") or f"}} {name}" in reference["api.md"] or f"`{name}`" in reference["api.md"]
        ), name


def test_every_introduction_belongs_to_a_page(reference):
    names = {path.stem for path in INTRO.glob("*.md")}
    assert names <= {*KINDS, *(Path(name).stem for name in reference)}


def test_pages_that_are_gone_are_deleted_and_others_not_rewritten(tmp_path):
    generate.write(tmp_path)
    (tmp_path / "parts" / "old.md").write_text("gone")
    before = (tmp_path / "gates.md").stat().st_mtime_ns
    generate.write(tmp_path)
    assert not (tmp_path / "parts" / "old.md").exists()
    assert (tmp_path / "gates.md").stat().st_mtime_ns == before

"""The schema says what the reader says: same keys, same bounds, same names."""

import re
import tomllib
from pathlib import Path

import jsonschema
import pytest

from holdfast.experiment.plan import DOES, DatasetEntry, ModelEntry, keys_of, schema

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def validator():
    made = schema()
    jsonschema.Draft202012Validator.check_schema(made)
    return jsonschema.Draft202012Validator(made)


def minimal(**condition):
    return {
        "model": [{"path": "net.onnx"}],
        "data": [{"path": "signs"}],
        "condition": [{"do": "evaluate", **condition}],
    }


def test_the_shipped_example_and_that_of_the_documentation_are_valid(validator):
    texts = [(ROOT / "examples" / "experiment.toml").read_text()]
    texts += re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "experiment.md").read_text(), re.DOTALL)
    assert len(texts) >= 2
    for text in texts:
        assert not list(validator.iter_errors(tomllib.loads(text)))


@pytest.mark.parametrize(
    "document",
    [
        {},
        minimal() | {"modell": []},
        minimal() | {"model": []},
        minimal() | {"seed": -1},
        minimal(do="atack"),
        minimal(rule="cocoa"),
        minimal(iou=1.5),
        minimal(pixels=3),
        minimal(stage=[]),
        minimal(stage=["decode=nothing"]),
        minimal(stage=["decode=opencv", "decode=opencv"]),
        minimal(do="attack", pixels=0),
        minimal(do="attack", pixels=1.5),
        minimal(do="verify"),
        minimal(name=""),
    ],
)
def test_what_the_reader_refuses_the_schema_refuses(validator, document):
    assert list(validator.iter_errors(document))


@pytest.mark.parametrize(
    "document",
    [
        minimal(),
        minimal(stage="decode=opencv", noise=["precision=int8"]),
        minimal(do="noise", only=["resize", "precision=int8"]),
        minimal(do="attack", **{"black-box": True, "seconds": 3}),
        minimal(do="verify", spec="a.vnnlib"),
        minimal(do="audit")
        | {"gates": {"min-images": 8, "fail-if": ["verify.violated > 0"], "title": "attack.300px.Se > 0.5"}},
    ],
)
def test_what_the_reader_takes_the_schema_takes(validator, document):
    assert not list(validator.iter_errors(document))


def test_every_field_of_every_condition_is_in_the_schema_with_words():
    tables = {t["title"]: t for t in schema()["properties"]["condition"]["items"]["oneOf"]}
    assert set(tables) == set(DOES)
    for does, shape in DOES.items():
        assert set(tables[does]["properties"]) == {"do", "name", *keys_of(shape)}
        assert all(value["description"] for value in tables[does]["properties"].values())


def test_every_field_is_in_the_documentation():
    lines = (ROOT / "docs" / "experiment.md").read_text().splitlines()
    for shape in (ModelEntry, DatasetEntry, *DOES.values()):
        for key, spec in keys_of(shape).items():
            row = next(line for line in lines if line.startswith(f"| `{key}` |") and spec.option.help in line)
            assert spec.default in (None, "", (), {}) or spec.many or str(spec.default).lower() in row.lower()


def test_defaults_are_those_of_the_functions():
    from pathlib import Path

    from holdfast.attack.cli import attack_plan
    from holdfast.attack.options import AttackSettings
    from holdfast.attack.types import Limits, Method

    plan = attack_plan(None, AttackSettings(), Path(), 0)
    assert (plan.limits, plan.method) == (Limits(), Method())

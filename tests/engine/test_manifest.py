"""Results as JSON and back, by the types of their fields."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from holdfast.core.errors import InputError
from holdfast.engine.manifest import Manifest, folder_of, slug


@dataclass(frozen=True)
class Part:
    name: str
    place: tuple[int, int] | None = None


@dataclass(frozen=True)
class Whole:
    parts: tuple[Part, ...]
    first: Part | None = None
    file: Path = Path("x")
    numbers: dict[str, float] = field(default_factory=dict)
    by_name: dict[str, Part] = field(default_factory=dict)


MANIFEST = Manifest("whole.json", "whole", Whole, "a whole")
WHOLE = Whole((Part("a", (1, 2)), Part("b")), Part("c"), Path("some/where"), {"x": 0.5}, {"d": Part("d")})


@pytest.mark.parametrize("result", [WHOLE, Whole(())])
def test_a_result_is_opened_as_it_was_saved(tmp_path, result):
    path = MANIFEST.save(result, tmp_path / "run")
    assert MANIFEST.open(path) == MANIFEST.open(tmp_path / "run") == result


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"holdfast": 2, "kind": "other"}', '{"holdfast": 2, "kind": "whole"}']
)
def test_another_file_is_one_line(tmp_path, text):
    (tmp_path / "whole.json").write_text(text)
    with pytest.raises(InputError, match=r"expected the whole\.json of a whole, got: "):
        MANIFEST.open(tmp_path)


def test_names_of_folders_fit_any_file_system(tmp_path):
    assert slug("a b/c:d.e_f-g") == "a-b-c-d.e_f-g"
    long = slug("ä" * 300)
    assert len(long.encode()) < 200
    assert long != slug("ä" * 301)
    assert folder_of(tmp_path, "n", [1]) != folder_of(tmp_path, "n", [2])

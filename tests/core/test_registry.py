import pickle

import pytest

from holdfast.core import registry
from holdfast.core.errors import InputError, MissingExtra, UnknownName, one_line


@pytest.fixture
def scratch(monkeypatch):
    monkeypatch.setattr(registry, "_PARTS", dict(registry._PARTS))


def test_the_decorator_returns_the_function_unchanged(scratch):
    def vendor_x(image, size):
        """Vendor X's resize.

        More words.
        """
        return image

    assert registry.stage("resize", speed="fast")(vendor_x) is vendor_x
    part = registry.part("resize", "vendor-x")
    assert part.function is vendor_x
    assert part.summary == "Vendor X's resize."
    assert part.facts == {"speed": "fast"}


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(
        UnknownName, match=r"unknown resize 'pillow-bilinaer'. Did you mean 'pillow-bilinear'\?"
    ):
        registry.lookup("resize", "pillow-bilinaer")


def test_nothing_near_lists_what_there_is():
    with pytest.raises(UnknownName, match=r"Known: .*opencv, pillow"):
        registry.lookup("decode", "zzzzzz")


def test_a_function_is_its_own_choice():
    assert registry.lookup("resize", len) is len


def test_two_functions_cannot_share_a_name(scratch):
    def first():
        pass

    def second():
        pass

    registry.stage("decode", "mine")(first)
    with pytest.raises(InputError, match="already defined"):
        registry.stage("decode", "mine")(second)


def test_functions_of_one_name_from_two_modules_are_two(scratch):
    def vendor(image):
        return image

    registry.stage("colour")(vendor)
    registry.stage("colour")(vendor)  # a module read again
    vendor.__module__ = "__main__"
    with pytest.raises(InputError, match="already defined"):
        registry.stage("colour")(type(vendor)(vendor.__code__, {"__name__": "elsewhere"}, "vendor"))


def test_whichever_comes_first_the_name_is_holdfasts_and_the_other_the_second(scratch):
    def mine():
        pass

    def own():
        pass

    own.__module__ = "holdfast.stages.somewhere"
    said = (
        rf"test_registry.py:{mine.__code__.co_firstlineno}: resize 'taken' is already defined by holdfast "
        r"itself \(holdfast\.stages\.somewhere\); choose another name"
    )
    for name, first, second in (("taken", mine, own), ("taken", own, mine)):
        registry._PARTS.pop(("resize", name), None)
        registry.stage("resize", name)(first)
        with pytest.raises(InputError, match=said):
            registry.stage("resize", name)(second)


def test_every_kind_has_parts_with_a_summary():
    for kind in registry._HOMES:
        for name in registry.names(kind):
            assert registry.part(kind, name).summary, f"{kind} {name} has no docstring"
    assert {"decode", "resize", "infer", "post", "head"} <= set(registry._HOMES)


def test_errors_cross_process_borders():
    for error in (UnknownName("resize", "x", ["y"]), MissingExtra("training", "torch", "torch")):
        back = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
        assert type(back) is type(error)
        assert str(back) == str(error)
        assert back.exit_code == 2


def test_objects_of_one_name_are_told_apart_by_their_classes(scratch):
    class Twice:
        __module__ = "vendor"

        def __call__(self, image):
            return image * 2

    class Half:
        __module__ = "vendor"

        def __call__(self, image):
            return image // 2

    registry.stage("colour", "vendor-object")(Twice())
    registry.stage("colour", "vendor-object")(Twice())  # the same, loaded again
    with pytest.raises(
        InputError, match=r"test_registry.py:\d+: colour 'vendor-object' is already defined by"
    ):
        registry.stage("colour", "vendor-object")(Half())


@pytest.mark.parametrize(
    ("problem", "line"), [(ValueError("one\n  two"), "one two"), (KeyError(), "KeyError")], ids=str
)
def test_an_error_is_one_line_and_never_empty(problem, line):
    assert one_line(problem) == line

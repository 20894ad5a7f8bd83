import functools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import fingerprint, registry
from holdfast.core.fingerprint import generator

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(plain, plain)
def test_equal_values_have_equal_names_and_others_do_not(a, b):
    assert fingerprint.of(a) == fingerprint.of(a)
    if fingerprint.canonical(a) != fingerprint.canonical(b):
        assert fingerprint.of(a) != fingerprint.of(b)


def test_mapping_order_does_not_matter_but_list_order_does():
    assert fingerprint.of({"a": 1, "b": 2}) == fingerprint.of({"b": 2, "a": 1})
    assert fingerprint.of([1, 2]) != fingerprint.of([2, 1])


def test_arrays_count_by_content_shape_and_type():
    a = np.arange(6, dtype=np.float32)
    assert fingerprint.of(a) == fingerprint.of(a.copy())
    assert fingerprint.of(a) != fingerprint.of(a.reshape(2, 3))
    assert fingerprint.of(a) != fingerprint.of(a.astype(np.float64))


def test_functions_and_partials_are_told_apart():
    def f(x):
        return x + 1

    def g(x):
        return x + 2

    assert fingerprint.of_function(f) != fingerprint.of_function(g)
    one, two = functools.partial(f, 1), functools.partial(f, 2)
    assert fingerprint.of_function(one) != fingerprint.of_function(two)


def test_functions_of_one_source_differ_by_closure_defaults_and_owner():
    def dimmed(by, other=None):
        return lambda image: (image * by, other)

    def with_default(by):
        def dim(image, factor=by):
            return image * factor

        return dim

    class Dimmer:
        def __init__(self, by):
            self.by = by

        def dim(self, image):
            return image * self.by

    for make in (dimmed, with_default, lambda by: Dimmer(by).dim, Dimmer):
        name = fingerprint.of_function
        assert name(make(0.5)) == name(make(0.5))
        assert name(make(0.5)) != name(make(0.25))
    assert fingerprint.of_function(dimmed(1, None)) != fingerprint.of_function(dimmed(None, 1))


def test_functions_without_source_differ_by_their_constants():
    one, two = (eval(f"lambda x: x + {n}") for n in (1, 2))  # noqa: S307 - as typed at a prompt
    assert fingerprint.of_function(one) != fingerprint.of_function(two)


def test_a_script_has_one_name_in_all_processes():
    def f(x):
        return x

    f.__module__ = "__main__"
    here = fingerprint.of_function(f)
    f.__module__ = "__mp_main__"
    assert fingerprint.of_function(f) == here


def test_dataclasses_paths_and_bytes():
    @dataclass(frozen=True)
    class Point:
        x: int
        where: Path

    assert fingerprint.of(Point(1, Path("a"))) == fingerprint.of(Point(1, Path("a")))
    assert fingerprint.of(b"x") != fingerprint.of("x")
    with pytest.raises(TypeError, match="cannot fingerprint"):
        fingerprint.of(object())


def test_files(tmp_path):
    (tmp_path / "f").write_bytes(b"hold" * 1000)
    assert fingerprint.of_file(tmp_path / "f") == fingerprint.of_bytes(b"hold" * 1000)


def test_callables_that_have_no_hash_have_a_name():
    @dataclass
    class Wrapped:
        function: object
        by: int

        def __call__(self, image):
            return self.function(image) * self.by

    def resize(image):
        return image

    one, other = (functools.update_wrapper(Wrapped(resize, by), resize) for by in (1, 1))
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)
    assert fingerprint.of_function(one) == fingerprint.of_function(other)
    assert "resize" in fingerprint.of_function(one)


def test_callable_dataclasses_are_named_by_their_class_and_fields():
    @dataclass(frozen=True)
    class Times:
        by: int

        def __call__(self, image):
            return image * self.by

    @dataclass(frozen=True)
    class Plus:
        by: int

        def __call__(self, image):
            return image + self.by

    @dataclass(frozen=True)
    class Told:
        by: int
        folder: str

        def __call__(self, image):
            return image * self.by

        def fingerprint(self):
            return {"by": self.by}

    many = [Times(1), Times(2), Plus(1), Told(1, "a"), Told(2, "a")]
    assert len({fingerprint.of({"stage": one}) for one in many}) == 5
    assert len({fingerprint.of_function(one) for one in many}) == 5
    assert fingerprint.of(Told(1, "a")) == fingerprint.of(Told(1, "b"))
    assert fingerprint.of(Times(1)) == fingerprint.of(Times(1))


def test_a_fingerprint_that_is_no_function_is_a_field():
    class Mine:
        def __init__(self, fingerprint):
            self.fingerprint = fingerprint

        def __call__(self, image):
            return image

    one, other = (fingerprint.of_function(Mine(text)) for text in ("v1", "v2"))
    assert one != other


PART = """
from holdfast import stage


def darker(image):
    return image // {by}


@stage("colour")
def vendor_dim(image):
    \"\"\"The pixels, darker.\"\"\"
    return darker(image)
"""


def test_a_users_function_is_named_by_the_whole_file_it_is_defined_in(tmp_path):
    names = []
    for by in (2, 3, 2):
        (tmp_path / "part.py").write_text(PART.format(by=by))
        (part,) = registry.load_parts(tmp_path / "part.py")
        names.append(fingerprint.of_function(part.function))
    assert names[0] == names[2] != names[1]


def test_sealed_data_is_found_under_its_key_alone():
    content = fingerprint.sealed("key", b"data\nmore")
    assert fingerprint.unsealed("key", content) == b"data\nmore"
    assert fingerprint.unsealed("other", content) is None
    assert fingerprint.unsealed("key", content[:-1]) is None
    assert fingerprint.unsealed("key", b"") is None


def test_a_generator_depends_on_seed_and_names_only():
    first = generator(1, "noise", 3).random(4)
    assert (first == generator(1, "noise", 3).random(4)).all()
    assert (first != generator(2, "noise", 3).random(4)).any()
    assert (first != generator(1, "noise", 4).random(4)).any()


def test_a_file_name_of_any_bytes_has_its_generator():
    odd = b"a\xff.jpg".decode("utf-8", "surrogateescape")
    assert generator(0, odd).random() == generator(0, odd).random()
    assert generator(0, odd).random() != generator(0, "a.jpg").random()

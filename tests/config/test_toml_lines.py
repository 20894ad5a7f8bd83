"""Lines of TOML: every key and item is found where it stands, whatever the text around it."""

import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.config.toml_lines import line_of, lines_of

DOCUMENT = """\
# [[model]] in a comment
title = \"\"\"
[[model]]
path = "no key"\"\"\"
other = '''
x = 1
''' # behind
"quoted.key" = 1
a.b . "c d" = [1,
  2, # ] in a comment
  "]", [3,
4]]

[[model]]
path = "a # no comment"

[[model]]
map = { stop = "x", "two words" = "y" }
[model.deep]
x = 1979-05-27 07:32:00
[[model.deep.rows]]
y = 1
[[model.deep.rows]]
y = 2
[[model]]
[table . "with space"]
z = { p = [ { q = 1 }, { q = 2 } ] }
"""

WHERE = {
    ("title",): 2,
    ("other",): 5,
    ("quoted.key",): 8,
    ("a", "b", "c d"): 9,
    ("a", "b", "c d", 0): 9,
    ("a", "b", "c d", 1): 10,
    ("a", "b", "c d", 2): 11,
    ("a", "b", "c d", 3): 11,
    ("a", "b", "c d", 3, 1): 12,
    ("model", 0): 14,
    ("model", 0, "path"): 15,
    ("model", 1): 17,
    ("model", 1, "map", "two words"): 18,
    ("model", 1, "deep"): 19,
    ("model", 1, "deep", "x"): 20,
    ("model", 1, "deep", "rows", 0, "y"): 22,
    ("model", 1, "deep", "rows", 1, "y"): 24,
    ("model", 2): 25,
    ("table", "with space", "z", "p", 1, "q"): 27,
}


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_every_key_is_found_on_its_line(newline):
    text = DOCUMENT.replace("\n", newline)
    tomllib.loads(text)
    lines = lines_of(text)
    assert {path: lines.get(path) for path in WHERE} == WHERE


def test_what_is_not_there_is_named_by_the_table_around_it():
    lines = lines_of(DOCUMENT)
    assert line_of(lines, ("model", 1, "nothing")) == 17
    assert line_of(lines, ("model", 1, "map", "nothing")) == 18
    assert line_of(lines, ("nowhere", 3)) == 0
    assert line_of(lines, ()) == 0


@pytest.mark.parametrize("text", ["[[a", "a = ", "= 3", "a = [1, 2", 'a = "', "]" * 50, "[a]\nb ! 3", "\x00"])
def test_a_text_that_is_no_toml_ends_with_what_was_found(text):
    assert all(line >= 1 for line in lines_of(text).values())


def test_brackets_nested_deeply_do_not_end_the_scan_badly():
    assert lines_of("x = 1\na = " + "[" * 100_000)["x",] == 1


KEYS = st.sampled_from(["a", "b-c", '"d e"', "'f.g'", '"\\u0041"'])
SCALARS = st.sampled_from(
    [
        "1",
        "-2.5e3",
        "true",
        '"# no"',
        "'x'",
        '"a\\"b"',
        "''",
        '"""x\n\n[y]"""',
        "'''\n'''",
        '""""q"""""',
        "inf",
    ]
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3).map(lambda items: "[\n" + ", # ]\n".join(items) + "\n]"),
    max_leaves=5,
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.lists(KEYS, min_size=1, max_size=2), VALUES), max_size=6), st.integers(0, 3))
def test_a_key_of_ones_own_is_found_behind_anything(pairs, blank):
    """Whatever stands before it, the line of the last key is the number of lines before it."""
    text = ""
    for number, (keys, value) in enumerate(pairs):
        text += f"[[t{number}]]\n" + " . ".join(keys) + f" = {value} # it\n" + "\n" * blank
    text += "[last]\nkey = 1\n"
    tomllib.loads(text)
    assert lines_of(text)["last", "key"] == text.count("\n")

"""The comparison as text, Markdown and page: the sentence first, every row, names escaped."""

import re
from dataclasses import replace

import pytest

from helpers.audit import better_audit, sample_audit
from helpers.runs import attack, attempt, evaluation, record
from holdfast.audit.result import save
from holdfast.compare.page import page, text, write
from holdfast.compare.run import compare_runs
from holdfast.core.errors import OutputError

NAMES = [f"{n}.jpg" for n in range(20)]  # enough for rows of single classes


@pytest.fixture
def evaluations(tmp_path):
    a = evaluation(tmp_path, "first", [record(n) for n in NAMES])
    b = evaluation(tmp_path, "second", [record(n, (0,) if i < 6 else (0, 1)) for i, n in enumerate(NAMES)])
    return compare_runs(a, b)


@pytest.fixture
def audits(tmp_path):
    save(sample_audit(), tmp_path / "a")
    save(better_audit(), tmp_path / "b")
    return compare_runs(tmp_path / "a", tmp_path / "b")


def test_the_sentence_is_the_first_line(evaluations):
    lines = text(evaluations).splitlines()
    assert lines[0] == f"{evaluations.summary} {evaluations.next_step}"
    counts = "2 worse, 0 better, 0 not significant, 1 identical. Largest change: AP of square"
    assert f"Numbers of B against A: {counts}" in lines[0]
    assert lines[4].startswith("worse ")  # worse first
    assert "identical: AP of round" in text(evaluations)
    assert "an object detected in A, missed in B: 0.jpg, 1.jpg" in text(evaluations)


def test_markdown_is_a_table(evaluations):
    rows = [line for line in text(evaluations, markdown=True).splitlines() if line.startswith("|")]
    assert rows[0].startswith("| B is | number | A | B | B − A |")
    assert rows[2].startswith("| worse | AP of square | 100.00 |")


def test_the_page_has_the_sentence_the_chart_and_every_row(evaluations):
    made = page(evaluations, "holdfast compare first second")
    assert f'<p class="verdict">{evaluations.summary} {evaluations.next_step}</p>' in made
    assert "second against first" in made
    assert "points worse in B" in made
    # the two rows that are worse, drawn strong, for a desk and for a phone
    assert made.count('class="span loss"') == 4
    table = re.search(r'<section id="rows".*?</section>', made, re.S)[0]
    assert 'class="sortable' in table
    for change in evaluations.changes:
        assert f'<th scope="row">{change.about.what}</th>' in table
    assert "holdfast compare first second" in made
    assert "http://" not in made.replace("http://www.w3.org", "")


def test_without_paired_intervals_the_two_stated_ones_are_drawn(audits):
    made = page(audits)
    assert "A and B, each with its own 95% interval" in made
    assert "resize=opencv-nearest: undecided" in made
    assert "precision=int8: same" not in made  # nothing to see
    assert "no paired interval: the folder of a run is not next to its audit" in made
    assert "clean.map50" in made


def test_what_gates_read_is_printed_where_it_differs(audits):
    said = text(audits)
    assert re.search(r"clean\.map50 +0\.91 +0\.93", said)
    assert "clean.images" not in said
    assert "clean.images" in page(audits)


def test_names_are_escaped(tmp_path):
    bad = '<img src=x onerror="alert(1)">.jpg'
    a = attack(tmp_path / "a", [attempt(n, (0,)) for n in (bad, *NAMES)])
    b = attack(tmp_path / "b", [attempt(n) for n in (bad, *NAMES)])
    found = compare_runs(a, b)
    assert bad in found.lists[0].names
    assert "<img src=x" not in page(found)
    steered = replace(found, lists=(replace(found.lists[0], names=("\x1b[31m.jpg",)),))
    assert "\x1b" not in text(steered)


def test_a_folder_is_no_page(evaluations, tmp_path):
    with pytest.raises(OutputError, match="is a folder"):
        write(evaluations, tmp_path)


def test_a_chart_of_many_rows_says_what_it_leaves_out(evaluations):
    change = evaluations.changes[0]
    many = tuple(replace(change, about=replace(change.about, what=f"row {n}")) for n in range(70))
    made = page(replace(evaluations, changes=many))
    assert "The first 60 of 70; all are in the table." in made
    assert ">row 69</th>" in made


def test_a_count_of_verdicts_has_the_smallest_n_behind_it(evaluations):
    card = r'<li( class="few")?>\s*<span class="name">(\w+)</span>(.*?)</li>'
    first, *others = evaluations.changes
    few = replace(evaluations, changes=(replace(first, images=12), *others))
    for comparison, mark, basis in ((evaluations, "", "n = 20"), (few, ' class="few"', "n = 12, indication")):
        worse, better = re.findall(card, page(comparison), re.DOTALL)[:2]
        assert worse[:2] == (mark, "worse")
        assert f'<small class="basis">{basis}</small>' in worse[2]
        assert better[:2] == ("", "better")
        assert "basis" not in better[2]  # no number behind it
    assert "significant; 12 to 20 images" in page(few)

"""The commands and scripts that the README and the tutorial show can be run."""

import shlex

import pytest

from helpers.book import DOCS, ROOT, blocks, commands, furnish, pages, run_block
from holdfast.cli.app import find_command, load
from holdfast.config.options import fields_of
from holdfast.config.parser import parse
from holdfast.core.errors import HoldfastError

RUN = (ROOT / "README.md", DOCS / "tutorial.md")
FLAGS = {
    f"--{spec.key}"
    for words in (["evaluate", "x"], ["noise", "x"])
    for spec in fields_of(load(find_command(words)[1]).options)
}


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_every_block_says_how_it_is_run(page):
    assert {block.pace for block in blocks(page)} <= {"quick", "slow", "no"}
    assert all(block.miniature for block in blocks(page))


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_quick_blocks_run(page, tmp_path):
    run_page(page, ("quick",), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_all_blocks_run(page, tmp_path):
    run_page(page, ("quick", "slow"), tmp_path)


def run_page(page, paces, folder):
    furnish(folder)
    for block in blocks(page):
        if block.pace in paces:
            done = run_block(block, folder)
            assert done.returncode == 0, f"{block.miniature}\n{done.stdout}\n{done.stderr}"


def shown():
    """Every holdfast command of every page, with the page."""
    found = [
        (page, line) for page in pages() for block in blocks(page, ("sh",)) for line in commands(block.text)
    ]
    return [pytest.param(line, id=f"{page.name}: {line[:60]}") for page, line in found]


@pytest.mark.parametrize("line", shown())
def test_every_command_in_the_book_exists_with_its_options(line):
    _, *words = shlex.split(line.replace(" > holdfast.json", ""))
    _, home, rest = find_command(words)
    assert isinstance(home, str), line
    try:
        parse(load(home).options, rest)
    except HoldfastError as problem:
        pytest.fail(f"{line}: {problem}")

"""Contests made: which images, in what order, what is written, and that a half-made one goes on."""

import dataclasses
import json
import zipfile

import numpy as np
import pytest

from helpers import models as making
from helpers import tiny_contest as staging
from helpers.contest import write_rules
from helpers.tiny_contest import IMAGES, made, materials, setup
from holdfast.contest import make as making_contests
from holdfast.contest.contest import open_contest
from holdfast.contest.make import PUBLIC, make, open_setup, publish_rules
from holdfast.contest.options import InitOptions
from holdfast.contest.rules import Member, Rules, Vote, read_rules
from holdfast.core.errors import DataError, InputError, UnknownName
from holdfast.data.open import open_dataset


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return materials(tmp_path_factory.mktemp("materials"))


@pytest.fixture(scope="module")
def folder(source, tmp_path_factory):
    place = tmp_path_factory.mktemp("made") / "contest"
    made(place, source)
    return place


def test_everything_a_contest_needs_is_there(folder):
    there = {p.name for p in folder.iterdir()}
    assert there == {
        "rules.toml",
        "images",
        "images.zip",
        "truth.json",
        "manifest.json",
        "models",
        "cache",
        "public",
    }
    rules = read_rules(folder)
    assert [m.name for m in rules.mimic.members] == ["narrow", "wide"]
    assert (rules.mimic.least, rules.images, rules.pixels) == (2, IMAGES, 300)
    assert 0 < rules.distance_max < float("inf")
    assert sorted(p.name for p in (folder / "images").iterdir()) == [f"{n}.png" for n in range(1, IMAGES + 1)]
    with zipfile.ZipFile(folder / "images.zip") as archive:
        assert archive.namelist() == [f"images/{n}.png" for n in range(1, IMAGES + 1)]
        assert archive.read("images/3.png") == (folder / "images" / "3.png").read_bytes()


def test_the_folder_is_a_data_set_with_boxes_in_the_contests_size(source, tmp_path):
    from holdfast.core.types import Size

    contest = made(tmp_path / "large", source, size=Size(128, 96), images=3)
    data = open_dataset(tmp_path / "large")
    assert (data.format, len(data), data.classes) == ("coco", 3, ("blob",))
    originals = {e.name: e.load().truth for e in open_dataset(source / "data").entries}
    order = json.loads((tmp_path / "large" / "manifest.json").read_text())["order"]
    for entry, row in zip(data.entries, order, strict=True):
        before = originals[row["source"]].xyxy
        assert np.allclose(entry.load().truth.xyxy, before * [2, 1.5, 2, 1.5])
    assert contest.shots[0].before().shape == (96, 128, 3)


def test_the_order_follows_from_the_seed_alone(source, folder, tmp_path):
    made(tmp_path / "again", source)
    made(tmp_path / "other", source, seed=1)
    same, others = tmp_path / "again", tmp_path / "other"
    for name in ("images.zip", "truth.json", "rules.toml", "manifest.json", "public/rules.toml"):
        assert (same / name).read_bytes() == (folder / name).read_bytes(), name
    assert (others / "truth.json").read_bytes() != (folder / "truth.json").read_bytes()


def test_images_without_a_recognised_target_are_left_out(source, tmp_path):
    """With a card of other anchors the model's box is too large for every true box."""
    card = making.DETECT_CARD.replace("[16, 16]", "[40, 40]")
    making.detector(tmp_path, "huge", card)
    spoiled = setup(tmp_path / "c", source, model=str(tmp_path / "huge.onnx"), members="")
    with pytest.raises(DataError, match="only 0 of the 9 images of data have a target that huge recognises"):
        make(spoiled, staging.quiet, jobs=1)
    assert list((tmp_path / "c").iterdir()) == [], "nothing half-written"


def test_too_few_images_are_reported_before_any_model_is_opened(source, tmp_path, monkeypatch):
    def opened(name):
        raise AssertionError(f"{name} was opened")

    monkeypatch.setattr(making_contests, "load_model", opened)
    with pytest.raises(DataError, match=r"--images 10: data has only 9 images; use at most 9"):
        made(tmp_path / "c", source, images=10)
    assert not (tmp_path / "c").exists()


def test_a_mimic_model_that_finds_nothing_is_refused(source, tmp_path):
    making.detector(tmp_path, "huge", making.DETECT_CARD.replace("[16, 16]", "[48, 48]"))
    blind = setup(tmp_path / "c", source, members=str(tmp_path / "huge.onnx"))
    with pytest.raises(DataError, match=r"the mimic model \(at least 2 of 2 agree\) has mAP 0"):
        make(blind, staging.quiet, jobs=1)


def test_distances_that_are_given_are_kept(source, tmp_path):
    contest = made(tmp_path / "c", source, images=2, distance_min=0.5, distance_max=7.0)
    assert (contest.rules.distance_min, contest.rules.distance_max) == (0.5, 7.0)


class Killed(BaseException):
    """What no handler of errors catches: as if the process had been killed."""


@pytest.mark.parametrize("when", ["choose", "clean"])
def test_a_killed_one_goes_on_and_ends_the_same(source, folder, tmp_path, when):
    import contextlib

    seen = []

    @contextlib.contextmanager
    def dying(what, total):
        def step(done, found):
            if what == when:
                raise Killed

        yield step

    @contextlib.contextmanager
    def watching(what, total):
        yield lambda done, found: seen.append((what, done, found))

    place = tmp_path / "c"
    with pytest.raises(Killed):
        made(place, source, phase=dying)
    assert not (place / "rules.toml").exists()
    made(place, source, phase=watching)
    assert seen[0] == ("choose", 9, 9), "candidates looked at are not looked at again"
    if when == "clean":
        assert seen[1] == ("clean", IMAGES, IMAGES)
    for name in ("images.zip", "truth.json", "rules.toml"):
        assert (place / name).read_bytes() == (folder / name).read_bytes(), name


def test_a_folder_with_other_things_is_refused(source, folder, tmp_path):
    with pytest.raises(InputError, match="got one with a finished contest"):
        made(folder, source)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"got one with 'notes\.txt' in it"):
        made(tmp_path, source)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    (tmp_path / "notes.txt").unlink()
    begun = setup(tmp_path, source)
    from holdfast.contest.make import claim

    assert claim(begun) is False
    assert claim(begun) is True
    with pytest.raises(InputError, match=r"an incomplete contest with other options \(seed\)"):
        made(tmp_path, source, seed=3)


def test_what_is_public_does_not_name_the_hidden_members(folder):
    public = folder / "public"
    files = {p.relative_to(public).as_posix() for p in public.rglob("*") if p.is_file()}
    images = {f"images/{n}.png" for n in range(1, IMAGES + 1)}
    models = {"models/narrow.onnx", "models/narrow.toml"}
    assert files == {"rules.toml", "images.zip", "truth.json", "ENTRY.md"} | images | models
    told = (public / "ENTRY.md").read_text()
    for word in ("advimages_TEAM.zip", f"advimages/{IMAGES}.png", "队伍名", "at most 300 changed pixels"):
        assert word in told
    rules = read_rules(public)
    assert (rules.mimic.hidden, [m.name for m in rules.mimic.members]) == (1, ["narrow"])
    hidden = read_rules(folder).mimic.members[1]
    text = (public / "rules.toml").read_text()
    assert hidden.name not in text.split("[single]")[1]
    assert hidden.sha256 not in text
    with pytest.raises(InputError, match="only the organisers' own folder can score"):
        open_contest(public)


def test_bad_setups_are_told_before_anything_is_written(source, tmp_path):
    place = tmp_path / "c"
    for options, said in [
        ({"vote": 3}, "--vote: expected 1 to 2"),
        ({"pixels": 5000}, "--pixels: an image has only 4096"),
        ({"distance_min": 2.0, "distance_max": 1.0}, "--distance-max: expected more"),
    ]:
        with pytest.raises(InputError, match=said):
            setup(place, source, **options)
    with pytest.raises(UnknownName, match=r"unknown AP rule 'vocc'\. Did you mean 'voc'"):
        setup(place, source, rule="vocc")
    classifier = making.classifier(tmp_path)
    with pytest.raises(DataError, match="tiny: expected a detector, got a classifier"):
        setup(place, source, members=str(classifier), images=2)
    assert not place.exists()


def test_a_default_member_that_is_not_shipped_is_one_line(tmp_path, monkeypatch):
    from holdfast.graph import load

    kept = [name for name in load.shipped() if name not in ("signs-free", "signs-plain")]
    monkeypatch.setattr(load, "shipped", lambda: kept)
    with pytest.raises(InputError, match="signs-free: this default hidden member is not shipped"):
        open_setup(InitOptions(folder=tmp_path / "c", images=2))


def test_the_published_rules_follow_and_name_no_hidden_member(tmp_path):
    single, hidden = Member("a", "models/a.onnx", "1" * 64), Member("secret", "models/s.onnx", "2" * 64)
    rules = Rules("c", 3, single, Vote((single, hidden), 2), "signs", "3" * 64, "FD-signs", 5.0)
    write_rules(rules, tmp_path)
    assert publish_rules(tmp_path, rules)
    assert not publish_rules(tmp_path, rules), "nothing changed"
    assert publish_rules(tmp_path, dataclasses.replace(rules, pixels=2000))
    assert "secret" not in (tmp_path / PUBLIC / "rules.toml").read_text()
    seen = read_rules(tmp_path / PUBLIC)
    assert (seen.pixels, seen.mimic.hidden) == (2000, 1)

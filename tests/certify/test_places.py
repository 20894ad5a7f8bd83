"""Attacks on the wrapped detector: certified places hold, wrong certificates are found."""

import dataclasses

import numpy as np
import pytest

from certify.test_run import plan_of, subject
from certify.test_soundness import PLANES
from helpers.visible import World, certificate_of
from holdfast.certify import attacked
from holdfast.certify.attacked import WrappedJudge, attack_place, sampled
from holdfast.certify.certificate import ImageCertificate
from holdfast.certify.result import CERTIFICATIONS
from holdfast.certify.run import certify as certify_run
from holdfast.core.errors import InputError, UnsoundCertificate
from holdfast.core.types import Boxes, Size
from holdfast.stages.defence import MaskDefence
from holdfast.stages.masks import HalfPlanes, PatchSize

assert subject  # the fixture
FEW = MaskDefence((HalfPlanes(2),), alpha=0.3, beta=0.0)


class Obeying(World):
    """A detector that obeys a visible trigger, for pixels of any value."""

    def attacked(self, attack):
        """What the attacker reports; nothing for other values."""
        return super().attacked(attack if attack < self.attacks else 0)


WORLD = Obeying(Size(24, 20), ((9, 6, 17, 14),), (0,), 0.3)


def outcomes(world, proof, side, count, wanted=(True, False)):
    """(certified, hidden) of attacked places of a world."""
    rng = np.random.default_rng(0)
    pipeline = dataclasses.replace(world.open().pipeline, defence=PLANES)
    machine = dataclasses.replace(world.open(), pipeline=pipeline)
    judge = WrappedJudge(machine, np.array([0]), PLANES.score, 0.0)
    target = Boxes(np.array(world.boxes, float), np.array(world.classes))
    found = []
    for _, x, y, certified in sampled(proof, side, 0.0, count, rng):
        if certified not in wanted:
            continue
        result = attack_place(judge, world.image, target, (x, y, side), rng)
        assert result is not None
        found.append((certified, result[0]))
    return found


def smaller(monkeypatch, by):
    """Certificates whose vulnerable rectangle is too small by some pixels on its left and upper side."""
    whole = ImageCertificate.certifying

    def certifying(self, *args, **options):
        masks = whole(self, *args, **options)
        return masks + np.array([0, 0, by, by]) * (masks[:, :2] == 0).all(axis=1, keepdims=True)

    monkeypatch.setattr(ImageCertificate, "certifying", certifying)


def test_no_certified_place_is_broken_and_others_are():
    found = outcomes(WORLD, certificate_of(WORLD, PLANES), 4, 12)
    assert [hidden for certified, hidden in found if certified] == [False] * 12
    others = [hidden for certified, hidden in found if not certified]
    assert len(others) == 12
    assert sum(others) >= 8


def test_a_certificate_that_is_too_large_is_caught(monkeypatch):
    smaller(monkeypatch, 1)
    found = outcomes(WORLD, certificate_of(WORLD, PLANES), 7, 16, wanted=(True,))
    assert any(hidden for _, hidden in found)


def test_half_of_the_certified_places_are_next_to_the_rectangle():
    proof = certificate_of(WORLD, PLANES)
    zone = proof.vulnerable(0, 6)
    near = attacked.grown(zone, 1)
    places = [(x, y) for _, x, y, ok in sampled(proof, 6, 0.0, 40, np.random.default_rng(1)) if ok]
    inside = [near.left <= x < near.right and near.top <= y < near.bottom for x, y in places]
    assert len(places) == 40
    assert sum(inside) >= 15


def small_plan(subject, **changes):
    """A certification of one image with few masks, and attacks."""
    one = dataclasses.replace(subject, dataset=subject.dataset.first(1))
    return dataclasses.replace(plan_of(one), defence=FEW, **changes)


def test_the_result_has_the_attacks_and_opens_again(subject):
    result = certify_run(small_plan(subject, attack=1))
    assert [one.hidden for one in result.attacked if one.certified] == [False]
    assert CERTIFICATIONS.open(result.folder).attacked == result.attacked
    assert "Attacks on the wrapped detector" in result._page()


def test_a_wrong_certificate_stops_the_run(subject, monkeypatch):
    monkeypatch.setattr(ImageCertificate, "is_certified", lambda *a, **k: np.array([True]))
    with pytest.raises(UnsoundCertificate, match="a certificate is wrong") as problem:
        certify_run(small_plan(subject, attack=4, patch=PatchSize(60)))
    assert problem.value.exit_code == 70
    assert "\n" not in str(problem.value)


def test_an_attack_under_another_threat_is_refused(subject):
    with pytest.raises(InputError, match="--attack: puts patches on decoded pixels"):
        certify_run(plan_of(subject, attack=1, threat="scene"))

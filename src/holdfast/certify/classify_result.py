"""The result of certifying a classifier: what one and two rounds of masking prove, per image and in all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from holdfast.certify.threat import WORDS
from holdfast.core.result import Result, look_up
from holdfast.engine.manifest import Manifest, to_plain
from holdfast.engine.records import FailedImage
from holdfast.evaluate.run import CERTIFIED_CLASSES
from holdfast.report.html import document
from holdfast.report.parts import Card, Document, Section, table_figure
from holdfast.report.tables import Cell, Column, Table, many, table_of


@dataclass(frozen=True)
class ImageVerdict:
    """One image: its class, the answers without a patch, and what no patch can change."""

    name: str
    label: str
    vanilla: str
    wrapped: str
    one_round: bool  # every mask gives the true class: a patch cannot change it without a disagreement
    two_rounds: bool  # so does every pair of masks: double masking gives the true class under every patch
    alarm: bool  # the masks disagree, without a patch
    passes: int


@dataclass(frozen=True)
class ClassAccuracy:
    """Accuracies on the same images."""

    images: int
    vanilla: float
    wrapped: float
    points_lost: float  # with the paired 95% interval
    low: float
    high: float
    one_round: float  # certified: no patch gives another answer without an alarm
    two_rounds: float  # certified: no patch gives another answer
    alarms: float  # images without a patch on which the masks disagree


@dataclass(frozen=True, repr=False)
class ClassCertification(Result):
    """The certified accuracy of a classifier under one defence."""

    about: dict[str, Any]
    accuracy: ClassAccuracy
    images: tuple[ImageVerdict, ...] = field(repr=False)
    failed: tuple[FailedImage, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """All numbers as plain values."""
        return CLASSIFIED.to_plain(self)

    def _summary(self) -> str:
        about, numbers = self.about, self.accuracy
        name = f"{about['model']['name']} on {about['data']['name']}: {about['patch']} patch"
        return f"{name}, certified accuracy {numbers.two_rounds:.3f}, {many(numbers.images, 'image')}"

    def _rows(self) -> list[dict[str, Any]]:
        return [to_plain(image) for image in self.images]

    def _page(self) -> str:
        return str(look_up("certify.classify_result:page")(self))


CLASSIFIED = Manifest(
    CERTIFIED_CLASSES, "certify-classes", ClassCertification, "a certification of a classifier"
)


def class_tables(result: ClassCertification) -> list[Table]:
    """The accuracies, without a patch and certified."""
    numbers, about = result.accuracy, result.about
    lost = f"{numbers.points_lost:.2f} points lost, 95% interval {numbers.low:.2f} to {numbers.high:.2f}"
    clean = Table(
        ["model", Column("accuracy", 4), Column("masks disagree", 4)],
        [["as it is", numbers.vanilla, None], ["wrapped", numbers.wrapped, numbers.alarms]],
        f"Without a patch: {many(numbers.images, 'image')}; {lost}",
    )
    rows: list[list[Cell]] = [
        ["two rounds", numbers.two_rounds, "the answer is right under every patch"],
        ["one round", numbers.one_round, "the answer is right, or the masks disagree (an alarm)"],
    ]
    caption = f"Certified accuracy: one patch of {about['patch']}, anywhere, with any content"
    return [clean, Table(["masking", Column("certified", 4), "under every patch"], rows, caption)]


def class_limits(result: ClassCertification) -> list[str]:
    """What the certificates do not say."""
    about = result.about
    limits = [
        f"The certified patch {WORDS[about['threat']]}; masks are grey ({about['grey']}).",
        "One square patch of at most the stated size is covered, not two, and not another change.",
    ]
    if result.accuracy.images < 20:
        limits.append(f"An indication only: {many(result.accuracy.images, 'image')}.")
    return limits


def page(result: ClassCertification) -> str:
    """The certification as one self-contained HTML file."""
    about, numbers = result.about, result.accuracy
    count = numbers.images
    cards = (
        Card("certified, two rounds", numbers.two_rounds, "share of images", 3, count),
        Card("certified, one round", numbers.one_round, "right or an alarm", 3, count),
        Card("accuracy wrapped", numbers.wrapped, f"as it is {numbers.vanilla:.3f}", 3, count),
        Card("masks disagree", numbers.alarms, "without a patch", 3, count),
    )
    listed = table_of([to_plain(image) for image in result.images], "Images")
    figures = tuple(table_figure("", table) for table in class_tables(result))
    return document(
        Document(
            title=f"Certified patches: {about['model']['name']}",
            subject=(about["model"]["name"], about["data"]["name"]),
            facts=(
                ("images", str(count)),
                ("patch", about["patch"]),
                ("masks", about["masks"]),
                ("passes per image", f"{about['passes']:g}"),
                ("seconds per image", f"{about['seconds_per_image']:g}"),
                ("created", about["created"]),
            ),
            verdict=(
                f"No patch of {about['patch']} can change the answer of the wrapped classifier on "
                f"{numbers.two_rounds:.1%} of the images, where it is right."
            ),
            next_step=f"Run it with this defence: holdfast evaluate … --defend masks:{about['defence']}.",
            cards=cards,
            rule=f"One square patch of {about['patch']} with any content {WORDS[about['threat']]}, anywhere.",
            command=about["command"],
            sections=(
                Section("numbers", "Certified accuracy", figures),
                Section("images", "Images", (table_figure("", listed),)),
                Section("limits", "What is not proven", (), " ".join(class_limits(result))),
            ),
            kind="certify",
        )
    )

"""The result of certification: certificates per object, certified recall, and what the defence costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.certify.certificate import REGIONS, AttackedPlace, ImageCertificate
from holdfast.core.result import Result, look_up
from holdfast.engine.manifest import Manifest, to_plain
from holdfast.engine.records import FailedImage
from holdfast.evaluate.run import CERTIFIED
from holdfast.stages.masks import PatchSize

# Patches of the tables, besides the one that is asked for.
PATCHES = tuple(PatchSize(n) for n in (8, 16, 32, 64, 128)) + tuple(
    PatchSize(share=share) for share in (0.005, 0.01, 0.02, 0.05)
)
OVERLAPS = (0.0, 0.25, 0.5)
AREAS = {"small": (0.0, 32.0**2), "medium": (32.0**2, 96.0**2), "large": (96.0**2, float("inf"))}


@dataclass(frozen=True)
class CertifiedRecall:
    """The certified objects of a region, for one patch, overlap and way of matching classes."""

    patch: str
    overlap: float
    matched: bool
    objects: str  # all, or of one size
    region: str
    certified: int  # objects that no place of the region endangers
    of: int  # objects with a place in the region
    places: float  # the mean share of certified places

    @property
    def recall(self) -> float | None:
        """The share of certified objects; None without an object."""
        return self.certified / self.of if self.of else None


@dataclass(frozen=True)
class CleanEffect:
    """What the defence does to images without a patch, on the same images."""

    images: int
    objects: int
    vanilla: float | None  # AP at IoU 0.5
    wrapped: float | None
    points_lost: float | None  # of AP, with the paired 95% interval
    low: float | None
    high: float | None
    recall: float | None  # share of objects that the model detects at the score threshold, IoU ≥ 0.5
    wrapped_recall: float | None
    added: float  # boxes per image
    added_false: float  # those that match no object of their class with IoU ≥ 0.5


@dataclass(frozen=True)
class Thresholds:
    """The calibrated threshold, on how many images, and the added false boxes per image there."""

    alpha: float
    limit: float | None  # of added false boxes per image; None: the threshold was given
    images: int
    added_false: float | None
    source: str


@dataclass(frozen=True, repr=False)
class Certification(Result):
    """The certificates of all objects of a dataset, under one defence."""

    about: dict[str, Any]
    thresholds: Thresholds
    clean: CleanEffect
    rows: tuple[CertifiedRecall, ...]
    images: tuple[ImageCertificate, ...] = field(repr=False)
    failed: tuple[FailedImage, ...] = ()
    notes: tuple[str, ...] = ()
    attacked: tuple[AttackedPlace, ...] = ()  # to check the certificates; empty without --attack

    def recall(
        self,
        region: str = "everywhere",
        patch: str | None = None,
        overlap: float | None = None,
        *,
        matched: bool = True,
        objects: str = "all",
    ) -> CertifiedRecall | None:
        """The certified recall of a region; by default of the patch and overlap that were asked for."""
        key = (patch or self.about["patch"], self.about["overlap"] if overlap is None else overlap)
        wanted = (*key, matched, objects, region)
        rows = (r for r in self.rows if (r.patch, r.overlap, r.matched, r.objects, r.region) == wanted)
        return next(rows, None)

    def to_dict(self) -> dict[str, Any]:
        """All numbers and certificates as plain values."""
        return CERTIFICATIONS.to_plain(self)

    def _summary(self) -> str:
        about = self.about
        parts = []
        for region in REGIONS:
            row = self.recall(region)
            if row is not None and row.recall is not None:
                parts.append(f"{region} {row.recall:.3f}")
        patch = f"{about['patch']} patch"
        return f"{about['model']['name']} on {about['data']['name']}: {patch}, certified {', '.join(parts)}"

    def _page(self) -> str:
        return str(look_up("certify.page:page")(self))

    def _rows(self) -> list[dict[str, Any]]:
        return [{**to_plain(row), "recall": row.recall} for row in self.rows]


CERTIFICATIONS = Manifest(CERTIFIED, "certify", Certification, "a certification")


def certified_recall(
    images: Sequence[ImageCertificate],
    patch: PatchSize,
    overlap: float,
    *,
    matched: bool,
    objects: str = "all",
) -> list[CertifiedRecall]:
    """The certified recall of each region over all objects, or over those of one size.

    Images without a place for the patch do not count.
    """
    low, high = AREAS.get(objects, (0.0, float("inf")))
    counts: dict[str, list[float]] = {region: [] for region in REGIONS}
    for image in images:
        if not patch.fits(image.size):
            continue
        side = patch.side(image.size)
        for number, one in enumerate(image.objects):
            if not low <= one.area < high:
                continue
            for region, (places, open_) in image.verdicts(number, side, overlap, matched=matched).items():
                if places:
                    counts[region].append(1 - open_ / places)
    return [
        CertifiedRecall(
            patch=str(patch), overlap=overlap, matched=matched, objects=objects, region=region,
            certified=sum(share == 1.0 for share in shares), of=len(shares),
            places=sum(shares) / len(shares) if shares else 0.0,
        )
        for region, shares in counts.items()
    ]  # fmt: skip

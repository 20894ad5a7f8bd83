"""The tables of a certification."""

from __future__ import annotations

from holdfast.certify.certificate import REGIONS
from holdfast.certify.result import AREAS, Certification
from holdfast.certify.threat import WORDS
from holdfast.report.tables import Cell, Column, Table, many

# Of certified objects, by the place of the patch.
REGION_COLUMNS: tuple[Column | str, ...] = tuple(Column(region) for region in REGIONS)


def clean_table(result: Certification) -> Table:
    """The model and the wrapped model on images without a patch."""
    clean, thresholds = result.clean, result.thresholds
    columns = [
        Column("model"), Column("AP50", 4), Column("detected", 4),
        Column("added boxes per image"), Column("of them false"),
    ]  # fmt: skip
    rows: list[list[Cell]] = [
        ["as it is", clean.vanilla, clean.recall, None, None],
        ["wrapped", clean.wrapped, clean.wrapped_recall, clean.added, clean.added_false],
    ]
    lost = "n/a" if clean.points_lost is None else f"{clean.points_lost:.2f} points of AP50 lost"
    span = "" if clean.low is None else f", 95% interval {clean.low:.2f} to {clean.high:.2f}"
    score = f"masked boxes count above {result.about['mask_score']:.3f}"
    if thresholds.limit is not None:
        score += f", calibrated for at most {thresholds.limit:g} added false boxes per image"
        score += f" on {thresholds.source}"
    caption = f"Without a patch: {many(clean.images, 'image')}, {many(clean.objects, 'object')}"
    return Table(columns, rows, f"{caption}; {lost}{span}; {score}")


def region_table(result: Certification) -> Table:
    """The certified recall of the patch that was asked for, by the place of the patch."""
    rows: list[list[Cell]] = []
    for region in REGIONS:
        own, other = result.recall(region), result.recall(region, matched=False)
        if own is not None and other is not None:
            rows.append([region, own.recall, other.recall, own.places, own.of])
    columns = [Column(name) for name in ("patch is", "certified", "any class", "places certified", "objects")]
    caption = (
        f"Share of objects that no patch of {result.about['patch']} in the region can hide: a reported box "
        f"covers more than {result.about['overlap']:g} of the object"
    )
    return Table(columns, rows, caption)


def size_table(result: Certification) -> Table:
    """The certified recall by patch size."""
    patches = dict.fromkeys(r.patch for r in result.rows)
    rows: list[list[Cell]] = []
    for patch in patches:
        found = [result.recall(region, patch) for region in REGIONS]
        if found[-1] is not None and found[-1].of:
            rows.append([patch, *(row.recall if row else None for row in found), found[-1].of])
    return Table(("patch", *REGION_COLUMNS, "objects"), rows, "Certified recall by patch size")


def overlap_table(result: Certification) -> Table:
    """The certified recall by overlap threshold."""
    overlaps = sorted({r.overlap for r in result.rows})
    rows: list[list[Cell]] = []
    for overlap in overlaps:
        found = [result.recall(region, overlap=overlap) for region in REGIONS]
        rows.append([f"{overlap:g}", *(row.recall if row else None for row in found)])
    caption = f"Certified recall by overlap T, patch of {result.about['patch']}"
    return Table(("T", *REGION_COLUMNS), rows, caption)


def area_table(result: Certification) -> Table:
    """The certified recall by object size."""
    rows: list[list[Cell]] = []
    for name in AREAS:
        found = [result.recall(region, objects=name) for region in REGIONS]
        if found[-1] is not None and found[-1].of:
            rows.append([name, *(row.recall if row else None for row in found), found[-1].of])
    caption = f"Certified recall by object size (COCO's areas), patch of {result.about['patch']}"
    return Table(("objects", *REGION_COLUMNS, "n"), rows, caption)


def attack_table(result: Certification) -> Table:
    """The attacks on the wrapped detector at certified and at other places."""
    rows: list[list[Cell]] = []
    for name, certified in (("certified", True), ("not certified", False)):
        tried = [one for one in result.attacked if one.certified == certified]
        rows.append([name, sum(one.hidden for one in tried), len(tried), sum(one.queries for one in tried)])
    columns = [Column(name) for name in ("places", "object hidden", "attacked", "queries")]
    caption = (
        f"Attacks on the wrapped detector with a patch of {result.about['patch']}, at sampled places. A "
        "hidden object at a certified place would have stopped the run; the search is short, so more "
        "of the other objects may be vulnerable"
    )
    return Table(columns, rows, caption)


def tables(result: Certification) -> list[Table]:
    """All tables, in the order in which they are printed."""
    found = [
        clean_table(result), region_table(result), size_table(result), overlap_table(result),
        area_table(result),
    ]  # fmt: skip
    return found + [attack_table(result)] * bool(result.attacked)


def where_text(result: Certification) -> str:
    """Where the patch is assumed to be, and what that leaves out."""
    about = result.about
    covered = f"The certified patch {WORDS[about['threat']]}"
    if about["threat"] == "scene":
        return f"{covered}; camera, lens and light, which also change pixels around a patch, are not covered."
    if about["threat"] == "input":
        return f"{covered}: a patch in the image, which a resize spreads over more pixels, is not covered."
    return f"{covered}: a patch in the scene, which compression spreads over blocks, needs --threat scene."


def not_proven(result: Certification) -> list[str]:
    """What the certificates do not say, one sentence each."""
    few = len([one for image in result.images for one in image.objects])
    limits = [
        "A certified object keeps a reported box over it; its IoU with the object may be below 0.5.",
        "The patch may add false boxes anywhere, or move and enlarge boxes: this is not bounded.",
        "One patch is covered, not two at once, nor a patch that does not fit into the square.",
        where_text(result),
    ]
    if few < 20:
        limits.append(f"An indication only: {many(few, 'object')}.")
    return limits

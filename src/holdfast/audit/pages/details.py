"""The sections of every engine on the audit page, and the maps of the black square."""

from __future__ import annotations

import html
import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from holdfast.attack.page import sections as attack_sections
from holdfast.attack.page import shape_of
from holdfast.attack.run import decoded
from holdfast.audit.square_map import SquareMap, axes, describe_square, proofs_of
from holdfast.core.errors import HoldfastError
from holdfast.core.types import Boxes
from holdfast.evaluate.page import pictures, task_sections, trouble_section
from holdfast.noise.suite import NoiseSelection
from holdfast.noise.vision.page import combination_section
from holdfast.noise.vision.show import Feature, features, image_section, noise_examples
from holdfast.patchbench.page import colours, embedded, scale_bar
from holdfast.patchbench.positions.sweep import SafetyRule
from holdfast.report.charts.svg import element, label, tip
from holdfast.report.gallery import Picture, gallery, thumbnail
from holdfast.report.html import data_uri
from holdfast.report.parts import Figure, Section, table_figure
from holdfast.report.tables import Cell, Column, Table

if TYPE_CHECKING:
    from holdfast.audit.state import AuditState

SHOWN = "decode=fast-idct decode=ffmpeg resize=opencv-nearest resize=opencv-bilinear colour=nv12"
ORDER = ("combined noise", "noise images", "attacked images", "square maps", "evaluation")
WORST = 900_000  # bytes for the worst images
MOST = 12  # maps of the square on the page; the table has all
BYTES = 1_200_000  # of all maps on the page together
_WIDE, _TALL = 640.0, 480.0  # a map fits into this, in its own units
_LATTICE = 160  # points of a map along its longer side
# Opacity of a position, of 255: as safe as without a square, just safe, unsafe.
_CLEAR, _FAINT, _STRONG = 20, 130, 190
_GREY = (150, 150, 150)


def sections(state: AuditState, until: float = math.inf) -> list[Section]:
    """Combined noise, images with noise, attacked images, maps of the square, then the evaluation's sections.

    After `until` (of time.monotonic) no further sections are built; the last one names those missing.
    """
    makers = {  # the most important first
        "combined noise": _combination,
        "attacked images": _attack,
        "square maps": _squares,
        "evaluation": _evaluation,
        "noise images": _noise_pictures,
    }
    built: dict[str, list[Section]] = {}
    for name, make in makers.items():
        if time.monotonic() < until:
            built[name] = make(state)
    listed = [section for name in ORDER for section in built.get(name, ())]
    missing = ", ".join(name for name in makers if name not in built)
    lead = f"Skipped on this page: {missing} (time budget reached). Run `holdfast report` to add them."
    return [*listed, Section("skipped", "Skipped", (), lead)] if missing else listed


def _combination(state: AuditState) -> list[Section]:
    if not state.combination or not state.noise:
        return []
    return [combination_section(state.combination, state.noise.images)]


def _noise_pictures(state: AuditState) -> list[Section]:
    """The effect of noise on the first readable image and on the features."""
    model, prepared = state.plan.plan.model, state.prepared
    if prepared is None:
        return []
    entry = state.plan.plan.dataset.entries[0]
    # Without options that were too slow to calibrate.
    built = {candidate.option.label for candidate in prepared.candidates}
    labels = tuple(label for label in ("ceil=ceil", "precision=int8-minmax") if label in built)
    reserved, folder = prepared.context.reserved.items, prepared.context.folder
    try:
        picture = entry.load().data
        maps = list(features(model, picture, NoiseSelection(only=labels), reserved, folder)) if labels else []
        examples = list(noise_examples(picture, model, NoiseSelection(only=tuple(SHOWN.split()))))
    except HoldfastError:  # an unreadable image, a graph that cannot be rewritten: reported in the tables
        return []
    return [image_section(examples, [m for m in maps if isinstance(m, Feature)], entry.name)]


def _attack(state: AuditState) -> list[Section]:
    """The pictures of the patch, then those of the scattered pixels."""
    clean, built = decoded(state.plan.plan), list[Section]()
    for number, result in enumerate(filter(None, (state.patched, state.outcome))):
        kind, *pictures = attack_sections(result, clean, 4, f"attack-{number}")
        built += [replace(kind, title=f"Attack: {shape_of(result)}"), *pictures]
    return built


def _squares(state: AuditState) -> list[Section]:
    entries = {entry.name: entry for entry in state.plan.plan.dataset.entries}
    return square_sections(state.maps, lambda name: entries[name].load().data if name in entries else None)


def _evaluation(state: AuditState) -> list[Section]:
    if state.evaluation is None:
        return []
    parts, worst = task_sections(state.evaluation)
    images = [gallery(worst, pictures(state.evaluation), WORST)] if worst.shots else []
    trouble = trouble_section(state.evaluation)
    return [*parts, *images, *([trouble] if trouble else [])]


def square_sections(
    maps: Sequence[SquareMap], pictures: Picture, most: int = MOST, budget: int = BYTES
) -> list[Section]:
    """The maps as a section: at most `most` of them, within `budget` bytes; empty without maps."""
    if not maps:
        return []
    ordered = sorted(maps, key=lambda m: (-m.unsafe.mean(), -np.inf if m.least is None else m.least, m.image))
    figures: list[Figure] = []
    for m in ordered[:most]:
        drawn = _picture(m, thumbnail(pictures(m.image)))
        if len(drawn) > budget:
            break
        budget -= len(drawn)
        figures.append(Figure(m.image, drawn, _words(m)))
    legend = scale_bar(maps[0].threshold, "safe: lowest score of a target that is still detected")
    hidden = len(maps) - len(figures)
    note = f"{hidden} of {len(maps)} maps are not shown to keep the page small; the table has all."
    if figures:
        figures.insert(0, Figure("", legend, "Colours of all maps. Grey: not decided.", wide=True))
    name = "Black squares in numbers"
    figures.append(table_figure("", table_of(ordered), note if hidden else "", name=name, wide=True))
    return [Section("squares", "Black square", tuple(figures), _lead(maps))]


def table_of(maps: Sequence[SquareMap]) -> Table:
    """One row per map."""
    rows: list[list[Cell]] = [  # the proof of a map has its numbers
        [p.image, p.answer, p.members, p.tried, p.unsafe, m.clean, p.margin,
         "" if p.where is None else f"{p.where[0]}, {p.where[1]}", p.note]
        for m, p in zip(maps, proofs_of(maps), strict=True)
    ]  # fmt: skip
    columns: list[Column | str] = [
        "image", "answer", "positions", "decided", "unsafe", Column("clean score", 3),
        Column("margin", 3, "Lowest score of a target at any position minus the threshold; hidden below 0."),
        Column("worst x, y", note="Column, row of the square's top left pixel."), "note",
    ]  # fmt: skip
    return Table(columns, rows)


def _lead(maps: Sequence[SquareMap]) -> str:
    counts = Counter(m.answer for m in maps)
    unsure = f", {counts['unknown']} not decided" if counts["unknown"] else ""
    return (
        f"{describe_square(maps).capitalize()}, all of them run through the training pipeline. It hides a "
        f"target in {counts['violated']} of {len(maps)} images; {counts['holds']} hold at every "
        f"position{unsure}. Each position is coloured at the centre of its square; strong colours are "
        "unsafe. The black square marks the worst position. Worst images first."
    )


def _words(m: SquareMap) -> str:
    text = {"violated": "violated", "holds": "holds at every position", "unknown": "not decided"}[m.answer]
    if m.answer == "violated":
        text += f" at {int(m.unsafe.sum())} of {m.scores.size} positions"
    if m.least is not None and m.where is not None:
        text += f"; lowest score {m.least:.3f} at x {m.where[0]}, y {m.where[1]}, clean {m.clean:.3f}"
    return f"{text}{'; ' + m.note if m.note else ''}."


def _picture(m: SquareMap, jpeg: bytes | None) -> str:
    unit = min(_WIDE / m.size.width, _TALL / m.size.height)
    wide, tall = m.size.width * unit, m.size.height * unit
    if jpeg is None:
        parts = [label(wide / 2, tall / 2, "image not available", class_="absent middle")]
    else:
        source = data_uri(jpeg, "image/jpeg")
        parts = [element("image", href=source, x=0, y=0, width=wide, height=tall, preserveAspectRatio="none")]
    half = m.grid.side / 2 * unit
    parts.append(embedded(_heat(m), wide - 2 * half, tall - 2 * half, half, half))
    if isinstance(m.targets, Boxes):
        for x1, y1, x2, y2 in (m.targets.xyxy * unit).tolist():
            place = {"x": x1, "y": y1, "width": max(x2 - x1, 1.0), "height": max(y2 - y1, 1.0)}
            parts += [element("rect", class_="under", **place), element("rect", class_="mark truth", **place)]
    if m.where is not None:
        x, y = m.where  # the black square at the worst position, with a white outline
        place = {"x": x * unit, "y": y * unit, "width": 2 * half, "height": 2 * half}
        ring = element("rect", fill="#000000", stroke="#ffffff", stroke_width="2", **place)
        parts.append(element("g", tip(f"worst position: x {x}, y {y}"), ring))
    what = html.escape(f"{m.image}: {_words(m)}")
    box = f"0 0 {wide:g} {tall:g}"
    return element("svg", element("title", what), *parts, class_="picture", viewBox=box, role="img")


def _heat(m: SquareMap) -> NDArray[np.uint8]:
    """The scores as RGBA pixels: each point has the colour of the nearest position."""
    columns, rows = axes(m.size, m.grid)
    ends = max(int(columns[-1]), 1), max(int(rows[-1]), 1)
    points = [max(1, round(_LATTICE * end / max(ends))) for end in ends]
    across, down = (  # for each point the number of the start nearest to it
        np.abs(np.linspace(0, end, count)[:, None] - starts[None, :]).argmin(axis=1)
        for end, count, starts in zip(ends, points, (columns, rows), strict=True)
    )
    doubt, unsafe = np.isnan(m.scores), m.unsafe
    painted = np.where(doubt[..., None], _GREY, colours(m.scores, SafetyRule(m.threshold, strict=True)))
    share = (np.nan_to_num(m.scores) - m.threshold) / max(m.clean - m.threshold, 1e-9)
    safe = _FAINT + np.clip(share, 0.0, 1.0) * (_CLEAR - _FAINT)
    cover = np.where(unsafe | doubt, _STRONG, safe)
    whole = np.concatenate([painted, cover[..., None]], axis=2).astype(np.uint8)
    return np.ascontiguousarray(whole[down][:, across])

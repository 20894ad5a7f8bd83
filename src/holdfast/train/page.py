"""The page of `holdfast train compare`: the paper's Fig. 4, points lost by family after each mitigation."""

from pathlib import Path

from holdfast.engine.manifest import now
from holdfast.noise.page import loss_point
from holdfast.noise.vision.result import ModelNoise, NoiseRow, NoiseSuite, summarize_family
from holdfast.noise.vision.tables import family_title, groups_of
from holdfast.report.charts.forest import ForestGroup, ForestPoint, forest
from holdfast.report.html import document, write_page
from holdfast.report.parts import Card, Document, Figure, Section, about_section, table_figure
from holdfast.train.tables import families_table

_READING = (
    "One group per noise family, one line per training: the points lost by the worst option of the family, "
    "with the paired 95% interval over images. Grey: not significant."
)


def page(suite: NoiseSuite, model: str, command: str = "") -> str:
    """One HTML file with Fig. 4 as a chart and its numbers as a table."""
    groups = [
        ForestGroup(family_title(g), [_point(noise, g) for noise in suite.models]) for g in groups_of(suite)
    ]
    chart = forest(groups, title="Points lost after each mitigation", desc=_READING)
    images = max((noise.images for noise in suite.models), default=0)
    table = families_table(suite, model)
    figures = (
        Figure(f"Worst option of each noise family, n = {images}", chart, _READING, wide=True),
        table_figure("", table, name="Mean and worst points lost", wide=True),
    )
    cards = [
        Card(noise.model, 100 * noise.clean, "clean top-1", 2, noise.images) for noise in suite.models[:6]
    ]
    return document(
        Document(
            title=f"Mitigations of system noise: {model} on {suite.data}",
            subject=(model, suite.data),
            facts=(("images", str(images)), ("trainings", str(len(suite.models))), ("date", now())),
            cards=tuple(cards),
            command=command,
            kind="mitigations",
            sections=(
                Section("mitigations", "Noise after each mitigation (Fig. 4)", figures, f"{table.caption}."),
                about_section([], suite.versions),
            ),
        )
    )


def _point(noise: ModelNoise, group: str) -> ForestPoint:
    rows = [row for row in noise.rows if row.group == group]
    measured = [row for row in rows if row.outcome == "measured" and row.points_lost is not None]
    if not measured:
        family = rows[0].family if rows else group
        words = summarize_family(rows, family).words
        return ForestPoint(noise.model, None, words=words or "not run")
    worst: NoiseRow = max(measured, key=lambda row: row.harm)
    return loss_point(noise.model, worst, worst.images, f"{worst.label}, n = {worst.images}")


def write(suite: NoiseSuite, model: str, out: Path, command: str) -> Path:
    """Write the page, whole or not at all, and return its path."""
    return write_page(page(suite, model, command), out)

"""The tables and the page of a diagnosis: where deployment differs from training, and the points lost."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from holdfast.diagnose.dump import size_text
from holdfast.diagnose.layers import LayerDiagnosis, LayerError
from holdfast.diagnose.losses import DeploymentLoss
from holdfast.diagnose.predicted import PredictionDiagnosis
from holdfast.diagnose.run import Diagnosis
from holdfast.diagnose.stages import StageDifference, first_difference
from holdfast.diagnose.target import InputDiagnosis
from holdfast.diagnose.unlabelled import MEASURES, DeploymentAgreement
from holdfast.evaluate.difference import COUNTED
from holdfast.metrics.points import facing, interval_text, is_gain, lost_text, significance
from holdfast.noise.vision.tables import metric_label
from holdfast.report.charts.forest import ForestGroup, ForestPoint, forest
from holdfast.report.charts.lines import ChartLine, line_chart
from holdfast.report.html import document, picture_uri, write_page
from holdfast.report.parts import Card, Document, Figure, Section, table_figure
from holdfast.report.tables import Cell, Table, many, to_html, to_text

LISTED_LAYERS = 12  # layers in the table of the terminal
MOST_BROKEN = 200
EQUIVALENT = (
    "Equivalent: choices that give exactly the same values when they replace or extend those of the row, so "
    "that this dump cannot distinguish them. The row shows the one closest to the training pipeline."
)
MOST_EQUIVALENT = 8  # equivalent choices named in a line of the terminal
STAGE_NAMES = {"post": "post-process"}


def to_texts(found: Diagnosis) -> list[str]:
    """The diagnosis as it is printed: tables, then a summary."""
    parts = [to_text(stage_table(found.stages))] if found.stages else []
    if found.layers is not None:
        parts.append(to_text(layer_table(found.layers, LISTED_LAYERS)))
    if found.loss is not None:
        parts.append(to_text(loss_table(found.loss)))
    if found.agreement is not None:
        parts.append(to_text(agreement_table(found.agreement)))
    parts += [match_text(table) for table in found.dumps]
    text = summary(found)
    if found.layers is not None or (not found.stages and found.loss is None):
        targets = found.input, found.predictions, found.layers
        lines = [line for part in targets if part for line in part.lines]
        text = "\n".join([*lines, *([_next_step(found).strip()] if lines else [text])]).strip()
    broken = found.loss.broken if found.loss else found.agreement.moved if found.agreement else ()
    if broken:
        more = f" and {len(broken) - 10} more" if len(broken) > 10 else ""
        text += f"\n{'broken ' if found.loss else 'changed'}  {', '.join(broken[:10])}{more}"
    if found.calibration is not None:
        measured = found.loss or found.agreement
        shares = measured.differences if measured else ()
        shown = any(share.note == found.calibration.how for share in shares)  # in the table of losses
        method = "" if shown or not found.calibration.how else f"; method: {found.calibration.how}"
        text += f"\nnote     integer precisions calibrated on {found.calibration.on}{method}"
    return [*parts, text.strip()] if text else parts


def stage_table(stages: Sequence[StageDifference]) -> Table:
    """The outputs of every stage in the two pipelines, compared."""
    columns = ["stage", "images that differ", "largest difference", "mean difference", "values that differ"]
    rows: list[list[Cell]] = []
    for s in stages:
        sizes = size_text(s.largest), size_text(s.mean)
        rows.append(
            [STAGE_NAMES.get(s.stage, s.stage), f"{s.differ} of {s.images}", *sizes, f"{s.share:.2%}"]
        )
    return Table(columns, rows, "Output of each stage: training pipeline and deployment compared")


def loss_table(found: DeploymentLoss) -> Table:
    """The points each difference loses alone, and the points recovered if only it is fixed."""
    columns = ["difference", "points lost alone", "95% interval", "recovered if fixed", "95% interval "]
    columns += [COUNTED[found.task][0], "notes"]
    rows: list[list[Cell]] = [
        [
            s.label,
            f"{s.points_lost:z.2f}",
            interval_text(s.low, s.high),
            f"{s.points_recovered:z.2f}",
            interval_text(s.recovered_low, s.recovered_high),
            f"{s.changed} of {many(found.images, 'image')}",
            s.note,
        ]
        for s in found.differences
    ]
    if not any(s.note for s in found.differences):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    text = "lost by each difference alone, and recovered if only that difference is fixed"
    return Table(columns, rows, f"Percentage points of {metric_label(found)} {text}, n = {found.images}")


def agreement_table(found: DeploymentAgreement) -> Table:
    """The agreement with training if one difference remains alone, and if only it is fixed."""
    columns = ["difference", "agreement alone", "95% interval", "agreement if fixed", "95% interval "]
    columns += [COUNTED[found.task][0], "notes"]
    rows: list[list[Cell]] = []
    for s in found.differences:
        alone, fixed = f"{s.low:.4f} to {s.high:.4f}", f"{s.fixed_low:.4f} to {s.fixed_high:.4f}"
        changed = f"{s.changed} of {many(found.images, 'image')}"
        rows.append([s.label, f"{s.alone:.4f}", alone, f"{s.fixed:.4f}", fixed, changed, s.note])
    if not any(s.note for s in found.differences):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    what = f"Agreement of predictions with the training pipeline ({MEASURES[found.task]})"
    return Table(columns, rows, f"{what}, n = {found.images} without labels")


def match_text(table: Table) -> str:
    """The table of a dump for a terminal, with the equivalent choices in lines below it."""
    lines = [to_text(Table(table.columns[:-1], [row[:-1] for row in table.rows], table.caption))]
    for text in dict.fromkeys(str(row[-1]) for row in table.rows if row[-1]):
        same, rows = text.split(", "), ", ".join(str(row[0]) for row in table.rows if row[-1] == text)
        more = (
            f" and {len(same) - MOST_EQUIVALENT} more (all in --json)" if len(same) > MOST_EQUIVALENT else ""
        )
        lines.append(f"note     equivalent to row {rows}: {', '.join(same[:MOST_EQUIVALENT])}{more}")
    return "\n".join(lines)


def summary(diagnosis: Diagnosis) -> str:
    """The diagnosis in two or three sentences, and what to do next."""
    stages, found = diagnosis.stages, diagnosis.loss
    apart, text = first_difference(stages), ""
    targets = [part.verdict for part in (diagnosis.input, diagnosis.predictions, diagnosis.layers) if part]
    if targets and (not stages or diagnosis.layers):
        return f"{' '.join(targets)}{_next_step(diagnosis)}"
    if apart is not None:
        far = "in shape" if math.isinf(apart.largest) else f"by at most {size_text(apart.largest)}"
        stage = STAGE_NAMES.get(apart.stage, apart.stage)
        text = f"First stage that differs: {stage}, in {apart.differ} of {apart.images} images {far}."
    elif stages:
        text = f"All stages are bit-identical on {many(stages[0].images, 'image')}."
    if diagnosis.agreement is not None:
        return f"{text} {_agreement_text(diagnosis.agreement)}{_next_step(diagnosis)}".strip()
    if found is None:
        return f"{text}{_next_step(diagnosis)}".strip()
    verb = "rises" if is_gain(found.points_lost) else "falls" if found.points_lost > 0 else "changes"
    text += (
        f" {metric_label(found)} {verb} from {100 * found.train:z.2f} to {100 * found.deploy:z.2f}: "
        f"{lost_text(found.points_lost)}, 95% interval "
        f"{interval_text(*facing(found.points_lost, found.low, found.high))}, "
        f"{significance(found.low, found.high, found.images)}; {COUNTED[found.task][0]} in "
        f"{found.changed} of {many(found.images, 'image')}."
    )
    return f"{text}{_next_step(diagnosis)}".strip()


def _agreement_text(found: DeploymentAgreement) -> str:
    few = "; an indication, because n < 20" if found.images < 20 else ""
    interval = f"95% interval {found.low:.4f} to {found.high:.4f}"
    return (
        f"The images have no labels: the predictions of deployment and training agree to "
        f"{found.agreement:.4f} of 1, {interval} (n = {found.images}{few}); "
        f"{COUNTED[found.task][0]} in {found.changed} of {many(found.images, 'image')}."
    )


def _next_step(diagnosis: Diagnosis) -> str:
    """What to do next, as a sentence with a leading space; empty if nothing is left to do."""
    found = diagnosis.loss
    worst = max(found.differences, key=lambda s: s.points_recovered, default=None) if found else None
    if worst is not None and worst.points_recovered > 0:
        sure = "" if worst.recovered_low > 0 else " (not significant)"
        return f" Next: fix {worst.label}; this alone recovers {worst.points_recovered:z.2f} points{sure}."
    if found is not None:
        return " Next: no fix of a single difference recovers points; look for other differences."
    if diagnosis.agreement is not None and diagnosis.agreement.agreement < 1.0:
        best = max(diagnosis.agreement.differences, key=lambda s: s.fixed)
        return f" Next: fix {best.label}; the agreement is {best.fixed:.4f} then."
    if diagnosis.input is not None and not diagnosis.input.explained:
        return (
            " Next: check that the dump belongs to this image, or add dumps of other images (--input FOLDER)."
        )
    if diagnosis.input is not None and diagnosis.input.causes:
        return " Next: repair the target, dump its input again and repeat this command."
    if diagnosis.predictions is not None and diagnosis.predictions.causes:
        return " Next: repair the target and repeat this command; a dump of its input is more exact."
    if diagnosis.layers is not None and diagnosis.layers.gains:
        return " Next: keep these layers in float, or choose another calibration method."
    if any(table.rows for table in diagnosis.dumps):
        return " Next: run the matching options on a dataset (--deploy) to measure the points lost."
    if first_difference(diagnosis.stages):
        return " Next: run this on a dataset to measure the points lost by each difference."
    return ""


def write(diagnosis: Diagnosis, subject: tuple[str, str], command: str, out: Path) -> Path:
    """Write the page, whole or not at all; OutputError if it cannot be written there. Return its path."""
    return write_page(page(diagnosis, subject, command), out, "diagnose.html")


def page(diagnosis: Diagnosis, subject: tuple[str, str] = ("model", "data"), command: str = "") -> str:
    """The diagnosis as one HTML file."""
    stages, found, dumps = diagnosis.stages, diagnosis.loss, diagnosis.dumps
    sections = [_section("stages", "First stage that differs", stage_table(stages))] if stages else []
    sections = [*_loss_sections(found), *sections] if found else sections
    if diagnosis.agreement is not None:
        table = agreement_table(diagnosis.agreement)
        sections.insert(0, _section("agreement", "Agreement with training", table))
    if diagnosis.input is not None:
        sections.append(_input_section(diagnosis.input))
    if diagnosis.layers is not None:
        sections.insert(0, _layer_section(diagnosis.layers))
    if diagnosis.predictions is not None:
        title, found_by = "Predictions of the target", diagnosis.predictions
        ranked = table_figure("", ranking_table(found_by), name=title, wide=True)
        sections.append(Section("predictions", title, (ranked,), found_by.verdict))
    sections += [_section(f"dump-{i}", "Dump of the target", t, EQUIVALENT) for i, t in enumerate(dumps, 1)]
    if calibration := diagnosis.calibration:
        how = calibration.how or "the method of each option"
        rows: list[list[Cell]] = [[calibration.images, calibration.on, how]]
        body = to_html(Table(["images", "calibrated on", "method"], rows), sortable=False)
        lead = "The images on which integer precisions chose the range of every tensor."
        sections.append(Section("calibration", "Calibration", (Figure("", body, wide=True),), lead))
    content = Document(
        title=f"Diagnosis of {subject[0]} on {subject[1]}",
        subject=subject,
        facts=(("images", str(_images(diagnosis))),),
        verdict=summary(diagnosis),
        cards=_cards(found) if found else (),
        command=command,
        sections=tuple(sections),
        kind="diagnosis",
        layout="diagnosis",
    )
    return document(content)


def _images(diagnosis: Diagnosis) -> int:
    """The number of images that the diagnosis rests on."""
    if measured := diagnosis.loss or diagnosis.agreement or diagnosis.predictions:
        return measured.images
    if diagnosis.input is not None:
        return diagnosis.input.dumps
    return diagnosis.stages[0].images if diagnosis.stages else 1


def _input_section(found: InputDiagnosis) -> Section:
    """The causes in the input of the target, and pictures of what is wanted, fed and not explained."""
    shown = found.pictures
    pictures = [
        ("What the model wants", shown.wanted, ""),
        ("What the target feeds, as the model reads it", shown.fed, ""),
    ]
    if found.remainder.largest >= 1.0:
        note = f"difference amplified {shown.factor:.3g} times"
        pictures.append(("What remains after the repairs", shown.remaining, note))
    figures = [
        Figure(title, f'<img src="{picture_uri(picture, "PNG")}" alt="{title}">', note)
        for title, picture, note in pictures
    ]
    if found.causes:
        figures.insert(0, table_figure("", cause_table(found), name="Causes", wide=True))
    return Section("input", "Input of the target", tuple(figures), found.verdict)


def _layer_section(found: LayerDiagnosis) -> Section:
    """The error of every layer as a line, and the table."""
    errors = np.array([100 * layer.error for layer in found.layers])
    places = np.arange(1, len(errors) + 1, dtype=np.float64)
    line = ChartLine(found.deployment, places, errors, colour=1, bold=True)
    title = "Relative error of each layer"
    chart = line_chart(
        [line],
        title=title,
        x_label="layer, in graph order",
        y_label="relative error, %",
        x_range=(1.0, max(2.0, float(len(errors)))),
        y_range=(0.0, max(0.01, float(errors.max()) * 1.05)),
        width=1080.0,
    )
    table = layer_table(found)
    figures = Figure("", chart, wide=True), table_figure("", table, name=title, wide=True)
    return Section("layers", title, figures, found.verdict)


def layer_table(found: LayerDiagnosis, most: int | None = None) -> Table:
    """The layers in graph order, or the `most` costly ones, and what is left if one stays in float."""
    layers = sorted(found.layers, key=_cost)[:most] if most else found.layers
    rows: list[list[Cell]] = [
        [
            layer.name,
            layer.op,
            f"{layer.error:.3%}",
            "" if layer.alone is None else f"{found.output * layer.alone:.3%}",
        ]
        for layer in layers
    ]
    more = f"; {len(layers)} of {len(found.layers)} layers, the costliest first" if most else ""
    title = f"Relative error of each layer under {found.deployment}, n = {found.images}{more}"
    return Table(
        ["layer", "operator", "relative error", "output error if it alone stays in float"], rows, title
    )


def _cost(layer: LayerError) -> tuple[float, float]:
    return (1.0 if layer.alone is None else layer.alone), -layer.error


def ranking_table(found: PredictionDiagnosis) -> Table:
    """The single mistakes that reproduce the target's predictions best."""
    if found.nothing is not None:
        left = [[one.cause.kind, one.cause.sentence, f"{one.score:.4f}"] for one in found.nothing.left]
        title = (
            f"Mistakes that leave no detection, of {found.nothing.tried} tried, n = {found.nothing.images}"
        )
        return Table(["cause", "difference", "highest score left"], left, title)
    rows: list[list[Cell]] = [[one.cause.kind, one.cause.sentence, one.agreement] for one in found.ranking]
    title = f"Agreement of boxes and scores if one mistake is made, n = {found.images}"
    return Table(["cause", "difference", "agreement"], rows, title)


def cause_table(found: InputDiagnosis) -> Table:
    """The causes with their repairs."""
    rows: list[list[Cell]] = [[cause.kind, cause.sentence, cause.repair] for cause in found.causes]
    return Table(["cause", "difference", "repair"], rows)


def _section(identifier: str, title: str, table: Table, note: str = "") -> Section:
    figure = table_figure("", table, note, name=title, wide=True)
    return Section(identifier, title, (figure,), f"{table.caption}.")


def _cards(found: DeploymentLoss) -> tuple[Card, ...]:
    metric, n = metric_label(found), found.images
    number, _, unit = lost_text(found.points_lost).partition(" ")
    ends = f"95% interval {interval_text(*facing(found.points_lost, found.low, found.high))}"
    return (
        Card(f"{metric}, training", 100 * found.train, "training pipeline", 2, n),
        Card(f"{metric}, deployment", 100 * found.deploy, "deployment", 2, n),
        Card(unit, number, ends, n=n),
        Card(COUNTED[found.task][0], f"{found.changed} of {found.images}", "images", n=n),
    )


def _loss_sections(found: DeploymentLoss) -> list[Section]:
    lost = [
        _spot(d.label, lost_text(d.points_lost) + " alone", d.points_lost, d.low, d.high)
        for d in found.differences
    ]
    recovered = [
        _spot(d.label, _recovered(d.points_recovered), d.points_recovered, d.recovered_low, d.recovered_high)
        for d in found.differences
    ]
    groups = [
        ForestGroup("Points lost by this difference alone", lost),
        ForestGroup("Points recovered if only it is fixed", recovered),
    ]
    title, table = "Points lost by each difference", loss_table(found)
    chart = Figure("", forest(groups, title=title, unit="points"), wide=True)
    figures = chart, table_figure("", table, name=title, wide=True)
    losses = Section("losses", title, figures, f"{table.caption}.")
    if not found.broken:
        return [losses]
    images = Table(["image"], [[name] for name in found.broken[:MOST_BROKEN]])
    listed = table_figure("", images, name="Broken images")
    verb = "is" if len(found.broken) == 1 else "are"
    count = many(len(found.broken), "image")
    lead = f"{count} {verb} correct with the training pipeline and wrong in the deployment."
    if len(found.broken) > MOST_BROKEN:
        lead += f" The first {MOST_BROKEN} are listed."
    return [losses, Section("broken", "Broken images", (listed,), lead)]


def _recovered(value: float) -> str:
    """The points recovered by a fix; a negative number is a further loss."""
    return f"{abs(value):.2f} points {'lost' if is_gain(value) else 'recovered'} if fixed"


def _spot(label: str, what: str, value: float, low: float, high: float) -> ForestPoint:
    note = f"{what}, 95% interval {interval_text(*facing(value, low, high))}"
    return ForestPoint(label, value, low, high, note=note)

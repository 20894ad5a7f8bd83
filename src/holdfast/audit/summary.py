"""An audit's result from what its parts made: every number with the command that gives it again."""

from __future__ import annotations

import math
from datetime import UTC, datetime

from holdfast.audit.made import Made
from holdfast.audit.result import Audit, Cause, Clean
from holdfast.audit.sandwich import layers
from holdfast.audit.squares.map import described
from holdfast.engine.versions import versions
from holdfast.evaluate.difference import Side, drawn
from holdfast.evaluate.result import Evaluation
from holdfast.evaluate.run import Plan
from holdfast.evaluate.score import Settings
from holdfast.metrics.intervals import interval_of
from holdfast.noise.vision.result import Row

TITLES = {"AP": "mAP@.5:.95", "top1": "top-1", "mIoU": "mean IoU", "iou_equal": "IoU × equal"}
MAIN = {"classify": "top1", "segment": "mIoU", "single": "iou_equal"}


def audit_of(made: Made, seconds: float) -> Audit:
    """The audit as data."""
    plan = made.plan.plan
    if made.evaluation is None:
        raise RuntimeError("an audit has an evaluation")
    return Audit(
        model={
            "name": plan.model.name, "path": str(plan.model.path), "sha256": plan.model.sha256,
            "task": plan.model.card.task, "classes": len(plan.model.card.classes),
            "guessed": list(plan.model.guessed), "pipeline": made.pipeline.describe(),
        },
        data={"name": plan.dataset.name, "images": len(plan.dataset), "source": dict(plan.source)},
        clean=_clean(made, made.evaluation),
        causes=tuple(_cause(made, r) for r in made.noise.rows) if made.noise else (),
        combined=_cause(made, made.noise.combined) if made.noise and made.noise.combined else None,
        strikes=tuple(s.strike for s in made.struck),
        proofs=made.proofs,
        rechecks=made.rechecks,
        sandwich=layers(made.proofs, described(made.maps) if made.maps else "", made.struck),
        matrix=made.matrix,
        parts=tuple(made.parts),
        notes=tuple(dict.fromkeys(_notes(made, made.evaluation))),
        failed=tuple(map(str, made.evaluation.failed)),
        runs=made.runs,
        command=plan.command,
        created=now(),
        seconds=round(seconds, 3),
        budget=made.plan.options.budget_seconds,
        versions=versions(),
    )  # fmt: skip


def _clean(made: Made, evaluation: Evaluation) -> Clean:
    plan = made.plan.plan
    side = side_of_evaluation(evaluation, plan.settings)
    found = interval_of(drawn(side, [r.name for r in side.records], replicates=made.plan.replicates))
    metric, title = metric_of(side.metric, plan.settings.iou)
    others = {k: float(v) for k, v in evaluation.result["metrics"].items() if isinstance(v, int | float)}
    at = evaluation.result.get("at_score", {})
    others |= {k: float(at[k]) for k in ("precision", "recall", "f1") if isinstance(at.get(k), int | float)}
    return Clean(
        metric,
        title,
        side.value,
        low=found.low,
        high=found.high,
        images=len(evaluation.records),
        rule=side.rule,
        others=others,
        command=made.plan.evaluate_line(evaluation.about.data["images"]),
    )


def side_of_evaluation(evaluation: Evaluation, settings: Settings) -> Side:
    """The evaluation as one side of a comparison: its records are numbered already."""
    return Side(evaluation.records, evaluation.about.task, evaluation.about.classes, settings)


def gate_metric(plan: Plan) -> str:
    """The name gates know the plan's main metric by."""
    main = "AP" if plan.settings.rule.name == "coco" else "mAP"
    return metric_of(MAIN.get(plan.model.card.task, main), plan.settings.iou)[0]


def metric_of(name: str, iou: float) -> tuple[str, str]:
    """The metric's name in gates and for people: map50 and mAP@.5."""
    if name == "mAP":
        return f"map{100 * iou:g}", f"mAP@{iou:g}".replace("@0.", "@.")
    return {"AP": "map", "mIoU": "miou"}.get(name, name), TITLES.get(name, name)


def _cause(made: Made, row: Row) -> Cause:
    count = made.prepared and len(made.prepared.noise.plan.dataset)
    label = row.option if row.family == "combined" else row.label
    only = () if row.family == "combined" else (label,)  # combined is a column of the whole table
    command = made.plan.noise_line(count or 1, only=only)

    def share(points: float | None) -> float | None:
        return None if points is None or math.isnan(points) else round(points / 100, 12)

    return Cause(
        label,
        row.family,
        row.outcome,
        drop=share(row.drop),
        low=share(row.low),
        high=share(row.high),
        changed=row.changed,
        images=row.images,
        note=row.note,
        command=command,
    )


def _notes(made: Made, evaluation: Evaluation) -> list[str]:
    said: list[str] = [*evaluation.notes, *made.notes]
    if made.noise is not None and made.noise.calibration:
        said.append(f"integer precisions are calibrated on {made.noise.calibration}")
    return said


def now() -> str:
    """The time in ISO 8601, UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")

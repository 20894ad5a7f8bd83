"""The tables of an evaluation, and its numbers as JSON."""

from collections.abc import Mapping
from typing import Any

from holdfast.report.tables import Column, Table, table_of

SHOWN = (
    "class", "AP", "AP50", "IoU", "iou_equal", "top1", "top5", "truth", "tp", "fp", "fn", "pixels",
    "precision", "recall", "f1",
)  # fmt: skip


def headline(result: Mapping[str, Any]) -> Table:
    """All numbers of the whole data set, one a row."""
    at = result.get("at_score")
    shown = {"mAP": f"mAP at IoU {at['iou']:g}"} if at else {}
    rows = [[shown.get(name, name), value] for name, value in result["metrics"].items()]
    if at:
        where = f"score {at['score']:g}, IoU {at['iou']:g}"
        rows += [[f"{name} at {where}", at[name]] for name in ("precision", "recall", "f1", "tp", "fp", "fn")]
    return Table([Column("metric"), Column("value", 4)], rows, f"{result['images']} images. {result['rule']}")


def by_class(result: Mapping[str, Any], every: bool = False, overall: bool = False) -> Table:
    """The numbers of each class: the main ones or every one, with or without a row of all classes."""
    rows = list(result["per_class"])
    if overall:
        at = {k: v for k, v in result.get("at_score", {}).items() if k not in ("score", "iou")}
        rows.insert(0, {"class": "all classes", **result["metrics"], **at})
    if not every:
        keys = [k for k in SHOWN if any(k in row for row in rows)]
        rows = [{k: row.get(k) for k in keys} for row in rows]
    return table_of(rows, "By class", digits=3)


def as_json(result: Mapping[str, Any]) -> dict[str, Any]:
    """The result with the metrics at the top and `per_class` by name, as `--json` writes it."""
    per_class = {row["class"]: {k: v for k, v in row.items() if k != "class"} for row in result["per_class"]}
    rest = {k: v for k, v in result.items() if k not in ("metrics", "per_class")}
    return {**result["metrics"], "per_class": per_class, **rest}

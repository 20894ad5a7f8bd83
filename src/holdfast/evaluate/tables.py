"""The tables of an evaluation, and its numbers as JSON."""

from collections.abc import Mapping
from typing import Any

from holdfast.report.tables import Column, Table, many, table_of

MAIN_COLUMNS = (
    "class", "AP", "AP50", "IoU", "iou_equal", "top1", "top5", "truth", "tp", "fp", "fn", "pixels",
    "precision", "recall", "f1",
)  # fmt: skip
HEADINGS = {"truth": "objects", "tp": "TP", "fp": "FP", "fn": "FN", "f1": "F1"}  # where they are not the key
RANKED_BY = ("AP", "top1", "IoU", "iou_equal")  # the number that ranks classes; a result has one of them
WORST = 10  # classes that are printed by default


def headline(result: Mapping[str, Any]) -> Table:
    """The metrics of the whole dataset, one row each."""
    at = result.get("at_score")
    names = {"mAP": f"mAP at IoU {at['iou']:g}"} if at else {}
    rows = [[names.get(name, name), value] for name, value in result["metrics"].items()]
    caption = f"{many(result['images'], 'image')}. Rule {result['rule']}"
    return Table([Column("metric"), Column("value", 4)], rows, caption)


def counts_table(result: Mapping[str, Any]) -> Table | None:
    """Precision, recall and counts at the score and IoU thresholds, of detectors."""
    at = result.get("at_score")
    if not at:
        return None
    rates = ("precision", "recall", "f1")
    columns = [*(Column("F1" if name == "f1" else name, 4) for name in rates)]
    counts = {"true positives": at["tp"], "false positives": at["fp"], "missed objects": at["fn"]}
    caption = f"At score threshold {at['score']:g} and IoU threshold {at['iou']:g}"
    return Table([*columns, *counts], [[*(at[name] for name in rates), *counts.values()]], caption)


def class_table(result: Mapping[str, Any], *, top: int | None = WORST, every: bool = False) -> Table:
    """The worst `top` classes that have ground truth, the lowest first; None: all classes, in their order.

    `every` adds the columns that are not among the main ones.
    """
    rows = list(result["per_class"])
    key = next((k for k in RANKED_BY if any(k in row for row in rows)), "")
    caption = "By class"
    if top is not None and key:
        present = sorted((r for r in rows if r.get(key) is not None), key=lambda r: r[key])
        more = "" if len(present) <= top and len(present) == len(rows) else "; --all-classes prints all"
        caption = f"Worst {many(min(top, len(present)), 'class', 'classes')} of {len(rows)} by {key}{more}"
        rows = present[:top]
    if not every:
        keys = [k for k in MAIN_COLUMNS if any(k in row for row in rows)]
        rows = [{HEADINGS.get(k, k): row.get(k) for k in keys} for row in rows]
    return table_of(rows, caption, digits=3)


def csv_table(result: Mapping[str, Any]) -> Table:
    """Every number of every class, after a row of all classes together."""
    at = {k: v for k, v in result.get("at_score", {}).items() if k not in ("score", "iou")}
    return table_of([{"class": "all classes", **result["metrics"], **at}, *result["per_class"]], digits=3)


def as_json(result: Mapping[str, Any]) -> dict[str, Any]:
    """The result with the metrics at the top and `per_class` by name, as `--json` writes it."""
    per_class = {row["class"]: {k: v for k, v in row.items() if k != "class"} for row in result["per_class"]}
    rest = {k: v for k, v in result.items() if k not in ("metrics", "per_class")}
    return {**result["metrics"], "per_class": per_class, **rest}

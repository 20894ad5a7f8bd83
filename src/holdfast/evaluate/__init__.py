"""Evaluation: a model on a dataset, the metrics of its task, and the page."""

COMMANDS = {"Measure": {"evaluate": "cli:evaluate"}}

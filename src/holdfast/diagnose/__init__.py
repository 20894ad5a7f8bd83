"""Diagnosis: where training and deployment differ, and what each difference costs."""

COMMANDS = {"Measure": {"diagnose": "cli:diagnose"}}

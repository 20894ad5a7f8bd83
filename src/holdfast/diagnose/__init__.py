"""Diagnosis: where training pipeline and deployment differ, and the points each difference loses."""

COMMANDS = {"Measure": {"diagnose": "cli:diagnose"}}

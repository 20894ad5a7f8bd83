"""Diagnosis: where training and deployment differ, and what each difference costs."""

COMMANDS = {"diagnose": "cli:diagnose"}

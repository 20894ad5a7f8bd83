"""Diagnosis: where training pipeline and deployment differ, and the points each difference loses."""

COMMANDS = {"diagnose": "cli:diagnose"}

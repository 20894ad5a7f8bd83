"""Comparison of two results of one kind: what improved or got worse, with paired intervals."""

COMMANDS = {"Measure": {"compare": "cli:compare"}}

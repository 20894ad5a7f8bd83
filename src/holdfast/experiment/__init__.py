"""Experiments: models × data × conditions, declared in one TOML file."""

COMMANDS = {"run": "cli:run"}

"""Experiments: models × data × conditions, declared in one TOML file."""

COMMANDS = {"Run": {"run": "cli:run"}}

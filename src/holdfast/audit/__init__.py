"""The audit: evaluation, noise, attack and proof of one model, and each of them across the others."""

COMMANDS = {"Run": {"audit": "cli:audit", "demo": "cli:demo"}}

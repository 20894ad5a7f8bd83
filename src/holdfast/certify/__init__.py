"""Certified patches: which objects no patch of a size can hide, wherever it is and whatever it shows."""

COMMANDS = {"Attack": {"certify": "cli:certify"}}

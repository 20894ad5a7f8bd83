"""Patch attacks: gradient and black-box searches for few pixels, and their effect on a dataset."""

GROUPS = {"patch": "Apply a patch to images."}
COMMANDS = {"Attack": {"attack": "cli:attack", "patch apply": "cli:apply"}}

"""Patch attacks: gradient and black-box searches for few pixels, and their effect on a dataset."""

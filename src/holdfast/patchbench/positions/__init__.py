"""Exact maps of patch positions: the output of a single-object detector with the patch at every position."""

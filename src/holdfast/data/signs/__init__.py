"""Procedural road scenes with traffic signs: the data set that is always at hand."""

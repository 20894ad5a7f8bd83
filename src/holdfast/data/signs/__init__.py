"""Procedural road scenes with traffic signs: the dataset that is always at hand."""

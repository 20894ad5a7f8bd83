"""Patch contests: images and rules, entries, scores, the board."""

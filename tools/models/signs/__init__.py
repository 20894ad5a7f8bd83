"""Recipes of the six detectors, classifiers and segmenters of signs."""

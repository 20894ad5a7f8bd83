"""Benchmarks of a patch at every position: make, check, evaluate."""

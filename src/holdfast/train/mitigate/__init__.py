"""Mitigations of system noise: one model trained in several ways, each tested under every noise."""

"""Readers of encoded samples and the embedded procedural data."""

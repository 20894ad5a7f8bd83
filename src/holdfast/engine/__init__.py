"""Experiments: cells of work, written once, run by processes, resumed after a kill."""

"""Cells of work: stored once, computed by one or several processes, resumed after a kill."""

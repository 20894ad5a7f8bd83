"""Engine for piecewise-linear nets of one input: the range is cut at breakpoints and walked to its end."""

from holdfast.verify.sweep.chords import piecewise
from holdfast.verify.sweep.search import search

__all__ = ["piecewise", "search"]

"""Engine for nets of few inputs: boxes settled by affine forms and small linear programs, proven."""

from __future__ import annotations

from holdfast.verify.lowdim.layers import layers_of
from holdfast.verify.lowdim.search import search

__all__ = ["layers_of", "search"]

"""Adapt a graph to changed sizes: one walk tracks every tensor's size before and after an upstream change.

`walk` goes through the nodes once and gives each tensor its old and its new shape. Where a constant encodes
the old shape (the target of a Reshape, the sizes of a Resize, a grid of cells), `rules` recomputes it.
A node that cannot be adapted raises an error that names the node and the reason.
"""

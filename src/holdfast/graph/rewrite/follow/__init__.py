"""Make a graph follow its data: one walk tracks every tensor's size before and after a change upstream.

`walk` goes through the nodes once and gives each tensor its old and its new shape. Where a constant was cut
to the old shape (the target of a Reshape, the sizes of a Resize, a grid of cells), `rules` cuts it anew.
What cannot follow is an error that names the node and the reason.
"""

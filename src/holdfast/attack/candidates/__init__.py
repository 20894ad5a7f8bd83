"""What the heads of `holdfast.graph.heads` read, in torch: every candidate of a batch, with a gradient."""

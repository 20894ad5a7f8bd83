"""A patch contest: made, scored, ranked."""

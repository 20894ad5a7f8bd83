"""Linear bounds of a net over a box: interval, CROWN, alpha-CROWN, and what a branch-and-bound needs."""

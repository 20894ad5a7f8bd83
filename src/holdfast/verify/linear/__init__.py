"""Linear bounds of a net over a box: interval, CROWN, alpha-CROWN, and passes for branch and bound."""

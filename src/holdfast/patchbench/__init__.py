"""The benchmark of a patch at any position: made, checked, evaluated."""

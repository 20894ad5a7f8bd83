"""The compiled part of the search. Only `build` imports it, to compile; a cached copy runs without numba."""

"""Readers of datasets, each a function registered as a "reader".

A reader takes a path and returns a Dataset. The facts told with its name: `recognise`, a function that says
why a path is of this format (empty if it is not); `task`, what its truth is for; `rank`, lower for formats
that are more specific.
"""

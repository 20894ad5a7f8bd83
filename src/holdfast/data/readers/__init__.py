"""Readers of datasets, each a function registered as a "reader".

A reader takes a path and returns a Dataset. The facts of its registration: `recognise`, a function that
returns why a path has this format (empty if it does not); `task`, the task of its truth; `rank`, lower for
more specific formats.
"""

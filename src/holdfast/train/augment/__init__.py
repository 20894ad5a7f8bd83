"""Augmentations of training pictures: one function a file, named in a recipe, applied in the order named.

Each takes pictures (n, h, w, 3) uint8 and a random generator and hands back new pictures of the same kind;
the same generator gives the same pictures. `severity` scales the change, and 0 changes nothing.
"""

"""A black square at every place of a grid over the scene, enumerated."""

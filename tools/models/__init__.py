"""Recipes of the models that the package ships; `make train` runs them."""

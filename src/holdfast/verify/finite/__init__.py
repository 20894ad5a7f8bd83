"""Finite domains: networks whose free inputs are all rounded before anything is computed from them."""

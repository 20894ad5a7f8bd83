"""Resize functions: an RGB image (h, w, 3) to an exact size; each is one decorated function.

The policy around them (stretch, letterbox, crop) is the card's.
"""

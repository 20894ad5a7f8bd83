"""Resize functions: an RGB image (h, w, 3) to an exact size; one file a library.

The policy around them (stretch, letterbox, crop) is the card's.
"""

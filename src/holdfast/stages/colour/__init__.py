"""Colour stages: RGB pixels to RGB pixels, by way of the format a camera or an accelerator hands over."""

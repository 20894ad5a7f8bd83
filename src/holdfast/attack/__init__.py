"""Attacks with few pixels: patches searched by gradient or from predictions alone."""

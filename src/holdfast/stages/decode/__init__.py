"""Decoders: encoded bytes to RGB pixels as stored (an EXIF rotation is not applied); each is one function.

What differs between systems is how a JPEG is turned into pixels (docs/results/pixel-differences.md). Files
of other formats use the `pillow` decoder, except where a decoder's docstring states otherwise.
"""

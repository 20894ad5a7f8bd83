"""An attack on a whole data set: an image a cell, then mAP before and after, curves and files."""

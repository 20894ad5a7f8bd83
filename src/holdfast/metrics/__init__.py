"""Detection, classification and segmentation scores in plain numpy, with named rules."""

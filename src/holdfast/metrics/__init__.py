"""How good is it: detection, classification and segmentation scores in plain numpy, each rule by name."""

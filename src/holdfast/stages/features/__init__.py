"""Feature nets: an image becomes a row of numbers, and the Fréchet distance of such rows measures stealth.

A part of kind `features` is a function of the text behind the name and of a number of threads; what it
gives is a `FeatureNet`. `signs` comes with the package, `inception:FILE` is the network of FID, `onnx:FILE`
any other.
"""

from holdfast.stages.features.net import FeatureNet, open_features

__all__ = ["FeatureNet", "open_features"]

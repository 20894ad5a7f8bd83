"""ONNX classifiers in torch: opened, trained, and written back as the file they were."""

from holdfast.train.onnx.net import Trainable
from holdfast.train.onnx.open import open_trainable
from holdfast.train.onnx.written import written

__all__ = ["Trainable", "open_trainable", "written"]

"""ONNX classifiers in torch: open, train, and export to the original graph."""

from holdfast.train.onnx.export import export_trained
from holdfast.train.onnx.net import Trainable
from holdfast.train.onnx.open import open_trainable

__all__ = ["Trainable", "export_trained", "open_trainable"]

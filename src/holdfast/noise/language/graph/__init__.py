"""Inputs and outputs of the ONNX graph of a causal language model."""

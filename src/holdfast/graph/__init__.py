"""ONNX files: their cards, what is inside them, how their outputs are read, and NMS."""

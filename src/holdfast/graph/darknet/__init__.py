"""Darknet `.cfg` and `.weights` in, an ONNX file with raw YOLO maps and its card out.

The door is `holdfast.graph.darknet.convert.convert`; nothing is imported here because onnx is heavy.
"""

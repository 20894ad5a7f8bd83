"""Darknet `.cfg` and `.weights` in, an ONNX file with raw YOLO maps and its card out (`convert.convert`)."""

"""The products that a model is deployed on. The fact `targets` of a part names those that do it."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

Target: TypeAlias = Literal["tensorrt", "tflite", "openvino", "onnxruntime", "ncnn"]
PRODUCTS: Mapping[Target, str] = {
    "tensorrt": "TensorRT",
    "tflite": "TensorFlow Lite",
    "openvino": "OpenVINO",
    "onnxruntime": "ONNX Runtime",
    "ncnn": "ncnn",
}

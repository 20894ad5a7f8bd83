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
# What reads and resizes images: only what a product has of its own is an option of the product.
_OF_APPLICATION = "reads and resizes no images: decoder, colour and resize are those of your application"
OWN_STAGES: Mapping[Target, str] = {
    "tensorrt": f"TensorRT {_OF_APPLICATION} (DALI and nvJPEG are separate products)",
    "tflite": f"TensorFlow Lite {_OF_APPLICATION} (TensorFlow's decoder is not part of it)",
    "openvino": f"OpenVINO {_OF_APPLICATION}, unless it adds a resize to the graph",
    "onnxruntime": f"ONNX Runtime {_OF_APPLICATION}",
    "ncnn": "ncnn has no decoder; its own resize of pixels is resize=opencv-bilinear, within 1 level",
}

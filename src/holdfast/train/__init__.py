"""The small ONNX models the package ships, trained on its own procedural road scenes (needs torch)."""

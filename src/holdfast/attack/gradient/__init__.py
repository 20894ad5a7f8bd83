"""White-box search: gradients through the ONNX file, masks, pruning."""

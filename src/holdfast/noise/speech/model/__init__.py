"""Speech: waves, mel spectrograms, Griffin and Lim's vocoder, and acoustic models in ONNX Runtime."""

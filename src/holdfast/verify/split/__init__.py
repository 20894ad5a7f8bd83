"""Engine for nets of few inputs of any kind: many boxes of inputs at a time are bounded, and halved."""

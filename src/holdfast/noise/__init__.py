"""System noise: what decoder, resize, colour, precision, runtime and box rounding do to a model."""

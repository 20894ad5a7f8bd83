"""System noise: how a deployed system differs from the training one, as named options of named families."""

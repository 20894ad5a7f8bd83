"""System noise: what decoder, resize, colour, precision, runtime and box rounding do to a model."""

GROUPS = {
    "noise": "Measure what the deployed system does to a model: decoder, resize, colour, pooling, precision…",
}
COMMANDS = {
    "Measure": {
        "noise": "cli:suite",
        "noise list": "cli:listing",
        "noise combine": "cli:combine",
        "noise show": "cli:show",
    }
}

"""System noise: points lost to decoder, resize, colour, precision, runtime and box rounding."""

GROUPS = {
    "noise": "Measure system noise: points lost to another decoder, resize, colour, pooling, precision…",
}
COMMANDS = {
    "Measure": {
        "noise": "cli:suite",
        "noise list": "cli:listing",
        "noise combine": "cli:combine",
        "noise show": "cli:show",
    }
}

"""Training against system noise (mix training, TENT, comparisons) and against patches. Needs torch."""

GROUPS = {"train": "Train against system noise (mix training, TENT, comparisons) or patches (certified)."}
COMMANDS = {
    "Defend": {
        "train mix": "cli:mix",
        "train tent": "cli:tent",
        "train matrix": "cli:matrix",
        "train compare": "cli:compare",
        "train certified": "certified.cli:certified",
    }
}

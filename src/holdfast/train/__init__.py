"""Training against system noise: mix training, TENT, train × test tables. Needs torch."""

GROUPS = {"train": "Train a classifier against system noise: mix training, augmentation, TENT, comparisons."}
COMMANDS = {
    "Defend": {
        "train mix": "cli:mix",
        "train tent": "cli:tent",
        "train matrix": "cli:matrix",
        "train compare": "cli:compare",
    }
}

"""Benchmarks of a patch at every position: make, check, evaluate."""

GROUPS = {"patchbench": "Make, check and evaluate benchmarks of a patch at any position (after CCTSDB-YOLO)."}
COMMANDS = {
    "Prove": {
        "patchbench make": "cli:make",
        "patchbench check": "cli:check",
        "patchbench evaluate": "cli:evaluate",
    }
}

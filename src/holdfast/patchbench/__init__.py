"""Benchmarks of a patch at every position: make, check, evaluate."""

GROUPS = {"patchbench": "Patch at any position: benchmarks after CCTSDB-YOLO, maps, proofs for any content."}
COMMANDS = {
    "Prove": {
        "patchbench make": "cli:make",
        "patchbench check": "cli:check",
        "patchbench evaluate": "cli:evaluate",
        "patchbench certify": "cli:certify",
    }
}
